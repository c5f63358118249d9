"""Replies leave at fixed times, so that how long an answer took shows nothing about rows or noise.

With `answer_after = 2.0` in a node's file a reply leaves 2 seconds after its question arrived, be it an answer, a
repeated answer or a refusal. If the work took longer, the reply leaves after 4 seconds, or 6: an observer learns a
whole number. The owner should choose more than the longest answer takes, so that this number is always 1.
"""

import math
import time
from collections.abc import Callable
from typing import TypeVar

Reply = TypeVar("Reply")
clock, sleep = time.monotonic, time.sleep  # tests replace them


def at_fixed_times(every: float, work: Callable[[], Reply]) -> Reply:
    """What `work` returns, a multiple of `every` seconds after the call; at once if that is 0."""
    arrived = clock()
    reply = work()
    if every > 0:
        leaves = arrived + every * max(1, math.ceil((clock() - arrived) / every))
        while (left := leaves - clock()) > 0:  # a sleep may end early
            sleep(left)
    return reply

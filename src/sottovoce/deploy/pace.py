"""How fast a server may ask: the [limits] questions_per_hour and epsilon_per_day, counted by the client's own ledger.

What was asked and when is in the ledger, which is on disk before an answer leaves and cannot be rewritten unnoticed. So
there is no second file that could be lost, and a client that is started again goes on counting.

**Clocks.** How old a row is follows from the machine's steady counter, which nobody can set. The wall clock is asked
once, when the ledger is opened, about the rows that are in it by then; a row that is stamped later than now counts as
new. So a clock that is set ahead, or back, while the client runs changes nothing. One that is ahead when the client is
started makes the rows before it older than they are: nothing else on the machine could tell.

A refusal follows from what was asked and when, and from no row of the client's data.

**Replies.** How long an answer took must show nothing about rows or noise either. With `answer_after = 2.0` a reply
leaves 2 seconds after its question arrived, be it an answer, a repeated answer or a refusal. If the work took longer,
the reply leaves after 4 seconds, or 6: an observer learns a whole number. The owner should choose more than the longest
answer takes, so that this number is always 1.
"""

import math
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np

from sottovoce.deploy import wire
from sottovoce.deploy.limits import Limits, Refused
from sottovoce.ledger.budget import Budget, Standing
from sottovoce.ledger.file import FileLedger
from sottovoce.ledger.owner_ledgers import OwnerLedgers, Places
from sottovoce.privacy.events import Event

HOUR, DAY = 3600.0, 86400.0
Question = tuple[str | None, int | None]  # run and round: one question of the server's, however many answers it takes
Reply = TypeVar("Reply")
wall, steady, sleep = time.time, time.monotonic, time.sleep  # tests replace them


class Charge(NamedTuple):
    """One answer that was charged in the last day."""

    made: float  # by the steady counter
    question: Question
    event: Event


class Recent:
    """What a ledger was charged in the last day; ages are measured by the steady counter."""

    def __init__(self, ledger: FileLedger) -> None:
        self.ledger, self._last, self._charges = ledger, -1, list[Charge]()
        now = wall()
        self._read(lambda stamp: max(now - stamp, 0.0))

    def look(self) -> list[Charge]:
        """The charges of the last day, the oldest first. Rows that were not there before are new."""
        self._read(lambda stamp: 0.0)
        return self._charges

    def _read(self, age: Callable[[float], float]) -> None:
        now = steady()
        for entry in self.ledger.rows(after=self._last):
            self._last = entry.sequence
            if entry.kind == "charge":
                self._charges.append(Charge(now - age(entry.time), (entry.run, entry.round), entry.event))
        self._charges = [charge for charge in self._charges if now - charge.made < DAY]


def check_hour(limits: Limits, recent: Recent) -> None:
    """Refuse a new question if as many as the owner allows were answered in the last hour."""
    most = limits.questions_per_hour
    if not most:
        return
    last: dict[Question, float] = {}  # when each question was last charged; stamps of an old ledger may run backwards
    for charge in recent.look():
        last[charge.question] = max(charge.made, last.get(charge.question, -math.inf))
    within = sorted(made for made in last.values() if steady() - made < HOUR)
    if len(within) >= most:
        wait = within[-most] + HOUR - steady()
        raise Refused(wire.PACE, f"it answers {most} questions an hour and has. {_come_back(wait)}")


def check_day(limits: Limits, recent: Recent, event: Event, answers: int) -> None:
    """Refuse answers with which those of the last 24 hours would give away more than the owner allows for a day."""
    most = limits.epsilon_per_day
    if not most:
        return
    charges, budget = recent.look(), Budget(most, limits.delta)

    def fits(without: int) -> bool:
        spent = Counter(charge.event for charge in charges[without:])
        return Standing(budget, spent).remaining(event) >= answers

    if fits(0):
        return
    why = f"what is asked gives away more than the epsilon {most:g} that it allows for a day"
    limits.allow(fits(len(charges)), why)
    fewest = bisect_left(range(len(charges)), True, lo=1, key=fits)  # of the oldest, which have to be a day old
    wait = charges[fewest - 1].made + DAY - steady()
    raise Refused(wire.PACE, f"it gives away at most epsilon {most:g} a day and has. {_come_back(wait)}")


def _come_back(wait: float) -> str:
    """When to ask again; the time is this machine's, in whole minutes, rounded up."""
    minutes = max(1, math.ceil(wait / 60))
    at = time.strftime("%Y-%m-%d %H:%M", time.gmtime(60 * math.ceil((wall() + wait) / 60)))
    return f"Ask again in {minutes} minute{'s' if minutes > 1 else ''} ({at} UTC)"


class PacedLedgers(OwnerLedgers):
    """The ledger of one client as a door charges it, with what the owner allows for a day held before each charge."""

    def __init__(self, recent: Recent, limits: Limits, budget: Budget, run: str) -> None:
        super().__init__([recent.ledger], budget, run)
        self._recent, self._limits = recent, limits

    def afford(self, event: Event, answers: int, clients: Places, round: int | None) -> np.ndarray:
        """Refuses where the pace does not allow so many answers now; that is not the same as a spent budget."""
        able = super().afford(event, answers, clients, round)
        if able.all():
            check_day(self._limits, self._recent, event, answers)
        return able

    def charge(self, event: Event, clients: Places, active: np.ndarray, round: int, question: int) -> None:
        """Charge, and look at the clock while the row is new."""
        super().charge(event, clients, active, round, question)
        self._recent.look()


def at_fixed_times(every: float, work: Callable[[], Reply]) -> Reply:
    """What `work` returns, a multiple of `every` seconds after the call; at once if that is 0."""
    arrived = steady()
    reply = work()
    if every > 0:
        leaves = arrived + every * max(1, math.ceil((steady() - arrived) / every))
        while (left := leaves - steady()) > 0:  # a sleep may end early
            sleep(left)
    return reply

"""How much work something is, counted in calls: that is the same on every machine, however busy it is."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import sottovoce

_LIBRARY = str(Path(sottovoce.__file__).parent)
Done = TypeVar("Done")


def calls_of_the_library(work: Callable[[], Done]) -> tuple[Done, int]:
    """What `work` gives, and how often it enters a function of this library, or goes on in a generator of it."""
    seen = 0

    def note(frame: FrameType, what: str, _: Any) -> None:
        nonlocal seen
        seen += what == "call" and frame.f_code.co_filename.startswith(_LIBRARY)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        done = work()
    finally:
        sys.setprofile(before)
    return done, seen

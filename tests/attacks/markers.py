"""Data in which every private cell carries a marker, and a search for it in all that comes out of a call."""

import contextlib
import io
import logging
import math
import re
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROWS, COLUMNS = 8, 3
NUMBER = 731946.0625
TEXT = "MARKER-7319-"
# Every cell is another number, and all of them begin with the same six digits, however far they are shortened.
X = NUMBER + np.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS) / 1024
WORDS = np.array([[f"{TEXT}{row}-{column}" for column in range(COLUMNS)] for row in range(ROWS)])
TAME = np.linspace(-0.5, 0.5, ROWS * COLUMNS).reshape(ROWS, COLUMNS)  # rows without a marker
SIGNS = np.resize([-1.0, 1.0], ROWS)
OWNERS = np.array(list("aabbccdd"))
TEXT_FILES = {".log", ".toml", ".json", ".html", ".md", ".txt", ""}


def _prints(value: float) -> list[str]:
    """Patterns of a number as it is, with thousands marked, shortened to three digits or more, and in binary."""
    whole, exponent = str(int(value)), math.floor(math.log10(value))
    digits = {f"{value / 10**exponent:.{places}f}"[:4] for places in range(2, 6)}
    shortened = [rf"{re.escape(each)}\d*e\+0?{exponent}" for each in digits]
    return [whole, f"{int(value):,}", f"{int(value):_}", *shortened, re.escape(float.hex(value)[:9])]


# Lengths of rows and of columns, sums and means would be a leak as well.
LENGTHS = [math.sqrt(number) * NUMBER for number in (2, COLUMNS, ROWS, ROWS * COLUMNS)]
SUMS = [number * NUMBER for number in (COLUMNS, ROWS, ROWS * COLUMNS)]
MARKER = re.compile("|".join(["MARKER", *(each for value in (NUMBER, *LENGTHS, *SUMS) for each in _prints(value))]))


@dataclass
class Said:
    """All that came out of a call: `last` is its error, or what it ended with; `failed` whether it did fail."""

    last: str
    everything: str
    failed: bool

    @property
    def leaks(self) -> list[str]:
        return [found.group() for found in MARKER.finditer(self.everything)]


def chain(error: BaseException | None) -> Iterator[str]:
    """The texts of an error and of all that came before it, shown or not, and of notes."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield from (str(each), repr(each), "\n".join(getattr(each, "__notes__", ())))
        yield "".join(traceback.format_exception_only(each))
        waiting += [each.__cause__, each.__context__]


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def listen(action: Callable[[], Any], folder: Path | None = None) -> Said:
    """Call, and keep what was raised, warned, printed, logged and written to text files in `folder`.

    A call may return texts: what it replied. A reply that begins with "refused" is a failure.
    """
    out, kept, texts, last, replied = io.StringIO(), _Kept(), [], "", None
    loggers = [logging.getLogger(), logging.getLogger("sottovoce")]
    for logger in loggers:
        logger.addHandler(kept)
    try:
        with (
            warnings.catch_warnings(record=True) as warned,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(out),
        ):
            warnings.simplefilter("always")
            try:
                replied = action()
            except Exception as error:
                last = f"{type(error).__name__}: {error}"
                texts += chain(error)
    finally:
        for logger in loggers:
            logger.removeHandler(kept)
    replies = [each for each in replied if isinstance(each, str)] if isinstance(replied, list) else []
    said = [str(warning.message) for warning in warned]
    failed = bool(last or said or any(reply.startswith("refused") for reply in replies))
    last = last or "\n".join([*replies, *said])
    written = [] if folder is None else [path.read_text(errors="replace") for path in text_files(folder)]
    return Said(last, "\n".join([out.getvalue(), *kept.lines, *texts, *replies, *said, *written]), failed)


def text_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.suffix in TEXT_FILES]

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import pytest

from sottovoce.core import check
from sottovoce.core.check import InvalidInput


class Part:
    pass


@dataclass(frozen=True)
class Settings:
    rho: check.Positive = 1.0
    pull: check.NonNegative = 0.0
    delta: check.Fraction = 0.5
    rate: Annotated[float, check.Interval(0, 1, closed=("high",))] = 1.0
    steps: check.Whole = 1
    seed: check.WholeOrZero = 0
    horizon: check.Whole | None = None
    solver: Literal["gradient", "newton"] | None = "gradient"
    part: "Annotated[Part | None, check.Example('Part()')]" = None
    step: Literal["auto", "best"] | check.Positive | None = "auto"
    often: Literal["always"] | float = 1.0
    free: float = 0.0  # not checked
    shares: Annotated[float | Sequence[float], check.Interval(0, 1, closed=("high",), each=True)] = 1.0
    counts: "Annotated[Sequence[int], check.Interval(1, whole=True, each=True)] | None" = None

    def __post_init__(self) -> None:
        check.fields(self)


@dataclass(frozen=True)
class More(Settings):
    width: check.Positive = 2.0


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("rho", -1.0, "rho must be > 0, got -1.0"),
        ("rho", math.nan, "rho must be > 0, got nan"),
        ("rho", math.inf, "rho must be > 0, got inf"),
        ("rho", True, "rho must be a number > 0, got True"),
        ("rho", np.zeros(3), "rho must be a number > 0, got ndarray of shape (3,)"),
        ("pull", -0.1, "pull must be >= 0, got -0.1"),
        ("delta", 1, "delta must lie in (0, 1), got 1"),
        ("delta", "x", "delta must be a number and lie in (0, 1), got 'x'"),
        ("rate", 0.0, "rate must lie in (0, 1], got 0.0"),
        ("steps", 0, "steps must be a whole number >= 1, got 0"),
        ("steps", 1.0, "steps must be a whole number >= 1, got 1.0"),
        ("seed", -1, "seed must be a whole number >= 0, got -1"),
        ("horizon", 0, "horizon must be a whole number >= 1, got 0"),
        ("solver", "newtn", "unknown solver 'newtn'. Did you mean 'newton'?"),
        ("solver", 3, "unknown solver 3. Known: gradient, newton"),
        ("step", "bets", "unknown step 'bets'. Did you mean 'best'?"),
        ("step", 0.0, "step must be > 0, got 0.0"),
        ("often", "never", "unknown often 'never'. Known: always"),
        ("shares", 2.0, "shares must lie in (0, 1], got 2.0"),
        ("shares", [0.5, 0.0], "shares must lie in (0, 1], got list of length 2"),
        ("shares", np.array([[0.5], [np.nan]]), "shares must lie in (0, 1], got ndarray of shape (2, 1)"),
        ("counts", (3, 0), "counts must be a whole number >= 1, got tuple of length 2"),
        ("counts", (3, 1.0), "counts must be a whole number >= 1, got tuple of length 2"),
        ("part", [1, 2], "part must be an object such as Part(), got list of length 2"),
    ],
)
@pytest.mark.parametrize("kind", [Settings, More])
def test_fields_are_checked_by_their_annotations(kind: type[Settings], field: str, value: object, message: str) -> None:
    with pytest.raises(InvalidInput) as error:
        kind(**{field: value})  # type: ignore[arg-type]
    assert str(error.value) == f"{kind.__name__}: {message}"


def test_each_of_several_names_must_be_known() -> None:
    check.all_of("file", "key", {"rho": 1, "step": 2}, ("rho", "step", "rho"))
    with pytest.raises(InvalidInput, match=r"^file: unknown key 'mu'\. Known: rho, step$"):
        check.all_of("file", "key", ["step", "mu"], ("rho", "step", "rho"))


def test_what_keeps_the_rules_passes() -> None:
    Settings(np.float32(0.1), 0, 0.3, 1.0, np.int64(2), 0, None, None, Part(), 0.1, -1.0, math.nan)  # type: ignore[arg-type]
    Settings(step=None, often="always")
    Settings(shares=[0.5, 1.0], counts=(3, 1))
    with pytest.raises(InvalidInput, match=r"^More: width must be > 0, got 0$"):
        More(width=0)


def test_numbers_of_an_array_are_checked_too() -> None:
    assert check.positive_array("Who", "rho", [1, 2]).dtype == np.float64
    with pytest.raises(InvalidInput, match=r"^Who: rho must be finite and > 0, got 0\.0$"):
        check.positive_array("Who", "rho", np.array([[1.0], [0.0]]))

"""What a paper's claim is, what is printed about it, and the noise of the classical Gaussian mechanism."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from sottovoce.core import check
from sottovoce.privacy.accounting.gaussian import gaussian_epsilon

Value = float | np.ndarray
Verdict = Literal["sound", "unsound", "not checkable"]
_VERDICTS: dict[Verdict, str] = {
    "sound": "sound for epsilon <= 1 per round, under the assumptions below.",
    "unsound": "UNSOUND: no guarantee.",
    "not checkable": "not checkable: no guarantee.",
}
EVERY_MESSAGE = "an eavesdropper on every message, and the honest-but-curious server"
CLIPPED = "the gradient of one record is bounded by c1 everywhere it is asked for: enforced by clipping, not hoped for"
START = "initial values, c1 and every hyper-parameter are chosen without looking at private data"
STANDARD_DEVIATION = "the noise has independent entries of standard deviation sigma"


def gaussian_factor(epsilon: float, delta: float) -> float:
    """Noise per unit of L2 sensitivity, sqrt(2 ln(1.25/delta))/epsilon: the classical mechanism, for epsilon <= 1."""
    check.positive("published noise", epsilon=epsilon)
    return math.sqrt(2 * log_of_gaussian(delta)) / epsilon


def log_of_gaussian(delta: float) -> float:
    """ln(1.25/delta)."""
    check.between("published noise", 0, 1, delta=delta)
    return math.log(1.25 / delta)


def log_inverse(delta: float) -> float:
    """ln(1/delta)."""
    check.between("published noise", 0, 1, delta=delta)
    return -math.log(delta)


@dataclass(frozen=True)
class Asked:
    """What a published run asked for; the two rates matter to FedSPD-DP only (p and q of (21))."""

    epsilon: float
    delta: float
    rounds: int
    data_rate: float | None = None
    client_rate: float = 1.0

    def __post_init__(self) -> None:
        check.positive("describe", epsilon=self.epsilon)
        check.require(0 <= self.delta < 1, "describe", "delta must lie in [0, 1)", self.delta)
        check.whole("describe", at_least=0, rounds=self.rounds)


class PaperClaim:
    """One paper's promise and what it is worth.

    The verdict "sound" also says that a run, under `assumptions`, is exactly the Gaussian mechanism of the noise that
    `gaussian_factor` sets, once a round.
    """

    method: ClassVar[str]
    paper: ClassVar[str]
    statement: ClassVar[str]
    assumptions: ClassVar[tuple[str, ...]]
    observer: ClassVar[str]
    verdict: ClassVar[Verdict]
    because: ClassVar[str]
    instead: ClassVar[str]
    without_total: ClassVar[str] = "The paper states no total for a whole run."
    span: ClassVar[str] = "per round"
    pure: ClassVar[bool] = False

    def total(self, asked: Asked) -> tuple[float, float] | None:
        """The paper's own (epsilon, delta) for a whole run; None where it states none."""
        return None

    def describe(self, asked: Asked, unmet: Sequence[str] = ()) -> str:
        """The claim in numbers, what it is worth, and what to use instead. See `claims.describe`."""
        epsilon, delta, rounds, total = asked.epsilon, asked.delta, asked.rounds, self.total(asked)
        lines = [
            f"Published noise of {self.method}. {self.paper}.",
            f"Paper's claim: ({epsilon:g}, {0 if self.pure else delta:g}) {self.span}. {self.statement}",
            f"Meant to protect against: {self.observer}.",
            f"Paper's total for {rounds} rounds: ({total[0]:.4g}, {total[1]:.4g})." if total else self.without_total,
            f"Verdict: {_VERDICTS['unsound'] if unmet else _VERDICTS[self.verdict]} {self.because}",
            *([f"This run breaks what the claim assumes: {'; '.join(unmet)}."] if unmet else []),
            f"Assumes: {'; '.join(self.assumptions)}.",
            *(self._exact_total(asked, total) if self.verdict == "sound" and not unmet else []),
            f"Use instead: {self.instead}",
        ]
        return "\n".join(lines)

    @staticmethod
    def _exact_total(asked: Asked, total: tuple[float, float] | None) -> list[str]:
        """What the whole run costs exactly, if its assumptions hold."""
        mu = dp_admm_exact_mu(asked.rounds, asked.epsilon, asked.delta)
        exact = gaussian_epsilon(mu, asked.delta) if mu > 0 else 0.0
        printed = f"{math.ceil(exact * 1e3) / 1e3:.3f}".rstrip("0").rstrip(".")  # up: print must not make it better
        lines = [f"Exact for {asked.rounds} rounds, if all of that holds: ({printed}, {asked.delta:g})."]
        if asked.epsilon > 1:  # the classical Gaussian mechanism is no theorem there, and false from about 8 on
            lines.append(
                f"But epsilon = {asked.epsilon:g} > 1 per round is outside the theorem: only the exact total counts."
            )
        if total and exact > total[0]:
            lines.append("The paper's total is too small here: only the exact total counts.")
        return lines


def dp_admm_exact_mu(rounds: int, epsilon: float, delta: float) -> float:
    """The mu of `rounds` Gaussian mechanisms with the classical noise: sqrt(rounds) epsilon/sqrt(2 ln(1.25/delta))."""
    check.whole("dp_admm_exact_mu", at_least=0, rounds=rounds)
    return math.sqrt(rounds) / gaussian_factor(epsilon, delta)

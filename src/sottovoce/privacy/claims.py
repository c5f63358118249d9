"""What each paper says its own noise promises, and what that promise is worth.

`claims.toml` has one table per method: the statement, its assumptions, whom it is meant to protect against, and our
verdict. A verdict is "sound" only where a proof stands behind it, and then only under the assumptions listed with it.
Every number in a `because` is recomputed by `tests/privacy/test_claims.py`. The formulas are in
`privacy/paper_noise.py`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from string import Template
from typing import Annotated, Literal

from sottovoce.core import check
from sottovoce.core.files import packaged_text
from sottovoce.core.toml import parse_toml
from sottovoce.privacy import paper_noise
from sottovoce.privacy.accounting.gaussian import gaussian_epsilon

Verdict = Literal["sound", "unsound", "not checkable"]
_VERDICTS: dict[Verdict, str] = {
    "sound": "sound for epsilon <= 1 per round, under the assumptions below.",
    "unsound": "UNSOUND: no guarantee.",
    "not checkable": "not checkable: no guarantee.",
}


@dataclass(frozen=True)
class Asked:
    """What a published run asked for; the two rates matter to FedSPD-DP only (p and q of (21))."""

    epsilon: check.Positive
    delta: Annotated[float, check.Interval(0, 1, closed=("low",))]
    rounds: check.WholeOrZero
    data_rate: float | None = None
    client_rate: float = 1.0

    def __post_init__(self) -> None:
        check.fields(self, "describe")


@dataclass(frozen=True)
class PaperClaim:
    """One paper's promise and what it is worth.

    The verdict "sound" also says that a run, under `assumptions`, is exactly the Gaussian mechanism of the noise that
    `gaussian_factor` sets, once a round.
    """

    method: str
    paper: str
    statement: str
    assumptions: Sequence[str]
    observer: str
    verdict: Verdict
    because: str
    instead: str
    without_total: str = "The paper states no total for a whole run."
    span: str = "per round"
    pure: bool = False

    def total(self, asked: Asked) -> tuple[float, float] | None:
        """The paper's own (epsilon, delta) for a whole run; None where it states none."""
        return _TOTALS[self.method](asked) if self.method in _TOTALS else None

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
        mu = paper_noise.dp_admm_exact_mu(asked.rounds, asked.epsilon, asked.delta)
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


def _fedspd_total(asked: Asked) -> tuple[float, float] | None:
    if asked.data_rate is None or asked.data_rate >= 1:
        return None
    return paper_noise.fedspd_total(asked.epsilon, asked.rounds, asked.data_rate, asked.client_rate), asked.delta


_TOTALS: dict[str, Callable[[Asked], tuple[float, float] | None]] = {
    "dp-admm": lambda a: (paper_noise.moments_total_as_printed(a.rounds, a.epsilon, a.delta), a.delta),
    "dp-sgd": lambda a: (paper_noise.moments_total(a.rounds, a.epsilon, a.delta), a.delta),
    "fedspd-dp": _fedspd_total,
    "fed-plt": lambda a: (a.epsilon, a.delta),
    "admm-sharing": lambda a: paper_noise.sharing_total(a.rounds, a.epsilon, a.delta, a.delta),
}


def _read_claims() -> dict[str, PaperClaim]:
    text = packaged_text("privacy", "claims.toml")
    shared = parse_toml(text, "claims.toml").pop("shared")
    tables = parse_toml(Template(text).substitute(shared), "claims.toml")
    return {method: PaperClaim(method, **table) for method, table in tables.items() if method != "shared"}


CLAIMS = _read_claims()


def describe(method: str, epsilon: float, delta: float, rounds: int, unmet: Sequence[str] = (), **rates: float) -> str:
    """The text a `Published` run prints: the paper's claim in numbers, then what it is worth and what to use instead.

    A method without a recorded claim is not refused: its run is over, and the text must say that nothing protects it.
    `unmet` are assumptions of the claim that this run is known to break: then the verdict is "no guarantee".
    `rates` are `data_rate` and `client_rate` of `Asked`.
    """
    asked = Asked(epsilon, delta, rounds, **rates)
    claim = CLAIMS.get(method)
    if claim is None:
        return f"{method}: no privacy claim is recorded for its published noise. Treat the run as not private."
    return claim.describe(asked, unmet)

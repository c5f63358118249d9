"""What may be said about a run: a number with everything that makes it mean something, or that there is none."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sottovoce.core.algorithm import Mode
from sottovoce.privacy.modes import NoPrivacy, Privacy, Published

OBSERVER = "the server and anyone else who sees every message and the model"
NOT_COVERED = (
    "hyper-parameters, clip norms, encodings, scalers and stopping times that were chosen by looking at private data",
    "several records of one person: one record is the unit; k of them cost k times the epsilon and more than k deltas",
    "training losses and accuracies on private rows: the history of a simulation shows them, a deployment must not",
    "the number of records of each client",
    "refusals: that labels and row bounds passed their checks, and that local solvers reached their certificates",
    "timing and message sizes",
)
_UNITS = {
    ("record", "replace-one"): "one record of one client, replaced by any other",
    ("record", "add-remove"): "one record of one client, there or blank (how many there are is public)",
    ("client", "replace-one"): "one whole client, its data replaced by any other",
}


@dataclass(frozen=True)
class Guarantee:
    """The privacy statement of one run. `epsilon` is None when no proof supports any number."""

    mode: Mode
    text: str
    epsilon: float | None = None
    delta: float | None = None
    unit: str = ""
    observer: str = ""
    accountant: str = ""
    noise: str = ""
    epsilon_of_client: tuple[float, ...] = ()
    not_covered: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text

    @property
    def short(self) -> str:
        """For a table: the number with its unit and observer."""
        if self.epsilon is None:
            return "none" if self.mode == "none" else "none proven"
        unit = "client" if "whole client" in self.unit else "record"
        simulated = ", simulated noise" if self.noise.startswith("simulation") else ""
        return f"{self.epsilon:.4g} (δ={self.delta:g}) per {unit}, server sees all messages{simulated}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def state_guarantee(
    privacy: Privacy,
    method: str,
    rounds: int,
    epsilons: np.ndarray | None = None,
    accountant: str = "",
    lasting: bool = False,
    row_bound: float | None = None,
    claim_terms: dict[str, Any] | None = None,
) -> Guarantee:
    """The statement for a finished run.

    `epsilons` are what the ledger says was spent, per client (worst run); `lasting`: in files that outlive the run.
    `row_bound`: where the proof needs that no row is longer, for a neighbour neither.
    """
    if isinstance(privacy, NoPrivacy):
        return Guarantee("none", "No privacy: exact answers were sent in the clear.")
    if isinstance(privacy, Published):
        from sottovoce.privacy import claims

        terms = claim_terms or {}
        return Guarantee("published", claims.describe(method, privacy.epsilon, privacy.delta, rounds, **terms))
    assert epsilons is not None
    worst = float(epsilons.max())
    unit = _UNITS[privacy.unit, privacy.relation]
    if row_bound is not None:
        unit += f", no row longer than {row_bound:g}"
    noise = {
        "seeded": "simulation: pseudo-random, repeatable, in floating point; this holds for the mechanism, not against "
        "someone who knows the seed, and not for several runs of the same settings and seed on different data",
        "secure": "discrete noise from the operating system's generator",
    }[privacy.noise]
    shares = "" if np.ptp(epsilons) < 1e-12 else f" (the least asked client: {epsilons.min():.4g})"
    span = "this and all earlier runs in the clients' ledgers" if lasting else "the whole run"
    text = (
        f"({worst:.6g}, {privacy.delta:g})-differential privacy{shares} for {unit}, over {span}, against "
        f"{OBSERVER}. Accountant: {accountant}. Noise: {noise}. Not covered: {'; '.join(NOT_COVERED)}."
    )
    return Guarantee(
        mode="proven",
        text=text,
        epsilon=worst,
        delta=privacy.delta,
        unit=unit,
        observer=OBSERVER,
        accountant=accountant,
        noise=noise,
        epsilon_of_client=tuple(float(value) for value in epsilons),
        not_covered=NOT_COVERED,
    )

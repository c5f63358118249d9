"""What may be said about a run: a number with everything that makes it mean something, or that there is none."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from sottovoce.core.algorithm import Mode
from sottovoce.privacy.modes import NoPrivacy, Privacy, ProvenColumns, Published

OBSERVER = "the server and anyone else who sees every message and the model"
NOT_COVERED = (
    "hyper-parameters, clip norms, encodings, scalers and stopping times that were chosen by looking at private data",
    "several records of one person: one record is the unit; k of them cost k times the epsilon and more than k deltas",
    "training losses and accuracies on private rows: the history of a simulation shows them, a deployment must not",
    "the number of records of each client",
    "refusals: that labels and row bounds passed their checks",
    "timing and message sizes",
)
LABELS_FOUND = (
    "the set of class labels: it was read off the private labels; declare it (classes=[...] of an estimator, labels = "
    "[...] in a run file)"
)
ONE_OWNER = (
    "owners among themselves: groups was not given, so all rows were taken to be one owner's, who adds noise once for "
    "all of them"
)
TEST_SET_ASIDE = (
    "losses and accuracies on test rows: these were set aside from the owners' own rows, and the numbers are exact and "
    "in no budget"
)
_NOISE = {
    "seeded": "simulation: pseudo-random, repeatable, in floating point; this holds for the mechanism, not against "
    "someone who knows the seed, and not for several runs of the same settings and seed on different data",
    "secure": "discrete noise from the operating system's generator",
}
_UNITS = {
    ("record", "replace-one"): "one record of one client, replaced by any other",
    ("record", "add-remove"): "one record of one client, there or blank (how many there are is public)",
    ("client", "replace-one"): "one whole client, its data replaced by any other",
}


@dataclass(frozen=True)
class Guarantee:
    """The privacy statement of one run. `epsilon` is None when no proof supports any number.

    Examples
    --------
    >>> import sottovoce as sv
    >>> fed = sv.Federation.from_arrays([[1.0], [-1.0]] * 50, [1, -1] * 50, groups=[0, 0, 1, 1] * 25, row_bound=1.0)
    >>> privacy = sv.Proven(epsilon=1.0, delta=1e-3, clip=1.0)
    >>> goal = sv.Objective(sv.Logistic(), sv.L2(0.1))
    >>> said = sv.train(sv.DPADMM(), fed, goal, rounds=5, privacy=privacy, seed=0, engine="numpy").guarantee
    >>> round(said.epsilon, 6), said.delta, said.unit
    (1.0, 0.001, 'one record of one client, replaced by any other')
    >>> len(said.not_covered) > 3
    True
    """

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
        unit = short_unit(self.unit)
        simulated = ", simulated noise" if self.noise.startswith("simulation") else ""
        return f"{self.epsilon:.4g} (δ={self.delta:g}) per {unit}, server sees all messages{simulated}"

    def leaving_out(self, *more: str) -> "Guarantee":
        """The same statement, with more that it does not cover. Where nothing is guaranteed, nothing is left out."""
        if self.epsilon is None or not more:
            return self
        text = f"{self.text.removesuffix('.')}; {'; '.join(more)}."
        return replace(self, text=text, not_covered=(*self.not_covered, *more))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def short_unit(unit: str) -> str:
    """The unit of a guarantee in one word."""
    words = ("column of", "record", "client", "party")  # the smallest that is named
    return next(word for word in words if f"one {word}" in unit.replace("whole ", "")).removesuffix(" of")


UNKNOWN = (
    "No guarantee is stated: of a client that took part neither what it spent nor its limit is known. Its own ledger "
    "has the number."
)


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
    if not np.isfinite(worst):
        return Guarantee("proven", UNKNOWN)
    unit = _UNITS[privacy.unit, privacy.relation]
    if row_bound is not None:
        unit += f", no row longer than {row_bound:g}"
    noise = _NOISE[privacy.noise]
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


_COLUMN_UNITS = {
    "party": "all columns of one party, replaced by any others",
    "column": "one column of one party, replaced by any other",
    "record": "one record's entries at one party, replaced by any others",
}
_NOT_COVERED_COLUMNS = (
    *(text for text in NOT_COVERED if not text.startswith("the number of records")),
    "which samples the parties have in common, how many there are, and how many columns each party has",
    "losses and accuracies of rounds before the last: the models they belong to were never released",
)


def state_columns_guarantee(
    privacy: ProvenColumns,
    epsilons: np.ndarray,
    accountant: str,
    together: float,
    predicts: bool,
    lasting: bool,
    on_labels: float | None = None,
) -> Guarantee:
    """The statement for a finished run over split columns.

    `epsilons` are what each party spent; `together` what all of them spent on a record that changes at every party;
    `on_labels` what their holder spent on the labels, if that is more than one run costs.
    """
    on_labels = privacy.label_epsilon if on_labels is None else on_labels
    worst, parties = float(epsilons.max()), len(epsilons)
    if not np.isfinite(worst):
        return Guarantee("proven", UNKNOWN)
    unit = _COLUMN_UNITS[privacy.unit]
    for what, bound in (("column", privacy.column_bound), ("row", privacy.row_bound)):
        if bound is not None:
            unit += f" ({what}s longer than {bound:g} count as scaled down to that)"
    span = "this and all earlier runs in the parties' ledgers" if lasting else "the whole run"
    joint = ""
    if privacy.unit == "record" and parties > 1:
        joint = f" For a record that changes at all {parties} parties: ({together:.6g}, {privacy.delta:g})."
    if on_labels is None:
        labels = (
            " Labels are NOT protected, and the broadcast gives them away: the sign of -y_i, the dual variable of "
            "sample i, is its label."
        )
    else:
        labels = (
            f" Labels: ({on_labels:.6g}, 0) for one label, by randomised response before training; for a "
            "record with its label the epsilons add up."
        )
    scores = "scores of new rows by the noisy models are covered" if predicts else "no model was released"
    noise = _NOISE[privacy.noise]
    not_covered = _NOT_COVERED_COLUMNS
    text = (
        f"({worst:.6g}, {privacy.delta:g})-differential privacy of features for {unit}, over {span} ({scores}), "
        f"against {OBSERVER}, the other parties included.{joint}{labels} Accountant: {accountant}. Noise: {noise}. "
        f"Not covered: {'; '.join(not_covered)}."
    )
    return Guarantee(
        mode="proven",
        text=text,
        epsilon=worst,
        delta=privacy.delta,
        unit=unit,
        observer=f"{OBSERVER}, the other parties included",
        accountant=accountant,
        noise=noise,
        epsilon_of_client=tuple(float(value) for value in epsilons),
        not_covered=not_covered if on_labels is not None else (*not_covered, "labels"),
    )

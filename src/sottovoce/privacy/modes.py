"""The one switch: what the oracle answers, what happens to an upload, and what is printed with the result."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from sottovoce.core import check
from sottovoce.core.algorithm import Mode


@dataclass(frozen=True)
class NoPrivacy:
    """Exact answers, plain uploads, and a result that says "no privacy"."""

    mode: ClassVar[Mode] = "none"


@dataclass(frozen=True)
class Published:
    """The noise a paper states, per round, to reproduce its figures. Printed with the paper's claim and our verdict.

    Parameters
    ----------
    epsilon, delta
        What the paper's mechanism is asked to promise *per round* (Fed-PLT's: for the whole run).
    clip
        Bound on one record's gradient, enforced by clipping. None: the bound the loss and the rows have by
        themselves (as the papers assume).
    """

    epsilon: float
    delta: float = 0.0
    clip: float | None = None
    mode: ClassVar[Mode] = "published"

    def __post_init__(self) -> None:
        check.positive("Published", epsilon=self.epsilon)
        check.non_negative("Published", delta=self.delta)
        check.require(self.delta < 1, "Published", "delta must lie in [0, 1)", self.delta)
        if self.clip is not None:
            check.positive("Published", clip=self.clip)


@dataclass(frozen=True)
class Proven:
    """A total (epsilon, delta) per unit that a proof supports, for an observer who sees every message.

    Parameters
    ----------
    epsilon, delta
        The whole budget of each client for the whole run. The noise follows from it.
    clip
        Bound on one record's gradient (unit "record") or on one upload's distance from a public centre
        (unit "client"), enforced by clipping.
    unit
        "record": one row of one client. "client": everything a client has.
    relation
        "replace-one": neighbours differ in the content of one record. "add-remove": one record is there or is a
        blank that contributes nothing; how many records there are is public in both. Random batches are drawn with
        fixed size for the first and record by record (Poisson) for the second.
    mechanism
        "gaussian", or "laplace" for pure epsilon (delta = 0; gradients are then clipped in the L1 norm).
    noise
        "seeded": reproducible, for simulation and tests; the guarantee says so. "secure": discrete noise from the
        operating system's generator.
    participations
        The most rounds one client answers in; afterwards it stays silent. None: as many as it can be asked in.
    """

    epsilon: float
    delta: float
    clip: float
    unit: Literal["record", "client"] = "record"
    relation: Literal["replace-one", "add-remove"] = "replace-one"
    mechanism: Literal["gaussian", "laplace"] = "gaussian"
    noise: Literal["seeded", "secure"] = "seeded"
    participations: int | None = None
    mode: ClassVar[Mode] = "proven"

    def __post_init__(self) -> None:
        check.positive("Proven", epsilon=self.epsilon, clip=self.clip)
        check.one_of("Proven", "unit", self.unit, ("record", "client"))
        check.one_of("Proven", "relation", self.relation, ("replace-one", "add-remove"))
        if self.unit == "client":
            whole = self.relation == "replace-one"
            check.require(whole, "Proven", "relation must be 'replace-one' for unit 'client'", self.relation)
        check.one_of("Proven", "mechanism", self.mechanism, ("gaussian", "laplace"))
        check.one_of("Proven", "noise", self.noise, ("seeded", "secure"))
        if self.mechanism == "laplace":
            check.require(
                self.delta == 0, "Proven", "delta must be 0 with Laplace noise (it is pure epsilon)", self.delta
            )
            check.require(self.unit == "record", "Proven", "Laplace noise is offered for unit 'record' only", self.unit)
        else:
            check.between("Proven", 0, 1, delta=self.delta)
        if self.participations is not None:
            check.whole("Proven", participations=self.participations)


Privacy = NoPrivacy | Published | Proven

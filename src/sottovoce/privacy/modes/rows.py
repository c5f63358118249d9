"""`Proven`: a promise to the records or the clients of a federation whose rows are split."""

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, cast

import numpy as np

from sottovoce.core import check
from sottovoce.core.contract import Asks, Layout, Mode, Part
from sottovoce.core.plain import Json
from sottovoce.core.vouched import derived
from sottovoce.privacy import calibration
from sottovoce.privacy.batches import batch_rates
from sottovoce.privacy.calibration import AnswerShape, is_of_kind
from sottovoce.privacy.events import Event, Relation
from sottovoce.privacy.modes.base import PrivacyMode

LEAST_CLIP, LARGEST_CLIP = 1e-60, 1e60
LATER = {"later": True}  # of fields that came later: at their defaults, noise is bound to the same text as before


@dataclass(frozen=True)
class Proven(PrivacyMode):
    """A total (epsilon, delta) per unit that a proof supports, for a stated observer.

    Parameters
    ----------
    epsilon, delta
        The whole budget of each client for the whole run. The noise follows from it.
    clip
        Bound on one record's gradient (unit "record") or on one upload's distance from a public centre
        (unit "client"), enforced by clipping. Left out: for unit "record", the longest gradient that a record can have
        at a model of zeros, by the loss and the promised bound on rows (1/2 for a logistic loss and rows of length 1).
    unit
        "record": one row of one client. "client": everything a client has.
    relation
        "replace-one": neighbours differ in the content of one record. "add-remove": one record is there or is a
        blank that contributes nothing; how many records there are is public in both. Random batches are drawn with
        fixed size for the first and record by record (Poisson) for the second.
    mechanism
        "gaussian", or "laplace" for pure epsilon (delta = 0; gradients are then clipped in the L1 norm).
    noise
        "seeded": reproducible, for simulation and tests; the guarantee says so. "discrete": the same, but integers on
        a grid: exactly what "secure" would add if its bits were these. "secure": discrete noise from the
        operating system's generator.
    participations
        The most rounds one client answers in; afterwards it stays silent. None: as many as it can be asked in.
    observer
        "server": somebody who sees every message. "sums": somebody who sees sums of messages only, because clients add
        masks that cancel in the sum. Each client then adds less noise: that of all honest ones together hides a record.
        Noise is discrete ("seeded" means "discrete" here), and methods must need no more than sums (`doors/sums.py`).
    least
        "sums": a sum is opened only over at least so many clients. None: all of them.
    colluders
        "sums": so many of the other clients may share all they know with the server, so their noise hides nothing.
        None: a third of all clients, rounded up. 0: all of them are trusted for that.
    roster
        "sums": how many clients there are. Left out, it follows from the data.

    Examples
    --------
    >>> from sottovoce import Proven
    >>> Proven(epsilon=1.0, delta=1e-5, clip=1.0).unit
    'record'
    >>> Proven(epsilon=1.0, delta=1e-5, clip=0.0)
    Traceback (most recent call last):
        ...
    sottovoce.core.check.InvalidInput: Proven: clip must be > 0, got 0.0
    >>> sums = Proven(epsilon=1.0, delta=1e-5, observer="sums").among(10)
    >>> sums.least, sums.colluders, sums.honest
    (10, 4, 6)
    """

    epsilon: check.Positive
    delta: float
    clip: float = cast(float, None)  # settled by `clipping`
    unit: Literal["record", "client"] = "record"
    relation: Literal["replace-one", "add-remove"] = "replace-one"
    mechanism: Literal["gaussian", "laplace"] = "gaussian"
    noise: Literal["seeded", "secure", "discrete"] = "seeded"
    participations: check.Whole | None = None
    observer: Literal["server", "sums"] = field(default="server", metadata=LATER)
    least: check.Whole | None = field(default=None, metadata=LATER)
    colluders: check.WholeOrZero | None = field(default=None, metadata=LATER)
    roster: check.Whole | None = field(default=None, metadata=LATER)
    mode: ClassVar[Mode] = "proven"
    layouts: ClassVar[frozenset[Layout]] = frozenset({"rows"})
    promise = derived(lambda self: self.unit)
    budget = derived(lambda self: (self.epsilon, self.delta))
    cut = derived(lambda self: ("clip", self.clip))
    sums = derived(lambda self: self.observer == "sums")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.has_clip:
            check.positive("Proven", clip=self.clip)
            rule = f"clip must be from {LEAST_CLIP:g} to {LARGEST_CLIP:g}, so that noise is never rounded to 0 or inf"
            check.require(LEAST_CLIP <= self.clip <= LARGEST_CLIP, "Proven", rule, self.clip)
        whole = self.unit == "record" or self.relation == "replace-one"
        check.require(whole, "Proven", "relation must be 'replace-one' for unit 'client'", self.relation)
        if self.mechanism == "laplace":
            rule = "delta must be 0 with Laplace noise (it is pure epsilon)"
            check.require(self.delta == 0, "Proven", rule, self.delta)
            check.require(self.unit == "record", "Proven", "Laplace noise is offered for unit 'record' only", self.unit)
            rule = "Laplace noise is 'seeded' or 'secure'; discrete noise from a seed is Gaussian"
            check.require(self.noise != "discrete", "Proven", rule, self.noise)
        else:
            check.between("Proven", 0, 1, delta=self.delta)
        self._check_sums()

    def _check_sums(self) -> None:
        """What Theorem 1 of `doors/sums.py` needs of the numbers of clients."""
        if not self.sums:
            stated = [name for name in ("least", "colluders", "roster") if getattr(self, name) is not None]
            rule = "least, colluders and roster go with observer='sums'"
            check.require(not stated, "Proven", rule, ", ".join(stated))
            return
        rule = "observer 'sums' needs Gaussian noise: Laplace noise of several clients does not add up to such noise"
        check.require(self.mechanism == "gaussian", "Proven", rule, self.mechanism)
        if self.noise == "seeded":
            object.__setattr__(self, "noise", "discrete")  # sums are of whole numbers
        least, colluders, roster = self.least, self.colluders, self.roster
        if least is None or colluders is None:
            rule = "roster goes with least and colluders: leave it out, it follows from the data"
            check.require(roster is None, "Proven", rule)
            return
        check.require(colluders < least, "Proven", f"colluders must be fewer than least ({least})", colluders)
        if roster is None:
            return
        check.require(least <= roster, "Proven", f"least must be at most the number of clients ({roster})", least)
        quorum, hint = (roster + colluders) // 2 + 1, "State fewer colluders, or find more clients"
        rule = f"with {colluders} colluders, {quorum} of the clients must agree on who is in a sum, and there are fewer"
        check.require(quorum <= roster, "Proven", rule, roster, hint)

    @derived
    def honest(self) -> int:
        """h: so many honest clients are in every sum that is opened. Known once `among` was told how many there are."""
        if not self.sums:
            return 1
        rule = "observer 'sums' needs to know how many clients there are: use among(...)"
        check.require(self.least is not None and self.colluders is not None, "Proven", rule)
        return cast(int, self.least) - cast(int, self.colluders)

    def among(self, clients: int) -> "Proven":
        if not self.sums:
            return self
        same = self.roster is None or self.roster == clients
        check.require(same, "Proven", f"roster must be the number of clients ({clients})", self.roster)
        least = clients if self.least is None else self.least
        colluders = -(-clients // 3) if self.colluders is None else self.colluders
        return replace(self, least=least, colluders=colluders, roster=clients)

    @property
    def has_clip(self) -> bool:
        """Whether a clip norm was given, or has followed from the loss and the rows."""
        return cast(float | None, self.clip) is not None

    def clipping(self, slope: float, row_bound: float | None) -> "Proven":
        if self.has_clip:
            return self
        known = self.unit == "record" and self.mechanism == "gaussian" and row_bound is not None and slope < np.inf
        rule = "needs clip, unless it follows from the loss and a bound on rows (unit 'record', Gaussian noise)"
        check.require(known, "Proven", rule, hint="Give clip=..., or promise a row_bound")
        assert row_bound is not None
        return replace(self, clip=slope * row_bound)

    @property
    def counted_relation(self) -> Relation:
        """The neighbouring relation that the budget is counted for."""
        return "replace-client" if self.unit == "client" else self.relation

    def counts(self, asks: Asks, rounds: int, most: int | None) -> list[int]:
        times = min(number for number in (rounds, most, self.participations) if number is not None)
        check.whole("Proven", participations=times)
        return [part.given(rounds, times) for part in self.parts(asks)]

    def parts(self, asks: Asks) -> tuple[Part, ...]:
        """Where whole clients are hidden, all uploads are alike."""
        if self.unit == "record":
            return asks.parts
        return (replace(asks.parts[0], answers=asks.releases, batch=0, last=asks.parts[-1].last, share=1.0),)

    def kind_of_answer(self, part: Part, sizes: np.ndarray, row_bound: float | None, shape: AnswerShape | None) -> Json:
        """What an answer is, but for how much noise there is: the other arguments of its `Event`.

        Batches follow from the relation: drawn record by record (Poisson) for add-remove, of fixed size for
        replace-one; the accountants for the two are not interchangeable. With unequal clients the event is that of the
        client whose batch is the largest share, which costs the most. Only single gradients gain from random batches.
        Discrete Gaussian noise is accounted by Theorem 2 if `shape` is known, else by zCDP, which has nothing to say of
        random batches.
        """
        mechanism = "discrete-gaussian" if self.mechanism == "gaussian" and self.on_grid else self.mechanism
        bound = calibration.bound_in_force(self, part, row_bound)
        kind: Json = {"mechanism": mechanism, "relation": self.counted_relation, "row_bound": bound}
        if mechanism == "discrete-gaussian" and shape is not None:
            kind |= calibration.grid_numbers(self, part, shape)
            if self.sums:
                kind["contributors"] = self.honest
        if self.unit == "record" and part.kind == "descent" and mechanism == "gaussian":
            kind["mechanism"] = "gaussian-chain"
        return kind | self._batches(part, sizes, kind)

    def _batches(self, part: Part, sizes: np.ndarray, kind: Json) -> Json:
        """How the batches of such an answer are drawn; nothing where all records take part."""
        if not self._draws_batches(part):
            return {}
        poisson = self.relation == "add-remove"
        rates = batch_rates(part.batch, sizes, whole=not poisson)
        worst = int(np.argmax(rates))
        if rates[worst] == 1:
            return {}
        proven = kind["mechanism"] == "gaussian" or "coordinates" in kind
        rule = f"no proof for {kind['mechanism']} noise on random batches"
        check.require(proven, "Proven", rule, hint="Use batch=0, or seeded noise", error=check.NoGuarantee)
        if poisson:
            return {"sampling": "poisson", "rate": float(rates[worst])}
        size = int(sizes[worst])
        return {"sampling": "fixed-size", "batch": round(rates[worst] * size), "size": size}

    def _draws_batches(self, part: Part) -> bool:
        return bool(part.batch) and part.kind == "gradient" and self.unit == "record"

    def costs(self, asks: Asks, part: Part) -> int:
        return asks.releases if self.unit == "client" else part.answers

    def is_answer(self, event: Event, part: Part, size: int, row_bound: float | None, shape: AnswerShape) -> bool:
        kind = self.kind_of_answer(part, np.array([size]), row_bound, shape)
        # Whether batches are drawn also depends on the other clients' sizes: to be charged for a full one costs more.
        drawn = "poisson" if self.relation == "add-remove" else "fixed-size"
        same = is_of_kind(event, kind, "mechanism", "relation", "sensitivity", "coordinates", "row_bound")
        return same and event.sampling in ({"full", drawn} if self._draws_batches(part) else {"full"})

"""What may be said about a run: a number with everything that makes it mean something, or that there is none.

A `Guarantee` holds the number, the theorem behind it with its constants, and every assumption with who answers for it
(`theorems.py`). Its text is made from these fields by `words`, so that `sottovoce verify` can make it again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, cast

import numpy as np

from sottovoce.core.contract import Mode
from sottovoce.core.plain import Json
from sottovoce.privacy import guarantee_words as say
from sottovoce.privacy import theorems
from sottovoce.privacy.guarantee_words import short_unit
from sottovoce.privacy.modes import PrivacyMode, Proven, ProvenColumns, Published
from sottovoce.privacy.theorems import CODE, Assumption, Grounds
from sottovoce.privacy.theorems import Statement as Statement

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
UNKNOWN = (
    "No guarantee is stated: of a client that took part neither what it spent nor its limit is known. Its own ledger "
    "has the number."
)
NO_PRIVACY = "No privacy: exact answers were sent in the clear."


@dataclass(frozen=True)
class Guarantee:
    """The privacy statement of one run. `epsilon` is None when no proof supports any number.

    Parameters
    ----------
    text
        The whole statement. "": made from the other fields.
    epsilon, delta, unit, observer, noise
        The number, and what makes it mean something.
    accountant
        How the cost of all answers was added up.
    epsilon_of_client
        What each client (or party) spent.
    theorem, proof, constants, assumptions
        What the number rests on: the theorem, where it is proved, its constants, and who answers for what it assumes.
    span
        Which runs the number is over.
    models, epsilon_of_all
        How many models the result holds. The number is for one of them; `epsilon_of_all` is what all cost together.
    split, together, label_epsilon, predicts
        Where columns are split: the number of parties, the epsilon of a record that changes at all of them (None: not
        known), that of a label (None: not protected), and whether there is a model that new rows are scored with.
    not_covered
        What the number says nothing about.

    Examples
    --------
    >>> import sottovoce as sv
    >>> fed = sv.Federation.from_arrays([[1.0], [-1.0]] * 50, [1, -1] * 50, groups=[0, 0, 1, 1] * 25, row_bound=1.0)
    >>> privacy = sv.Proven(epsilon=1.0, delta=1e-3, clip=1.0)
    >>> goal = sv.Objective(sv.Logistic(), sv.L2(0.1))
    >>> stated = sv.train(sv.DPADMM(), fed, goal, rounds=5, privacy=privacy, seed=0, engine="numpy").guarantee
    >>> round(stated.epsilon, 6), stated.delta, stated.unit
    (1.0, 0.001, 'one record of one client, replaced by any other')
    >>> stated.theorem
    'noisy clipped gradients, adaptive composition of Gaussian mechanisms'
    >>> stated.assumptions[0]
    Assumption(what="each record's gradient is cut to L2 norm 1", answers='checked in code')
    >>> len(stated.not_covered) > 3
    True
    """

    mode: Mode
    text: str = ""
    epsilon: float | None = None
    delta: float | None = None
    unit: str = ""
    observer: str = ""
    accountant: str = ""
    noise: str = ""
    epsilon_of_client: tuple[float, ...] = ()
    not_covered: tuple[str, ...] = ()
    span: str = ""
    theorem: str = ""
    proof: str = ""
    constants: Mapping[str, Any] = field(default_factory=Json)
    assumptions: tuple[Assumption, ...] = ()
    models: int = 1
    epsilon_of_all: float | None = None
    split: int = 0
    together: float | None = None
    label_epsilon: float | None = None
    predicts: bool = True

    def __post_init__(self) -> None:
        if not self.text and self.epsilon is not None:
            object.__setattr__(self, "text", words(self))

    def __str__(self) -> str:
        return self.text

    @property
    def short(self) -> str:
        """For a table: the number with its unit and observer."""
        if self.epsilon is None:
            return "none" if self.mode == "none" else "none proven"
        unit = short_unit(self.unit)
        products = self.theorem.startswith("noisy products")
        sees = "server sees sums of products only" if products else "server sees all messages"
        if self.of_sums:
            sees = "server sees all messages of this run, and sums only of earlier ones"
            if "colluders" in self.constants:
                sees = f"server sees sums only, {self.constants['colluders']} others may share what they know with it"
        simulated = ", simulated noise" if self.noise.startswith("simulation") else ""
        one = ""
        if self.models > 1:
            every = "unknown" if self.epsilon_of_all is None else f"{self.epsilon_of_all:.4g}"
            one = f" for one of {self.models} models (all of them: {every})"
        return f"{self.epsilon:.4g} (δ={self.delta:g}) per {unit}{one}, {sees}{simulated}"

    @property
    def of_sums(self) -> bool:
        """Whether it is about an observer who sees only sums of messages, of this or of earlier runs."""
        return say.of_sums(self.observer)

    def leaving_out(self, *more: str) -> "Guarantee":
        """The same statement, with more that it does not cover. Where nothing is guaranteed, nothing is left out."""
        if self.epsilon is None or not more:
            return self
        return replace(self, text="", not_covered=(*self.not_covered, *more))

    def to_dict(self) -> Json:
        """Plain values, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, packed: Mapping[str, object]) -> "Guarantee":
        """What `to_dict` gave, as it was: a text that does not follow from the fields stays what it is."""
        values: Json = {
            name: tuple(cast(list[object], one)) if isinstance(one, list) else one for name, one in packed.items()
        }
        values["assumptions"] = tuple(Assumption(**one) for one in values.get("assumptions", ()))
        unknown = sorted(values.keys() - {each.name for each in fields(cls)})
        if unknown or not isinstance(values["text"], str) or not values["text"]:
            raise TypeError(f"unknown field {unknown[0]!r}" if unknown else "text is missing")
        return cls(**values)


def words(guarantee: Guarantee) -> str:
    """A guarantee in full, from its fields alone."""
    assert guarantee.epsilon is not None
    assert guarantee.delta is not None
    least = min(guarantee.epsilon_of_client, default=guarantee.epsilon)
    shares = ""
    if not guarantee.split and guarantee.epsilon - least >= 1e-12:
        shares = f" (the least asked client: {least:.4g})"
    of_what, scores = (" of features", " (no model was released)") if guarantee.split else ("", "")
    if guarantee.split and guarantee.predicts:
        scores = " (scores of new rows by the noisy models are covered)"
    masked = guarantee.of_sums or guarantee.constants.get("owners", 1) > 1
    negligible = " + negligible" if masked else ""  # what breaking masks would need
    rests = [f"{one.what} ({one.answers})" for one in guarantee.assumptions if one.answers != CODE]
    sentences = [
        f"({guarantee.epsilon:.6g}, {guarantee.delta:g}{negligible})-differential privacy{of_what}{shares} for "
        f"{guarantee.unit}, over {guarantee.span}{scores}, against {guarantee.observer}.",
        *_several_models(guarantee),
        *_split_columns(guarantee),
        *([f"Theorem: {guarantee.theorem}."] if guarantee.theorem else []),
        f"Accountant: {guarantee.accountant}.",
        f"Noise: {guarantee.noise}.",
        *([f"It rests on: {'; '.join(rests)}."] if rests else []),
        f"Not covered: {'; '.join(guarantee.not_covered)}.",
    ]
    return " ".join(sentences)


def _several_models(guarantee: Guarantee) -> list[str]:
    if guarantee.models == 1:
        return []
    together = "is not known"
    if guarantee.epsilon_of_all is not None:
        together = f"is ({guarantee.epsilon_of_all:.6g}, {guarantee.delta:g})-differential privacy"
    return [
        f"This is for ONE of the {guarantee.models} models that the result holds, and only one may be released: what "
        f"all {guarantee.models} of them cost together {together}."
    ]


def _split_columns(guarantee: Guarantee) -> list[str]:
    if not guarantee.split:
        return []
    sentences: list[str] = []
    if short_unit(guarantee.unit) == "record" and guarantee.split > 1:
        number = "no number is known, a party did not say what it spent"
        if guarantee.together is not None:
            number = f"({guarantee.together:.6g}, {guarantee.delta:g})"
        sentences.append(f"For a record that changes at all {guarantee.split} parties: {number}.")
    if guarantee.label_epsilon is None:
        sentences.append(
            "Labels are NOT protected, and the broadcast gives them away: the sign of -y_i, the dual variable of "
            "sample i, is its label."
        )
    else:
        sentences.append(
            f"Labels: ({guarantee.label_epsilon:.6g}, 0) for one label, by randomised response before training; for a "
            "record with its label the epsilons add up."
        )
    return sentences


# ------------------------------------------------------------------------------------------------------------- stating


def _stated(
    known: Statement, privacy: Proven | ProvenColumns, owners: str, observer: str, grounds: Grounds, **fields: Any
) -> Guarantee:
    """All that rows and columns have in common; `fields` are the others."""
    models, noise = known.charges.repetitions, privacy.noise
    if known.forgotten and not privacy.secret_noise:
        noise = "forgotten discrete" if privacy.on_grid else "forgotten"
    return Guarantee(
        mode="proven",
        epsilon=float(known.epsilons.max()),
        delta=privacy.delta,
        observer=observer,
        accountant=known.accountant,
        noise=say.NOISE[noise],
        epsilon_of_client=tuple(float(value) for value in known.epsilons),
        span=f"this and all earlier runs in the {owners}' ledgers" if known.lasting else "the whole run",
        models=models,
        epsilon_of_all=None if models == 1 or known.of_all is None else float(known.of_all),
        **vars(grounds),
        **fields,
    )


def state_guarantee(
    privacy: PrivacyMode,
    method: str,
    rounds: int,
    known: Statement | None = None,
    claim_terms: Json | None = None,
    **facts: Any,
) -> Guarantee:
    """The statement for a finished run.

    `known` is what the ledgers say, where there is a budget; `claim_terms` what a paper's claim needs; `facts` what
    else is said where columns are split: see `_of_columns`.
    """
    if privacy.mode == "none":
        return Guarantee("none", NO_PRIVACY)
    if privacy.mode == "published":
        from sottovoce.privacy import claims

        promised = cast(Published, privacy)
        text = claims.describe(method, promised.epsilon, promised.delta, rounds, **(claim_terms or {}))
        return Guarantee("published", text)
    if known is None or not np.isfinite(known.epsilons).all():
        return Guarantee("proven", UNKNOWN)
    if known.kinds == ("products",):
        return _of_products(cast(ProvenColumns, privacy), known, **facts)
    if isinstance(privacy, ProvenColumns):
        return _of_columns(privacy, known, **facts)
    return _of_rows(cast(Proven, privacy), known)


def _of_rows(privacy: Proven, known: Statement) -> Guarantee:
    """For rows split between clients."""
    unit = say.UNITS[privacy.unit, privacy.relation]
    events = known.charges.events()
    bounds = [event.row_bound for event in events if event.row_bound]
    if bounds:
        unit += f", no row longer than {min(bounds):g}"  # so all charges hold
    grounds = _merged([theorems.grounds_of_rows(privacy, kind, known) for kind in known.kinds])
    observer = say.observer_of(privacy, events)
    return _stated(known, privacy, "clients", observer, grounds, unit=unit, not_covered=say.NOT_COVERED)


def _of_columns(
    privacy: ProvenColumns,
    known: Statement,
    together: float | None = None,
    predicts: bool = True,
    on_labels: float | None = None,
) -> Guarantee:
    """For columns split between parties.

    `together` is what all parties spent on a record that changes at every one of them; `on_labels` what their holder
    spent on the labels, if that is more than one run costs.
    """
    on_labels = privacy.label_epsilon if on_labels is None else on_labels
    unit = say.COLUMN_UNITS[privacy.unit]
    for what, bound in (("column", privacy.column_bound), ("row", privacy.row_bound)):
        if bound is not None:
            unit += f" ({what}s longer than {bound:g} count as scaled down to that)"
    finite = together is not None and np.isfinite(together) and privacy.unit == "record"
    return _stated(
        known,
        privacy,
        "parties",
        f"{say.OBSERVER}, the other parties included",
        theorems.grounds_of_columns(privacy, known),
        unit=unit,
        not_covered=say.NOT_COVERED_COLUMNS if on_labels is not None else (*say.NOT_COVERED_COLUMNS, "labels"),
        split=len(known.epsilons),
        together=float(together) if finite and together is not None else None,
        label_epsilon=on_labels,
        predicts=predicts,
    )


def _of_products(
    privacy: ProvenColumns, known: Statement, names: Sequence[str] = (), dealers: say.Dealers | None = None
) -> Guarantee:
    """For products of split columns. `names`: of the owners; `dealers`: who deals masks to each pair of them."""
    dealers = say.dealers_of(names) if dealers is None else dealers
    grounds = theorems.grounds_of_products(privacy, known, len(names))
    privacy = privacy if privacy.on_grid else replace(privacy, noise="discrete")  # there is no other on products
    observer, not_covered = say.observer_of_products(names, dealers), say.NOT_COVERED_PRODUCTS
    return _stated(known, privacy, "owners", observer, grounds, unit=say.PRODUCTS_UNIT, not_covered=not_covered)


def _merged(grounds: Sequence[Grounds]) -> Grounds:
    """What a run with several kinds of question rests on: all of it."""
    if len(grounds) == 1:
        return grounds[0]
    sensitivities = "; ".join(dict.fromkeys(str(one.constants["sensitivity"]) for one in grounds))
    return Grounds(
        "; ".join(dict.fromkeys(one.theorem for one in grounds)),
        "; ".join(dict.fromkeys(one.proof for one in grounds)),
        {**grounds[0].constants, "sensitivity": sensitivities},
        tuple(dict.fromkeys(assumption for one in grounds for assumption in one.assumptions)),
    )

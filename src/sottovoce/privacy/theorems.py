"""Which theorem a guarantee rests on, with its constants and assumptions, and who answers for each of these.

The proofs themselves stand beside the code that they are about: `PROOFS` says where.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sottovoce.ledger.charges import Charges
from sottovoce.privacy.events import Event
from sottovoce.privacy.modes import Proven, ProvenColumns

Answers = Literal["checked in code", "promised by the user", "stated by the owner"]
CODE, USER, OWNER = "checked in code", "promised by the user", "stated by the owner"

NOT_KEPT = (
    "earlier answers, charged before ledgers kept such bounds, may rest on a bound on rows that is not known here"
)
_COMPOSED = {
    "gaussian": "adaptive composition of Gaussian mechanisms",
    "gaussian-chain": "adaptive composition of Rényi bounds",
    "discrete-gaussian": "adaptive composition of discrete Gaussian mechanisms (zero-concentrated)",
    "laplace": "adaptive composition of Laplace mechanisms (pure)",
}
_ASKED = {  # kind of question: the theorem, and how far one unit moves an exact answer
    "gradient": ("noisy clipped gradients", "{reach} clip weight"),
    "argmin": (
        "noisy minimisers of strongly convex functions",
        "({reach} clip weight + 2 tol) / (rho + ridge)",
    ),
    "prox-steps": (
        "noisy ends of proximal steps from a public start",
        "recursion of local_runs, from {reach} clip weight",
    ),
    "descent": (
        "ends of noisy contracting steps (shifted divergences)",
        "chain gain of local_runs times {reach} clip weight",
    ),
    "ranges": ("noisy counts of values in public bins", "one record in one bin of every column"),
    "upload": ("clipped uploads around a public centre, whatever state is hidden", "2 clip"),
}
_FITTED = {  # variant and unit of split columns
    ("clip", "party"): ("clipped scores of one party", "2 bound"),
    ("clip", "column"): ("clipped scores of one party", "2 bound"),
    ("clip", "record"): ("clipped scores of one party", "2 bound"),
    ("ridge", "party"): ("scores of a ridge fit, all columns of a party", "|u|"),
    ("ridge", "column"): ("scores of a ridge fit, one column of bounded length", "|u| B^2 / (B^2 + lam/rho)"),
    ("ridge", "record"): ("clipped scores of a ridge fit, one row of bounded length", "record_scores of sensitivity"),
}
PROOFS = {
    "gradient": "sottovoce.privacy.doors.record, RecordDoor",
    "argmin": "sottovoce.privacy.doors.record, RecordDoor",
    "prox-steps": "sottovoce.privacy.local_steps",
    "descent": "sottovoce.privacy.local_steps",
    "ranges": "sottovoce.privacy.ranges",
    "upload": "sottovoce.privacy.doors.record, ClientDoor",
    "clip": "sottovoce.privacy.doors.party, ProvenPartyDoor",
    "ridge": "sottovoce.privacy.sensitivity",
}


@dataclass(frozen=True)
class Assumption:
    """Something that must be true for the number to be, and who answers for it."""

    what: str
    answers: Answers


@dataclass(frozen=True)
class Grounds:
    """What a number rests on."""

    theorem: str = ""
    proof: str = ""
    constants: Mapping[str, Any] = field(default_factory=dict)
    assumptions: tuple[Assumption, ...] = ()


def grounds_of_rows(
    privacy: Proven, kind: str, charges: Charges | None, lasting: bool, deployed: bool, forgotten: bool
) -> Grounds:
    """For rows split between clients; `kind` is what the algorithm asks for (`Asks`)."""
    asked = "upload" if privacy.unit == "client" else kind
    if asked not in _ASKED:
        return Grounds()
    reach = 2 if privacy.relation == "replace-one" else 1
    name, sensitivity = _ASKED[asked]
    event = Event(privacy.mechanism, 1.0) if charges is None else charges.planned[0]
    sampled = event.sampling != "full"
    share = {"poisson": " / rate", "fixed-size": " size / batch"}.get(event.sampling, "")
    constants = {"clip": privacy.clip, "sensitivity": sensitivity.format(reach=reach) + share}
    norm = "L1" if privacy.mechanism == "laplace" else "L2"
    cut = f"each upload is cut to {norm} distance {privacy.clip:g} from a public centre"
    if asked == "ranges":
        cut = "each value counts once, in one public bin"
    elif asked != "upload":
        cut = f"each record's gradient is cut to {norm} norm {privacy.clip:g}"
    assumed = [Assumption(cut, CODE), *_of_all(privacy, charges, lasting, deployed, forgotten)]
    if asked == "argmin":
        assumed.append(Assumption("the loss is convex and of bounded slope, and rows are scaled to that", CODE))
    if asked == "descent":
        assumed.append(Assumption("each local step brings any two points closer", CODE))
    if sampled:
        assumed.append(Assumption("batches are drawn by chance and not told to anyone", CODE))
    assumed += _bounds_on_rows([] if charges is None else charges.events(), deployed)
    theorem = f"{name}{' on secret batches' if sampled else ''}, {_COMPOSED[event.mechanism]}"
    return Grounds(theorem, PROOFS[asked], constants | _numbers(charges), tuple(assumed))


def grounds_of_columns(
    privacy: ProvenColumns, charges: Charges | None, lasting: bool, deployed: bool, forgotten: bool
) -> Grounds:
    """For columns split between parties."""
    name, sensitivity = _FITTED[privacy.variant, privacy.unit]
    constants: dict[str, Any] = {"bound": privacy.bound, "sensitivity": sensitivity}
    for bound in ("column_bound", "row_bound", "score_bound", "model_bound", "label_epsilon"):
        if getattr(privacy, bound) is not None:
            constants[bound] = getattr(privacy, bound)
    what = "scores are clipped as a vector" if privacy.variant == "clip" else "targets are projected to the bound"
    assumed = [Assumption(f"{what} ({privacy.bound:g})", CODE)]
    if privacy.variant == "ridge":
        assumed.append(Assumption("the penalty is a ridge, and rows or columns are cut to their bounds", CODE))
    if privacy.label_epsilon is not None:
        assumed.append(Assumption("labels are randomised once, before anything is asked of them", CODE))
    assumed += _of_all(privacy, charges, lasting, deployed, forgotten)
    event = Event("gaussian", 1.0) if charges is None else charges.planned[0]
    theorem = f"{name}, {_COMPOSED[event.mechanism]}"
    return Grounds(theorem, PROOFS[privacy.variant], constants | _numbers(charges), tuple(assumed))


def _of_all(
    privacy: Proven | ProvenColumns, charges: Charges | None, lasting: bool, deployed: bool, forgotten: bool
) -> list[Assumption]:
    """What every theorem assumes."""
    who: Answers = OWNER if deployed else CODE
    assumed = [Assumption("every answer was charged, and noise added to it, before it left", who)]
    if privacy.noise == "seeded" and not forgotten:
        assumed.append(Assumption("the observer does not know the seed of the noise", USER))
    if lasting:
        assumed.append(Assumption("the ledgers hold all that was ever answered about these records", OWNER))
    if deployed:
        assumed.append(Assumption("each client runs this library as it is, and shows its own ledger", OWNER))
    stated = 0 if charges is None else sum(history.spent() is None for history in charges.histories)
    if stated:
        assumed.append(Assumption(f"{stated} owners showed no ledger: what they state is taken", OWNER))
    return assumed


def _bounds_on_rows(events: Iterable[Event], deployed: bool) -> list[Assumption]:
    """One for each bound that any charge rests on, and one if some charge does not say."""
    bounds = sorted({event.row_bound for event in events if event.row_bound})
    who: Answers = OWNER if deployed else USER
    words = "no row, and no row that could stand in its place, is longer than {:g}"
    said = [Assumption(words.format(bound), who) for bound in bounds]
    return [*said, Assumption(NOT_KEPT, OWNER)] if any(event.row_bound is None for event in events) else said


def _numbers(charges: Charges | None) -> dict[str, Any]:
    """The constants of the noise and of the composition."""
    if charges is None:
        return {}
    event, multipliers = charges.planned[0], [event.noise_multiplier for event in charges.planned]
    numbers: dict[str, Any] = {
        "mechanism": event.mechanism,
        "noise_multiplier": multipliers[0] if len(multipliers) == 1 else multipliers,
        "relation": event.relation,
        "sampling": event.sampling,
        "rounds": charges.rounds,
        "answers": charges.answers(),
    }
    if event.sampling == "poisson":
        numbers["rate"] = event.rate
    if event.sampling == "fixed-size":
        numbers |= {"batch": event.batch, "size": event.size}
    if event.row_bound:
        numbers["row_bound"] = event.row_bound
    return numbers


def shortest_bound(events: Iterable[Event]) -> float | None:
    """The bound on rows with which all of these charges hold; None where none rests on any."""
    return min((event.row_bound for event in events if event.row_bound), default=None)

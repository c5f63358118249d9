"""Which theorem a guarantee rests on, with its constants and assumptions, and who is responsible for each of these.

The proofs themselves stand beside the code that they are about: each `Theorem` says where.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sottovoce.core.toml import packaged_toml
from sottovoce.ledger.charges import Charges
from sottovoce.privacy.events import Event, GridEvent, contributors_of
from sottovoce.privacy.modes import Proven, ProvenColumns

Answers = Literal["checked in code", "promised by the user", "stated by the owner"]
CODE, USER, OWNER = "checked in code", "promised by the user", "stated by the owner"


@dataclass(frozen=True)
class Theorem:
    """A theorem: its name, where its proof stands, and how far one unit moves an exact answer where it says so."""

    name: str
    proof: str
    sensitivity: str = ""


_TABLES = packaged_toml("privacy", "theorems.toml")
_ANSWERS, _SCORES, _COMPOSITIONS = (  # the last ones are about many answers, the others about one
    {key: Theorem(**table) for key, table in _TABLES[about].items()} for about in ("answers", "scores", "compositions")
)
THEOREM_2 = _COMPOSITIONS["grid"]
_SUMS = "sottovoce.privacy.doors.sums"
_PRODUCTS = _ANSWERS["products"]


@dataclass(frozen=True)
class Assumption:
    """Something that the number needs to be true, and who is responsible for it."""

    what: str
    answers: Answers


@dataclass(frozen=True)
class Statement:
    """What a finished run is known to be, from which its guarantee follows.

    Parameters
    ----------
    epsilons
        What the ledgers say was spent, per client or party (worst run).
    accountant
        How it was added up.
    charges
        What the ledgers were charged.
    kinds
        What the algorithm asks for (`Asks`); "ranges" for a scaler by itself.
    lasting
        Whether ledgers are files that outlive the run.
    deployed
        Whether the clients are on other machines, so that what they did is their word.
    forgotten
        Whether the seed of the noise was drawn by the operating system and kept nowhere.
    of_all
        What all repetitions together cost.
    """

    epsilons: np.ndarray
    accountant: str
    charges: Charges
    kinds: tuple[str, ...] = ("gradient",)
    lasting: bool = False
    deployed: bool = False
    forgotten: bool = False
    of_all: float | None = None


@dataclass(frozen=True)
class Grounds:
    """What a number rests on."""

    theorem: str
    proof: str
    constants: Mapping[str, object]
    assumptions: tuple[Assumption, ...]


def grounds_of_rows(privacy: Proven, kind: str, known: Statement) -> Grounds:
    """For rows split between clients; `kind` is what the algorithm asks for (`Asks`)."""
    asked = "upload" if privacy.unit == "client" else kind
    reach = 2 if privacy.relation == "replace-one" else 1
    answer = _ANSWERS[asked]
    event = known.charges.planned[-1 if asked == "histogram" else 0]
    share = {"poisson": " / rate", "fixed-size": " size / batch"}.get(event.sampling, "")
    counts = "2" if reach == 2 else "sqrt(2)"
    constants = {"clip": privacy.clip, "sensitivity": answer.sensitivity.format(reach=reach, counts=counts) + share}
    norm = "L1" if privacy.mechanism == "laplace" else "L2"
    cut = f"each upload is cut to {norm} distance {privacy.clip:g} from a public centre"
    if asked == "histogram":
        cut = "which records are held out follows from their positions, and each counts once in each of two histograms"
    elif asked == "ranges":
        cut = "each value counts once, in one public bin"
    elif asked != "upload":
        cut = f"each record's gradient is cut to {norm} norm {privacy.clip:g}"
    if privacy.sums:
        constants |= {"least": privacy.least, "colluders": privacy.colluders, "roster": privacy.roster}
    assumed = [Assumption(cut, CODE), *_of_sums(privacy), *_of_all(privacy, known)]
    if asked == "argmin":
        assumed.append(Assumption("the loss is convex and of bounded slope, and rows are scaled to that", CODE))
    if asked == "descent":
        assumed.append(Assumption("each local step brings any two points closer", CODE))
    if event.sampling != "full":
        assumed.append(Assumption("batches are drawn by chance and nobody is told them", CODE))
    assumed += _bounds_on_rows(known)
    assumed += _shares_of_noise(known) if known.lasting else []
    return Grounds(*_named(answer, event, privacy.sums), constants | _numbers(known.charges), tuple(assumed))


def _of_sums(privacy: Proven) -> list[Assumption]:
    """What Theorem 1 assumes besides."""
    if not privacy.sums:
        return []
    return [
        Assumption(f"a sum is opened only over at least {privacy.least} of the {privacy.roster} clients", CODE),
        Assumption("no noise, and for unit 'record' no data, enters what a client keeps between rounds", CODE),
        Assumption(f"at most {privacy.colluders} of the other clients share what they know with the server", USER),
        Assumption("all other clients add their noise and tell it nobody", USER),
    ]


def _shares_of_noise(known: Statement) -> list[Assumption]:
    """What terms of sums in ledgers rest on: a charge keeps how many clients' noise it counts on, and not whose.

    Earlier runs may have trusted more clients than this one says, and have had others on their roster.
    """
    counts = sorted({contributors_of(event) for event in known.charges.events()} - {1})
    who: Answers = OWNER if known.deployed else USER
    words = "of every sum that was charged for with the noise of {}, so many clients' noise is known to nobody else"
    return [Assumption(words.format(count), who) for count in counts]


def grounds_of_columns(privacy: ProvenColumns, known: Statement) -> Grounds:
    """For columns split between parties."""
    scores = _SCORES["clip" if privacy.variant == "clip" else f"ridge-{privacy.unit}"]
    constants: dict[str, object] = {"bound": privacy.bound, "sensitivity": scores.sensitivity}
    for bound in ("column_bound", "row_bound", "score_bound", "model_bound", "label_epsilon"):
        if getattr(privacy, bound) is not None:
            constants[bound] = getattr(privacy, bound)
    what = "scores are clipped as a vector" if privacy.variant == "clip" else "targets are projected to the bound"
    assumed = [Assumption(f"{what} ({privacy.bound:g})", CODE)]
    if privacy.variant == "ridge":
        assumed.append(Assumption("the penalty is a ridge, and rows or columns are cut to their bounds", CODE))
    if privacy.label_epsilon is not None:
        assumed.append(Assumption("labels are randomised once, before anything is asked of them", CODE))
    assumed += _of_all(privacy, known)
    return Grounds(*_named(scores, known.charges.planned[0]), constants | _numbers(known.charges), tuple(assumed))


def grounds_of_products(privacy: ProvenColumns, known: Statement, owners: int) -> Grounds:
    """For products of the columns of so many owners."""
    kept: Answers = OWNER if known.deployed else CODE
    assumed = [
        Assumption("each owner's part of a row is cut, in whole numbers, to its share of the columns", kept),
        Assumption("every owner adds the full noise to every product that it has a part in", kept),
    ]
    if owners > 1:
        trusted = "owners who share what they see keep their row bounds all the same"
        together = "dealer and owners collude no further than the observer is said to"
        fresh = "masks are fresh for each pair of owners and each attempt, and keys of owners are pinned"
        assumed += [Assumption(trusted, OWNER), Assumption(together, OWNER), Assumption(fresh, kept)]
        assumed.append(Assumption("nobody breaks X25519, ChaCha20 or SHA-256", USER))
    assumed += _of_all(privacy, known)
    constants = {"sensitivity": _PRODUCTS.sensitivity, "owners": owners} | _numbers(known.charges)
    return Grounds(*_named(_PRODUCTS, known.charges.planned[0]), constants, tuple(assumed))


def _named(answer: Theorem, event: Event, sums: bool = False) -> tuple[str, str]:
    """The theorems about one answer and about many, and where their proofs stand; about `sums` of answers there is one
    more."""
    batches = " on secret batches" if event.sampling != "full" else ""
    many = THEOREM_2 if isinstance(event, GridEvent) else _COMPOSITIONS[event.mechanism]
    proof = f"{answer.proof}; {many.proof}" if many is THEOREM_2 else answer.proof
    if sums:
        return f"sums of {answer.name}{batches} by Theorem 1, {many.name}", f"{proof}; {_SUMS}"
    return f"{answer.name}{batches}, {many.name}", proof


def _of_all(privacy: Proven | ProvenColumns, known: Statement) -> list[Assumption]:
    """What every theorem assumes."""
    who: Answers = OWNER if known.deployed else CODE
    assumed = [Assumption("every answer was charged, and noise added to it, before it left", who)]
    if not privacy.secret_noise and not known.forgotten:
        assumed.append(Assumption("the observer does not know the seed of the noise", USER))
    if known.lasting:
        assumed.append(Assumption("the ledgers hold all that was ever answered about these records", OWNER))
    if known.deployed:
        assumed.append(Assumption("each client runs this library as it is, and shows its own ledger", OWNER))
    stated = sum(history.spent() is None for history in known.charges.histories)
    if stated:
        assumed.append(Assumption(f"{stated} owners showed no ledger: what they state is taken", OWNER))
    return assumed


def _bounds_on_rows(known: Statement) -> list[Assumption]:
    """One for each bound that any charge rests on."""
    bounds = {event.row_bound for event in known.charges.events()} - {0.0}
    who: Answers = OWNER if known.deployed else USER
    words = "no row, and no row that could stand in its place, is longer than {:g}"
    return [Assumption(words.format(bound), who) for bound in sorted(bounds)]


def _numbers(charges: Charges) -> dict[str, object]:
    """The constants of the noise and of the composition."""
    event, multipliers = charges.planned[0], [event.noise_multiplier for event in charges.planned]
    numbers: dict[str, object] = {
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
    if isinstance(event, GridEvent):
        numbers |= {name: getattr(event, name) for name in ("scale", "coordinates", "contributors")}
        numbers["grid_sensitivity"] = event.sensitivity
    if event.row_bound:
        numbers["row_bound"] = event.row_bound
    return numbers

"""What owners keep of their products, so that an auditor can see later that rows kept their bounds.

Nobody can see in a masked table whether its rows are short enough, and an owner whose rows are c times longer divides
the noise on the others' columns by c. So each owner signs a digest of the masked table F = B − V that it sends, with
all that V follows from, before the other owner answers. The other one keeps that (`others.json`), the owner keeps the
seed of V (`own.json`). An auditor who is given the seed and the rows computes F again: either it has the digest that
was signed and the rows are short enough, or the owner cheated. Another B with another seed has another digest.
"""

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sottovoce.core import check
from sottovoce.core.files import read_bytes
from sottovoce.core.plain import Json
from sottovoce.core.products import LABEL_REACH, UNIT, Split
from sottovoce.deploy import wire
from sottovoce.deploy.aggregation.messages import is_signed
from sottovoce.experiment import whole_files
from sottovoce.experiment.tables import from_table
from sottovoce.privacy.masked_products import Attempt, Role, as_words, mask

if TYPE_CHECKING:
    from sottovoce.deploy.node import Node

OWN, OTHERS = "own.json", "others.json"
ASKED = ("experiment", "client", "task", "events", "row_bound")  # what a table follows from, beside its rows
_ROWS, _LARGEST = 8192, 2**24


@dataclass(frozen=True)
class Statement:
    """What an owner signs about the masked table that it sent to another one.

    Parameters
    ----------
    experiment, owner, role
        Of which run, whose table it is, and whether that owner is the "first" or the "second" of the pair.
    agreed, first, second, nonces, rows, widths
        What the masks follow from: `Attempt`.
    longest, slopes
        The square of a row's length is at most `longest`; the last `slopes` columns are slopes, with a bound of theirs.
    digest
        SHA-256 of the masked table, 64-bit words row by row.
    """

    experiment: str
    owner: str
    role: Role
    agreed: str
    first: int
    second: int
    nonces: tuple[str, ...]
    rows: check.Whole
    widths: tuple[int, ...]
    longest: check.Whole
    slopes: int
    digest: str

    def __post_init__(self) -> None:
        digests = all(map(wire.is_hex, (self.agreed, self.digest, *self.nonces)))
        check.require(len(self.widths) == len(self.nonces) == 2 and digests, "record", "is not of two owners")
        check.require(wire.is_hex(self.experiment, 16), "record", "names no experiment")
        check.fields(self, "record")

    def signed(self) -> bytes:
        """What the signature is of."""
        return b"sottovoce masked table " + json.dumps(asdict(self), sort_keys=True).encode()

    @property
    def attempt(self) -> Attempt:
        agreed, nonces = bytes.fromhex(self.agreed), [bytes.fromhex(nonce) for nonce in self.nonces]
        pair, widths = (self.first, self.second), self.widths
        return Attempt(agreed, pair, (nonces[0], nonces[1]), self.rows, (widths[0], widths[1]))


def statement(split: Split, experiment: str, owner: str, m: int, attempt: Attempt, digest: bytes) -> Statement:
    """The statement of owner `m`."""
    a, b = attempt.pair
    slopes = split.outputs if m == split.holder else 0
    role: Role = "first" if m == a else "second"
    drawn = attempt.plan.hex(), a, b, tuple(nonce.hex() for nonce in attempt.nonces), attempt.rows, attempt.widths
    return Statement(experiment, owner, role, *drawn, split.longest(m), slopes, digest.hex())


def masked_digest(seed: bytes, attempt: Attempt, role: str, table: np.ndarray) -> bytes:
    """SHA-256 of the masked table of this seed."""
    digest = hashlib.sha256()
    for start in range(0, attempt.rows, _ROWS):
        rows = as_words(table[start : start + _ROWS])
        masked = rows - mask(seed, attempt, "U" if role == "first" else "V", start, len(rows))
        digest.update(np.ascontiguousarray(masked, dtype="<u8").data)
    return digest.digest()


def check_rows(signed: Statement, signature: bytes, key: str, seed: bytes, table: np.ndarray) -> None:
    """Refuse rows that are not those of the signed masked table, or longer than they may be.

    Parameters
    ----------
    signed, signature, key
        What the owner signed, as the other owner kept it; and the key that is pinned for it, 64 hex digits.
    seed, table
        Of its masks, and its whole numbers with the slopes: what the owner shows.
    """
    who = f"rows of {signed.owner}"
    check.require(is_signed(bytes.fromhex(key), signature, signed.signed()), who, "must be signed by the pinned key")
    shape = (signed.rows, signed.widths[0 if signed.role == "first" else 1])
    check.require(table.shape == shape, who, f"must be {shape}", table.shape)
    same = masked_digest(seed, signed.attempt, signed.role, table).hex() == signed.digest
    check.require(same, who, "are not those of the masked table that it signed: it multiplied others")
    squares = np.square(table.astype(np.float64))  # whole numbers far below 2^53, or far too large
    columns = shape[1] - signed.slopes
    long = squares[:, :columns].sum(axis=1) > signed.longest
    long |= squares[:, columns:].sum(axis=1) > UNIT * LABEL_REACH**2
    check.require(not long.any(), who, "are longer than they may be: the noise on the others' columns hid too little",
                  f"{int(long.sum())} rows")  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ on disk


def records_of(folder: Path, experiment: str) -> Path:
    """Where an owner keeps them, in its own folder."""
    return folder / "records" / experiment


def keep(folder: Path, own_record: Json, others: list[Json]) -> None:
    """Write what an owner has signed, with its seeds; and what the others have."""
    whole_files.replace_file(folder / OWN, whole_files.json_bytes(own_record))
    whole_files.replace_file(folder / OTHERS, whole_files.json_bytes({"signed": others}))


def entry(signed: Statement, signature: bytes, **more: str) -> Json:
    return {"statement": asdict(signed), "signature": signature.hex(), **more}


def read(path: Path) -> Json:
    """One of these files; what was put into it is checked where it is used."""
    content: Json = {}
    with suppress(ValueError, RecursionError):
        content = json.loads(read_bytes(path, _LARGEST).decode("utf-8", "replace"))
    check.require(isinstance(content, dict) and isinstance(content.get("signed"), list), str(path), "is no record")
    return content


def signed_by(record: Json, owner: str) -> list[tuple[Statement, bytes, Json]]:
    """What this owner signed, in the record of another: statement, signature, and what is beside them."""
    statements = []
    for each in record["signed"]:
        whole = isinstance(each, dict) and isinstance(each.get("statement"), dict)
        signed = whole and wire.is_hex(each.get("signature"), 64)
        check.require(signed, "record", "must hold statements with their signatures")
        statement = from_table(Statement, each["statement"], "record")
        if statement.owner == owner:
            statements.append((statement, bytes.fromhex(each["signature"]), each))
    return statements


def audited(node: "Node", record: Path, key: str = "") -> list[str]:
    """Hold an owner's rows and seeds against what it signed, which another owner kept in `record`; what was found.

    Raises InvalidInput where they are not those of the signed masked table, or too long.

    Parameters
    ----------
    node
        The owner, with its rows and its folder.
    record
        `others.json` of another owner's records.
    key
        The owner's public key, 64 hex digits; "": as the other owner has it pinned.
    """
    sentences = []
    for signed, signature, beside in signed_by(read(record), node.name):
        experiment = signed.experiment
        own_record = read(records_of(node.folder, experiment) / OWN)
        seeds = [
            str(each.get("seed", "")) for mine, _, each in signed_by(own_record, node.name)
            if (mine.agreed, mine.first, mine.second) == (signed.agreed, signed.first, signed.second)
        ]  # fmt: skip
        shown = len(seeds) == 1 and wire.is_hex(seeds[0])
        check.require(shown, f"rows of {node.name}", "their owner must show the seed of its masks", experiment)
        asked = {name: own_record.get(name) for name in ASKED}
        pinned = key or str(beside.get("key", ""))
        check.require(wire.is_hex(pinned), "record", "needs the owner's key, 64 hex digits")
        table = node.multiplied(wire.read(wire.Ask, asked | {"k": 1, "format": wire.FORMAT}))
        check_rows(signed, signature, pinned, bytes.fromhex(seeds[0]), table)
        sentences.append(f"{signed.rows} rows of {node.name} are those that it signed in experiment {experiment}, "
                     "and within their bounds")  # fmt: skip
    check.require(bool(sentences), str(record), f"holds nothing that {node.name!r} signed")
    return sentences

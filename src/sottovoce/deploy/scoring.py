"""Scores of new samples at an owner of split columns: its part of each, masked, so that only the sum can be read.

    [predict]   csv or npz, id: the samples that it may be asked about, prepared as those of [data] are
    [limits]    scores_per_day (0: it answers none), score_trained

The server sends each owner m its part w_m of the model and the ids; owner m answers x_m w_m in fixed point, under masks
that it shares with every other owner (`privacy/masked_products.py`). What must hold whatever a server asks:

* masks are used for one reply. The keys that they follow from are announced fresh for each question (`announcing.py`),
  and deleted from disk before the reply leaves. A lost reply is asked for anew, under other masks;
* a sample that was trained on, and may not be scored, is not among those that there are: it is refused by the words,
  and by the look-up, that any unknown id is refused by. Which of several ids was refused is not told;
* an experiment has one model: the first w_m is taken, and no other. Else a server that sends unit vectors would read
  rows column by column. With the one that it may choose it learns a number of more than 50 bits for each output of each
  sample, of one owner alone if the others' weights are zero: of a few categories that can be the whole row;
* the owners are those of the experiment's products: a sum with others would hide less;
* in any 24 hours, by this machine's clock, it looks up as many ids as the owner allows, those it refuses among them.

A score is a use of the model and is covered by no budget: the one who asks learns it. Of two owners, one who also sees
the sum learns the other's part. What is wrong with its own files is told to nobody but its log.
"""

import hashlib
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sottovoce.core import check
from sottovoce.core.files import utf8
from sottovoce.core.plain import Json
from sottovoce.deploy import announcing, product_records, wire
from sottovoce.deploy.aggregation.store import Folder
from sottovoce.deploy.assignment import Run
from sottovoce.deploy.limits import Limits, Refused, bad_ask, kept_from_servers
from sottovoce.deploy.own_data import Own, OwnRows
from sottovoce.deploy.summing import settings_of
from sottovoce.experiment import whole_files
from sottovoce.experiment.csv_file import label_text
from sottovoce.experiment.tables import fit_value
from sottovoce.privacy.masked_products import MOST_SCORED, fresh_secret, masked_scores
from sottovoce.problems.schema import Schema
from sottovoce.problems.vertical import summed_scores

if TYPE_CHECKING:
    from sottovoce.deploy.node import Node

MOST_IDS, LONGEST_ID = 1 << 14, 200  # of one question, and characters of each
DAY = 86400.0
UNKNOWN = "scores: of these ids some are of no sample that it can score"
_QUERY = "query"
wall = time.time  # tests replace it


@dataclass(frozen=True)
class NewSamples:
    """[predict] of an owner's own file: the samples that it may be asked about."""

    csv: str = ""
    npz: str = ""
    id: str = ""

    def __post_init__(self) -> None:
        check.require(bool(self.csv) != bool(self.npz), "predict", "give either csv = a file or npz = a file")
        check.require(bool(self.id), "predict", "needs id = a column (or an array) that names the samples")


def read_new(
    new: NewSamples | None, trained_rows: OwnRows, folder: Path, schema: Schema | None, limits: Limits
) -> dict[str, np.ndarray]:
    """The new rows by id, without those it trained on unless its owner lets them be: they are then as unknown ones.

    `trained_rows`: as they were read to train on, whatever stands in their file by now.
    """
    new = limits.given(new, "predict")
    with kept_from_servers():
        X, ids = Own(csv=new.csv, npz=new.npz, id=new.id).new_rows(folder, schema)
        check.require(len(set(ids)) == len(ids), "predict", "an id must be there once")
    trained = set() if limits.score_trained else set(map(label_text, trained_rows.ids))
    return {name: row for name, row in zip(ids, X, strict=True) if label_text(name) not in trained}


class Scoring:
    """The two steps at one owner, in an experiment whose round it has answered."""

    def __init__(self, node: "Node", ask: wire.Ask, run: Run) -> None:
        limits, algorithm = node.limits, run.assignment.task.masked_moments
        limits.allow(limits.scores_per_day > 0, "it answers no scores of new samples: scores_per_day is 0")
        self._products = limits.given(node.products, "products")
        self._node, self._ask, self._m, split = node, ask, ask.client, algorithm.split
        self._width, self._outputs, self._owners = split.widths[self._m], algorithm.outputs, split.owners
        self._store = Folder(node.folder / "scores" / ask.experiment)  # lost when the machine is started again
        self._records = product_records.records_of(node.folder, ask.experiment)
        fits = 2 <= self._owners <= MOST_SCORED  # alone nothing hides its part; and sums must fit in 64 bits
        limits.allow(fits, f"scores are sums of the parts of 2 to {MOST_SCORED} owners")

    def step(self) -> bytes:
        content = wire.bytes_of(self._ask.down)
        with bad_ask():
            return self._begin(content) if self._ask.what == wire.SCORE_BEGIN else self._scores(content)

    def _begin(self, content: bytes) -> bytes:
        """A fresh nonce and a fresh key. Those of a question before are forgotten: it is answered no more."""
        names = read_names(content, self._owners)
        check.require(names == self._multiplied().get("owners"), "scores", "owners must be those of the experiment")
        signing = self._products.signing_key(self._node.name, self._node.path.parent, names)
        private, nonce = fresh_secret(), fresh_secret()
        announcement = announcing.announced(signing, about(self._ask, content), self._m, nonce, private)
        kept: Json = {"terms": content.decode(), "private": private.hex(), "announced": announcement.hex()}
        self._store.write(_QUERY, whole_files.json_bytes(kept | {"identity": self._ask.identity()}))
        return announcement

    def _scores(self, content: bytes) -> bytes:
        """Its masked part of the scores: one reply to what was announced, and then no other."""
        kept = json.loads(self._store.read(_QUERY) or b"{}")
        if kept.get("identity") != self._ask.identity():
            raise Refused(wire.SET_UP, "scores: it has announced nothing that this is an answer to; begin again")
        terms = kept["terms"].encode()
        names, counts = read_names(terms, self._owners), [1] * self._owners
        everyone, model, ids = read_question(content, self._owners, self._width * self._outputs)
        pinned = self._products.pinned(names)
        private, own = bytes.fromhex(kept["private"]), bytes.fromhex(kept["announced"])
        announcements = announcing.read(pinned, about(self._ask, terms), everyone, counts, self._m, own)
        secrets = {m: announcing.shared(private, announcements[m].public) for m in range(self._owners) if m != self._m}
        self._multiplied()
        self._node.limits.check_broadcast({"model": model})
        self._check_pace(len(ids))
        rows = self._rows(ids)
        self._check_model(model)
        scores = summed_scores([rows], model, [self._width], self._outputs)
        query = announcing.about("scores", settings_of(self._ask), terms, *pinned, everyone, *ids)
        masked = masked_scores(scores, self._m, secrets, query)
        self._store.delete(_QUERY)  # one reply: from here on these masks are gone
        self._node.home.note(f"experiment {self._ask.experiment}: scores of {len(ids)} new samples, masked")
        return masked.astype("<u8").tobytes()

    def _rows(self, ids: Sequence[str]) -> np.ndarray:
        known = self._node.new_rows
        if set(ids) - known.keys():
            raise Refused(wire.BAD_ASK, UNKNOWN)
        X = np.array([known[each] for each in ids])
        fits = X.shape[1] == self._width
        check.require(fits, "scores", f"its new samples must have {self._width} columns, like those it trained on")
        return X

    def _multiplied(self) -> Json:
        """What it keeps of the experiment's products; refuses if it has other samples by now."""
        with kept_from_servers():
            kept = product_records.read(self._records / product_records.OWN)
        if kept.get("order") != self._node.rows.order:
            raise Refused(wire.STATE, "scores: its samples are others than in this experiment")
        return kept

    def _check_model(self, model: np.ndarray) -> None:
        """Take the first model of an experiment, and refuse every other."""
        path, digest = self._records / "model", hashlib.sha256(model.astype("<f8").tobytes()).hexdigest()
        if not path.exists():
            whole_files.replace_file(path, digest.encode())
        elif path.read_text().strip() != digest:
            why = "scores: another model of this experiment was used before, and there is one only"
            raise Refused(wire.ANSWERED, why)

    def _check_pace(self, count: int) -> None:
        """Refuse to be asked for more than the owner allows in 24 hours; refused ids count too, or one could guess."""
        path, now, most = self._node.folder / "scores.json", wall(), self._node.limits.scores_per_day
        before: list[list[float]] = json.loads(path.read_bytes())["answered"] if path.exists() else []
        recent = [[made, some] for made, some in before if now - made < DAY]  # one that is stamped later is new
        if sum(some for _, some in recent) + count > most:
            raise Refused(wire.PACE, f"it is asked for {most} scores in any 24 hours, and {count} more are too many")
        whole_files.replace_file(path, whole_files.json_bytes({"answered": [*recent, [now, count]]}))


# ------------------------------------------------------------------------------------------------- how messages lie


def about(ask: wire.Ask, terms: bytes) -> bytes:
    """What the owners announce is for these terms, in this experiment."""
    return announcing.about("scores of", settings_of(ask), terms)


def pack_names(query: str, names: Sequence[str]) -> bytes:
    """The first question: a name for it, of the server's choice, and the owners."""
    return json.dumps([query, list(names)]).encode()


def read_names(content: bytes, owners: int) -> list[str]:
    rule = f"terms must be a name and {owners} different owners"
    _, names = wire.read_terms("scores", content, (str, tuple[str, ...]), rule)
    check.require(len(set(names)) == len(names) == owners, "scores", rule)
    return list(names)


def pack_question(everyone: bytes, model: np.ndarray, ids: Sequence[str]) -> bytes:
    """The second one: what all owners announced, this owner's part of the model, the ids."""
    return everyone + model.astype("<f8").tobytes() + json.dumps(list(ids)).encode()


def read_question(content: bytes, owners: int, numbers: int) -> tuple[bytes, np.ndarray, tuple[str, ...]]:
    first = owners * announcing.length(1)
    second = first + 8 * numbers
    most = second + MOST_IDS * (6 * LONGEST_ID + 4)
    check.require(second < len(content) <= most, "scores", "a question must have announcements, a model and ids")
    model = np.frombuffer(content[first:second], dtype="<f8").astype(np.float64)
    check.require(bool(np.isfinite(model).all()), "scores", "a model must be of finite numbers")
    ids: tuple[str, ...] = ()
    with suppress(ValueError, RecursionError):
        ids = fit_value("scores", "ids", json.loads(utf8("scores", content[second:], "ids")), tuple[str, ...])
    few = 0 < len(ids) <= MOST_IDS and len(set(ids)) == len(ids) and max(map(len, ids)) <= LONGEST_ID
    check.require(few, "scores", f"ids must be 1 to {MOST_IDS} different texts of at most {LONGEST_ID} characters")
    return content[:first], model, ids

"""Products of split columns at an owner: the steps by which it multiplies with others.

    [products]         key = "bank.key" (`sottovoce node key`)
    [products.owners]  bank = "...", shop = "...": the public keys of all owners, as they told each other

The keys in this table are pinned: a server can name owners, and never say by which key they are known. What is computed
and why nobody sees a table is in `privacy/masked_products.py`, what travels in `product_terms.py`. Here is what must
hold whatever a server asks, and wherever this process is killed:

* seeds, nonces and a key are drawn when an attempt begins, seeds and nonces for each pair, and are on disk before any
  is used. Another attempt has others. Once the round is under way there is no other attempt;
* keys and nonces of others are signed by the keys that are pinned for them (`announcing.py`), and every key has all
  nonces of all owners in it, so whatever was sealed in an attempt is unreadable in every other;
* masked rows are those of the table that the attempt began with, or none: its digest is kept with the seeds;
* of another owner's masked table, and of W_2, one is taken. Other bytes for the same chunk are refused;
* a masked table is answered if its owner has signed its digest, which is kept for an auditor (`product_records.py`);
* a dealer deals to a pair once. A second V for the same U would show U, and with E the table;
* the share is computed once all is there, by the round's own question (`node.py`): charged, noised, on disk, sent.

What is kept is lost when the machine is started again (`aggregation/store.py`): then a new attempt begins, or the round
was charged and stays silent. Once the server has its result it says so, and secrets are deleted, but for the owner's
own seeds in its record; a server that does not say so has them kept on their owners' own disks, and no more.
"""

import hashlib
import json
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sottovoce.core import check
from sottovoce.core.arrays import Words
from sottovoce.core.plain import Json
from sottovoce.core.products import own_part
from sottovoce.deploy import announcing, wire
from sottovoce.deploy.aggregation.messages import SIGNATURE, is_signed
from sottovoce.deploy.aggregation.store import Folder
from sottovoce.deploy.assignment import Run
from sottovoce.deploy.limits import Limits, Refused, bad_ask
from sottovoce.deploy.product_records import ASKED, Statement, entry, keep, masked_digest, records_of, statement
from sottovoce.deploy.product_terms import COORDINATOR, FROM_DEALER, SEALED_SEED, SIGNED, Terms, read_place
from sottovoce.deploy.summing import settings_of
from sottovoce.experiment import whole_files
from sottovoce.privacy import masked_products
from sottovoce.privacy.masked_products import PairKey, Side, dealt, fresh_secret

if TYPE_CHECKING:
    from sottovoce.deploy.node import Node

STATE, UNDER_WAY = "state", "under-way"
NOTHING_AGREED = "products: it has agreed on nothing; begin again"
_SEED, _PRODUCT = 0, 1  # numbers under which a seed and W_2 are sealed


class Multiplying:
    """The steps at one owner, for one experiment."""

    def __init__(self, node: "Node", ask: wire.Ask, run: Run) -> None:
        self._products = Limits.given(node.products, "products")
        self._node, self._ask, self._m, self._run = node, ask, ask.client, run
        algorithm = run.assignment.task.masked_moments
        self._split, self._samples = algorithm.split, algorithm.samples
        self._store = Folder(node.folder / "products" / ask.experiment)

    def step(self) -> bytes:
        """The answer to any question but that of the round."""
        steps = {
            wire.BEGIN: self._begin, wire.AGREE: self._agree, wire.DEAL: self._deal, wire.SEND: self._send,
            wire.TAKE: self._take, wire.FORGET: self._forget,
        }  # fmt: skip
        with bad_ask("products: ", masked_products.Refused):
            if self._ask.what in (wire.DEAL, wire.SEND, wire.TAKE):
                self._check_agreed()
            return steps[self._ask.what](wire.bytes_of(self._ask.down))

    # ------------------------------------------------------------------------------------------------------- agreeing

    def _begin(self, content: bytes) -> bytes:
        """Fresh seeds, nonces and a fresh key for a new attempt; what it has for one that is known."""
        terms = Terms.read(self._split, self._samples, content)
        signing = self._signing_key(terms)
        check.require(terms.names[self._m] == self._node.name, "products", "its own name must stand in its own place")
        before = self._kept
        if before is None or before["terms"] != content.decode() or before["identity"] != self._ask.identity():
            if self._store.read(UNDER_WAY) is not None:
                raise Refused(wire.ANSWERED, "products: its share is made in another attempt, and there is one only")
            pairs = terms.pairs_of(self._m)
            for name in sorted(self._store.names(), key=lambda name: name != STATE):  # without it the others are void
                self._store.delete(name)
            private, nonces = fresh_secret(), b"".join(fresh_secret() for _ in pairs)
            before = {
                "terms": content.decode(),
                "seeds": {str(pair): fresh_secret().hex() for pair in pairs},
                "private": private.hex(),
                "announced": announcing.announced(signing, self._about(content), self._m, nonces, private).hex(),
                "table": self._run.digest,
                "all": "",
                "identity": self._ask.identity(),
            }
            self._store.write(STATE, whole_files.json_bytes(before))
        return bytes.fromhex(before["announced"])

    def _about(self, terms: bytes) -> bytes:
        """What owners announce is for these terms, in this experiment."""
        return announcing.about("products of", settings_of(self._ask), terms)

    def _agree(self, content: bytes) -> bytes:
        """Take what everybody announced, once; give a seed for each pair to its dealer."""
        state, terms = self._begun, self._terms
        pinned, own = self._products.pinned(terms.names), bytes.fromhex(state["announced"])
        announcing.read(pinned, self._about(terms.packed()), content, terms.nonce_counts, self._m, own)
        if state["all"] not in ("", content.hex()):
            raise Refused(wire.SET_UP, "products: others were agreed with in this attempt; begin another one")
        if not state["all"]:
            self._begun = state | {"all": content.hex()}
            for pair in terms.pairs_of(self._m):
                self._attempt(pair)  # refuses the same nonce twice
            self._store.write(STATE, whole_files.json_bytes(self._begun))
        return self._agreed + b"".join(self._seed_for_dealer(pair) for pair in terms.pairs_of(self._m))

    def _seed_for_dealer(self, pair: int) -> bytes:
        dealer = self._terms.dealers[pair]
        if dealer == COORDINATOR:
            return self._seed(pair)
        return self._key(pair, dealer).sealed(self._terms.role(pair, self._m), _SEED, self._seed(pair))

    def _seed(self, pair: int) -> bytes:
        return bytes.fromhex(self._begun["seeds"][str(pair)])

    def _deal(self, content: bytes) -> bytes:
        """W_2 of a pair that it deals to, for the second owner's eyes alone."""
        pair, _, boxes = read_place(content, len(self._split.pairs))
        mine = self._terms.dealers[pair] == self._m and len(boxes) == 2 * SEALED_SEED
        check.require(mine, "products", "it deals to no such pair, or these are not the two seeds")
        a, b = self._split.pairs[pair]
        first, second = self._key(pair, a), self._key(pair, b)
        seed = first.unsealed("first", _SEED, boxes[:SEALED_SEED])
        other_seed = second.unsealed("second", _SEED, boxes[SEALED_SEED:])
        self._once(f"dealt-{pair}", hashlib.sha256(boxes).digest(), "it has dealt to this pair, for other seeds")
        product = dealt(seed, other_seed, self._attempt(pair))
        return second.sealed("first", _PRODUCT, product.astype("<u8").tobytes())

    # ----------------------------------------------------------------------------------------------- masked tables

    def _send(self, content: bytes) -> bytes:
        """A chunk of its masked table, or the signed digest of it all: the same bytes whenever it is asked for."""
        terms, (pair, chunk, rest) = self._terms, read_place(content, len(self._split.pairs))
        check.require(not rest and pair in terms.pairs_of(self._m), "products", "its table has no part in this pair")
        side = self._side(pair)
        if chunk == SIGNED:
            signed, signature = self._own_statement(pair)
            return side.key.sealed(side.role, chunk, bytes.fromhex(signed.digest) + signature)
        start, rows = terms.rows_in(self._m, chunk)
        return side.key.sealed(side.role, chunk, side.masked(start, rows).astype("<u8").tobytes())

    def _take(self, content: bytes) -> bytes:
        """A chunk of the other owner's masked table, or W_2: the first one that can be read, and no other."""
        terms, (pair, chunk, box) = self._terms, read_place(content, len(self._split.pairs))
        check.require(pair in terms.pairs_of(self._m), "products", "its table has no part in this pair")
        dealt_to = terms.role(pair, self._m) == "second"
        check.require(chunk != FROM_DEALER or dealt_to, "products", "W_2 goes to the second owner")
        fits = len(box) == terms.box_length(pair, terms.other(pair, self._m), chunk)
        check.require(fits, "products", "a chunk must have the length that was agreed on")
        plain = self._unsealed(pair, chunk, box)
        if chunk == SIGNED:
            self._checked_statement(pair, plain)
        if self._store.read(UNDER_WAY) is None:
            self._once(f"box-{pair}-{chunk}", box, "it has taken another masked table in this attempt")
        return b""

    def _once(self, name: str, content: bytes, why: str) -> None:
        """Write a file of this attempt, or find the same one there."""
        before = self._store.read(name)
        if before is None:
            self._store.write(name, content)
        elif before != content:
            raise Refused(wire.ANSWERED, f"products: {why}")

    def _unsealed(self, pair: int, chunk: int, box: bytes) -> bytes:
        """Rows of the other owner's masked table, its signed digest, or W_2."""
        terms = self._terms
        other, dealer = terms.other(pair, self._m), terms.dealers[pair]
        if chunk != FROM_DEALER:
            return self._key(pair, other).unsealed(terms.role(pair, other), chunk, box)
        return box if dealer == COORDINATOR else self._key(pair, dealer).unsealed("first", _PRODUCT, box)

    # ------------------------------------------------------------------------------------------- what is signed of it

    def _own_statement(self, pair: int) -> tuple[Statement, bytes]:
        """What it signs about its masked table."""
        side = self._side(pair)
        digest = masked_digest(side.seed, side.attempt, side.role, side.table)
        unsigned = statement(self._split, self._ask.experiment, self._node.name, self._m, side.attempt, digest)
        return unsigned, self._signing_key(self._terms).sign(unsigned.signed())

    def _signing_key(self, terms: Terms) -> Ed25519PrivateKey:
        return self._products.signing_key(self._node.name, self._node.path.parent, terms.names)

    def _checked_statement(self, pair: int, plain: bytes) -> Json:
        """What the other owner signed, as it is kept; refuses what is not signed by the key that is pinned for it."""
        terms = self._terms
        other, digest, signature = terms.other(pair, self._m), plain[:-SIGNATURE], plain[-SIGNATURE:]
        name, attempt = terms.names[other], self._attempt(pair)
        unsigned = statement(self._split, self._ask.experiment, name, other, attempt, digest)
        true = is_signed(bytes.fromhex(self._products.owners[name]), signature, unsigned.signed())
        check.require(true, "products", "the digest of a masked table must be signed by its owner")
        return entry(unsigned, signature, key=self._products.owners[name])

    def _record(self) -> None:
        """Keep for an auditor what it signed, and what the others did; refuses tables that are not as signed."""
        terms, others = self._terms, []
        for pair in terms.pairs_of(self._m):
            kept = self._checked_statement(pair, self._taken(pair, SIGNED))
            digest = hashlib.sha256()
            for chunk in range(terms.chunks(terms.other(pair, self._m))):
                digest.update(self._taken(pair, chunk))
            if digest.hexdigest() != kept["statement"]["digest"]:
                raise Refused(wire.BAD_ASK, "products: an owner has signed another masked table than it sent")
            others.append(kept)
        signed = [entry(*self._own_statement(pair), seed=self._seed(pair).hex()) for pair in terms.pairs_of(self._m)]
        made_from = {name: getattr(self._ask, name) for name in ASKED}
        own_record = {"signed": signed, **made_from, "order": self._node.rows.order, "owners": list(terms.names)}
        keep(records_of(self._node.folder, self._ask.experiment), own_record, others)

    # ------------------------------------------------------------------------------------------------------ the round

    def ready(self) -> None:
        """Refuse the round's question unless all is there, before anything is charged; then no other attempt begins."""
        self._check_agreed()
        self._table()
        if set(self._needed()) - set(self._store.names()):
            raise Refused(wire.SET_UP, "products: another owner's masked table is not complete; begin again")
        self._record()
        self._once(UNDER_WAY, self._agreed, "its share is made in another attempt")

    def _needed(self) -> Iterator[str]:
        terms = self._terms
        for pair in terms.pairs_of(self._m):
            yield from (f"box-{pair}-{chunk}" for chunk in range(terms.chunks(terms.other(pair, self._m))))
            yield f"box-{pair}-{SIGNED}"
            if terms.role(pair, self._m) == "second":
                yield f"box-{pair}-{FROM_DEALER}"

    def shares(self) -> np.ndarray:
        """Its contribution to all products, (1, size): its own blocks, and its masked half of those with others.

        Noise is not in it yet: the door adds it to every number, modulo 2^64.
        """
        terms, numbers = self._terms, own_part(self._split, self._m, self._table())
        for pair in terms.pairs_of(self._m):
            side, other, from_dealer = self._side(pair), terms.other(pair, self._m), None
            for chunk in range(terms.chunks(other)):
                side.receive(_words(self._taken(pair, chunk), -1, self._split.table_width(other)))
            if side.role == "second":
                from_dealer = _words(self._taken(pair, FROM_DEALER), *side.attempt.widths)
            share = side.reply(np.zeros(side.attempt.widths, dtype=np.int64), from_dealer)
            numbers[self._split.of_pair(*self._split.pairs[pair])] = share.view(np.int64).ravel()
        return numbers[None]

    def forget_tables(self) -> None:
        """Delete the masked tables of others: the answer is on disk."""
        for name in self._needed():
            self._store.delete(name)

    def _forget(self, content: bytes) -> bytes:
        """Delete all secrets, if its share is made: the server has its result."""
        if self._store.read(UNDER_WAY) is not None:
            for name in self._store.names():
                if name != UNDER_WAY:
                    self._store.delete(name)
        return b""

    def _taken(self, pair: int, chunk: int) -> bytes:
        box = self._store.read(f"box-{pair}-{chunk}")
        assert box is not None  # `ready` has seen it
        return self._unsealed(pair, chunk, box)

    def _side(self, pair: int) -> Side:
        terms = self._terms
        key = self._key(pair, terms.other(pair, self._m))
        return Side(terms.role(pair, self._m), key, self._table(), self._seed(pair))

    # ------------------------------------------------------------------------------------------------- what is kept

    @cached_property
    def _kept(self) -> Json | None:
        content = self._store.read(STATE)
        return None if content is None else json.loads(content)

    @cached_property
    def _begun(self) -> Json:
        """The attempt that it has begun, which the question must be about."""
        if self._kept is None or self._kept["identity"] != self._ask.identity():
            raise Refused(wire.SET_UP, NOTHING_AGREED)
        return self._kept

    def _check_agreed(self) -> None:
        """Refuse a question that does not name what the owners agreed on in the attempt under way."""
        if not self._begun["all"]:
            raise Refused(wire.SET_UP, NOTHING_AGREED)
        if self._agreed.hex() != self._ask.run:
            raise Refused(wire.SET_UP, "products: another attempt is under way; begin again")

    @cached_property
    def _terms(self) -> Terms:
        return Terms.read(self._split, self._samples, self._begun["terms"].encode())

    @cached_property
    def _agreed(self) -> bytes:
        order, everyone = self._node.rows.order, bytes.fromhex(self._begun["all"])
        return self._terms.digest(settings_of(self._ask), self._products.pinned(self._terms.names), order, everyone)

    @cached_property
    def _announced(self) -> list[announcing.Announced]:
        return announcing.parsed(bytes.fromhex(self._begun["all"]), self._terms.nonce_counts)

    def _attempt(self, pair: int) -> masked_products.Attempt:
        return self._terms.attempt_of(pair, self._agreed, self._announced)

    def _key(self, pair: int, other: int) -> PairKey:
        """What it shares with another owner about this pair."""
        private, public = bytes.fromhex(self._begun["private"]), self._announced[other].public
        return PairKey(announcing.shared(private, public), self._attempt(pair))

    def _table(self) -> np.ndarray:
        """Its table, which must be the one that the attempt began with."""
        if self._run.digest != self._begun["table"]:
            raise Refused(wire.STATE, "products: its rows are others than when this attempt began; start another run")
        return self._run.table


def _words(plain: bytes, *shape: int) -> Words:
    return np.frombuffer(plain, dtype="<u8").astype(np.uint64).reshape(shape)

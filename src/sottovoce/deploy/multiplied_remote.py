"""Transport: owners of split columns on other machines, whose products are computed on masked tables.

Before the round, the server carries masked tables from owner to owner, chunk by chunk, sealed so that it cannot read
them; to two owners it also deals. All of that asks nothing that an owner has to pay for, and can be done again. If an
owner has lost what was agreed on, everybody begins another attempt, with fresh masks.
"""

import hashlib
import logging
from collections.abc import Mapping

import numpy as np

from sottovoce.core import check
from sottovoce.core.contract import Method
from sottovoce.core.round import Exchange, State
from sottovoce.deploy import announcing, wire
from sottovoce.deploy.product_terms import (
    COORDINATOR,
    FROM_DEALER,
    SEALED_SEED,
    SIGNED,
    Terms,
    pack_place,
    usual_dealers,
)
from sottovoce.deploy.remote import Remote, TooFewAnswers
from sottovoce.deploy.wire import Ask, Reply
from sottovoce.privacy.masked_products import KEY_BYTES, dealt

log = logging.getLogger("sottovoce")
_ATTEMPTS = 4
_DIGEST = 32


class Again(Exception):
    """This attempt cannot go on; another one can."""


class MultipliedRemote(Remote):
    """Owners of split columns on other machines, who multiply with each other. Parameters as of `Remote`."""

    _run = ""  # what the owners agreed on, 64 hex digits

    def exchange(self, algorithm: Method, down: State, active: np.ndarray, k: int) -> Exchange | None:
        for number in range(_ATTEMPTS):
            try:
                self._run = ""
                self._run = self._prepared(self._terms(number), k)
                return super().exchange(algorithm, down, active, k)
            except Again as reason:
                log.warning("round %d: products: %s; another attempt begins", k, reason)
        raise TooFewAnswers(
            f"round {k}: the owners could not agree on one attempt at their products. If one of them has answered, "
            "start another run: what was charged stays charged"
        )

    def _terms(self, number: int) -> Terms:
        deployment = self._deployment
        split, clients = deployment.task.split, deployment.clients
        assert split is not None
        assert clients.samples is not None
        named = hashlib.sha256(f"{self._name} {number}".encode()).hexdigest()  # a restarted server finds it again
        dealers = tuple(clients.names.index(name) for name in clients.dealers) or usual_dealers(split)
        return Terms(split, clients.samples, named, clients.names, dealers)

    def _prepared(self, terms: Terms, k: int) -> str:
        """All steps before the round; the digest of what was agreed on."""
        everyone = range(self.n)
        said = self._asked(k, wire.BEGIN, dict.fromkeys(everyone, terms.packed()))
        for m, content in said.items():
            self._must_fit(len(content) == announcing.length(terms.nonce_counts[m]), m)
        announced = b"".join(said[m] for m in everyone)
        said = self._asked(k, wire.AGREE, dict.fromkeys(everyone, announced))
        agreed = {content[:_DIGEST] for content in said.values()}
        rule = "the owners do not agree on keys, on the order of samples or on who deals; compare their files"
        check.require(len(agreed) == 1, "products", rule)
        run, seeds = agreed.pop(), self._seeds(terms, said)
        for number in range(len(terms.split.pairs)):
            self._deal(terms, k, number, seeds[number], announced, run)
            self._carry(terms, k, number, run)
        return run.hex()

    def _seeds(self, terms: Terms, said: Mapping[int, bytes]) -> list[list[bytes]]:
        """The seeds of each pair's masks as they go to its dealer, the first owner's first."""
        seeds: list[list[bytes]] = [[] for _ in terms.split.pairs]
        for m in sorted(said):
            content = said[m][_DIGEST:]
            for pair in terms.pairs_of(m):
                length = KEY_BYTES if terms.dealers[pair] == COORDINATOR else SEALED_SEED
                seeds[pair].append(content[:length])
                self._must_fit(len(content) >= length, m)
                content = content[length:]
            self._must_fit(not content, m)
        return seeds

    def _deal(self, terms: Terms, k: int, number: int, seeds: list[bytes], announced: bytes, run: bytes) -> None:
        """W_2 to the second owner of a pair: of another owner, or computed here."""
        dealer, second = terms.dealers[number], terms.split.pairs[number][1]
        if dealer == COORDINATOR:
            first_seed, second_seed = seeds
            attempt = terms.attempt_of(number, run, announcing.parsed(announced, terms.nonce_counts))
            product = dealt(first_seed, second_seed, attempt).astype("<u8").tobytes()
        else:
            question = pack_place(number, 0) + b"".join(seeds)
            product = self._asked(k, wire.DEAL, {dealer: question}, run)[dealer]
            self._must_fit(len(product) == terms.box_length(number, second, FROM_DEALER), dealer)
        self._asked(k, wire.TAKE, {second: pack_place(number, FROM_DEALER) + product}, run)

    def _carry(self, terms: Terms, k: int, number: int, run: bytes) -> None:
        """Both masked tables of a pair, a chunk of each at a time, and what their owners sign of them."""
        a, b = pair = terms.split.pairs[number]
        for chunk in (*range(max(terms.chunks(m) for m in pair)), SIGNED):
            asked = {m: pack_place(number, chunk) for m in pair if chunk == SIGNED or chunk < terms.chunks(m)}
            boxes = self._asked(k, wire.SEND, asked, run)
            for m, box in boxes.items():
                self._must_fit(len(box) == terms.box_length(number, m, chunk), m)
            other = {a: b, b: a}
            self._asked(k, wire.TAKE, {other[m]: pack_place(number, chunk) + box for m, box in boxes.items()}, run)

    def _must_fit(self, fits: bool, m: int) -> None:
        """An owner may send anything: stop at what cannot be read. Nothing was charged."""
        if not fits:
            raise TooFewAnswers(f"products: {self._deployment.clients.names[m]}: {wire.BAD_ANSWER}: a wrong length")

    def _asked(self, k: int, what: str, questions: Mapping[int, bytes], run: bytes = b"") -> dict[int, bytes]:
        """What all of these owners answered: every one of them is needed."""
        asks = {
            m: Ask(self._name, m, k, self._task, self._events, 0.0, what, wire.of_bytes(content), run.hex())
            for m, content in questions.items()
        }
        replies = self._post.ask(asks, self._deployment.clients.deadline)
        said: dict[int, bytes] = {}
        for m in asks:
            reply = replies.get(m, Reply(wire.TIMEOUT, "it did not answer in time"))
            try:
                if not reply.code:
                    said[m] = wire.bytes_of(reply.up)
            except check.InvalidInput as error:
                reply = Reply(wire.BAD_ANSWER, str(error)[:300])
            told = f"{self._deployment.clients.names[m]}: {reply.told()}"
            if reply.code == wire.SET_UP or (reply.code == wire.ANSWERED and what == wire.BEGIN):
                raise Again(told)
            if reply.code:
                go_on = (
                    "" if what in (wire.SCORE_BEGIN, wire.SCORES) else f". Run the app again to go on from round {k}"
                )
                rule = f"{what if not go_on else f'round {k}'}: every owner is needed{go_on}"
                raise TooFewAnswers(f"{rule}. Silent: {told}")
        return said

    def saved(self) -> None:
        """The result is on disk: owners may delete the secrets of the attempt. One that does not answer keeps them."""
        asks = {m: self._ask(m, None, 1, wire.FORGET) for m in range(self.n)}
        asks = {m: Ask(**{**vars(ask), "down": wire.of_bytes(b"")}) for m, ask in asks.items()}
        self._post.ask(asks, self._deployment.clients.deadline)

    def _ask(self, client: int, down: State, k: int, what: str = wire.ROUND) -> Ask:
        asked = super()._ask(client, down, k, what)
        return Ask(**{**vars(asked), "run": self._run})

"""Transport: owners of split columns on other machines, whose products are computed on masked tables.

Before the round, the server carries masked tables from owner to owner, chunk by chunk, sealed so that it cannot read
them; to two owners it also deals. All of that asks nothing that an owner has to pay for, and can be done again. If an
owner has lost what was agreed on, everybody begins another attempt, with fresh masks.
"""

import hashlib
import logging
from collections import Counter
from collections.abc import Mapping, Sequence

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
from sottovoce.deploy.remote import Remote, TooFewAnswers, understood
from sottovoce.deploy.wire import Ask
from sottovoce.privacy.masked_products import KEY_BYTES, dealt

log = logging.getLogger("sottovoce")
_ATTEMPTS = 4
_FAREWELL = 30.0  # seconds to wait for owners who need not answer
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
        attempt = hashlib.sha256(f"{self._name} {number}".encode()).hexdigest()  # a restarted server finds it again
        dealers = tuple(clients.names.index(name) for name in clients.dealers) or usual_dealers(split)
        return Terms(split, clients.samples, attempt, clients.names, dealers)

    def _prepared(self, terms: Terms, k: int) -> str:
        """All steps before the round; the digest of what was agreed on."""
        everyone = range(self.n)
        answers = self._asked(k, wire.BEGIN, dict.fromkeys(everyone, terms.packed()))
        for m, content in answers.items():
            self._must_fit(len(content) == announcing.length(terms.nonce_counts[m]), m)
        announced = b"".join(answers[m] for m in everyone)
        answers = self._asked(k, wire.AGREE, dict.fromkeys(everyone, announced))
        agreed = {content[:_DIGEST] for content in answers.values()}
        rule = "the owners do not agree on keys, on the order of samples or on who deals; compare their files"
        check.require(len(agreed) == 1, "products", rule)
        run, seeds = agreed.pop(), self._seeds(terms, answers)
        self._deal(terms, k, seeds, announced, run)
        self._carry(terms, k, run)
        return run.hex()

    def _seeds(self, terms: Terms, answers: Mapping[int, bytes]) -> list[list[bytes]]:
        """The seeds of each pair's masks as they go to its dealer, the first owner's first."""
        seeds: list[list[bytes]] = [[] for _ in terms.split.pairs]
        for m in sorted(answers):
            content = answers[m][_DIGEST:]
            for pair in terms.pairs_of(m):
                length = KEY_BYTES if terms.dealers[pair] == COORDINATOR else SEALED_SEED
                seeds[pair].append(content[:length])
                self._must_fit(len(content) >= length, m)
                content = content[length:]
            self._must_fit(not content, m)
        return seeds

    def _deal(self, terms: Terms, k: int, seeds: list[list[bytes]], announced: bytes, run: bytes) -> None:
        """W_2 to the second owner of each pair: of another owner, or computed here."""
        numbers = range(len(terms.split.pairs))
        asked = {n: (terms.dealers[n], pack_place(n, 0) + b"".join(seeds[n])) for n in numbers}
        dealing = {n: question for n, question in asked.items() if terms.dealers[n] != COORDINATOR}
        products = dict(zip(dealing, self._each(k, wire.DEAL, list(dealing.values()), run), strict=True))
        for n, (dealer, _) in asked.items():
            second = terms.split.pairs[n][1]
            if dealer == COORDINATOR:
                attempt = terms.attempt_of(n, run, announcing.parsed(announced, terms.nonce_counts))
                products[n] = dealt(seeds[n][0], seeds[n][1], attempt).astype("<u8").tobytes()
            else:
                self._must_fit(len(products[n]) == terms.box_length(n, second, FROM_DEALER), dealer)
        takes = [(terms.split.pairs[n][1], pack_place(n, FROM_DEALER) + products[n]) for n in numbers]
        self._each(k, wire.TAKE, takes, run)

    def _carry(self, terms: Terms, k: int, run: bytes) -> None:
        """The masked tables of all pairs, a chunk of each at a time, and what their owners sign of them."""
        sides = [(number, m) for number, pair in enumerate(terms.split.pairs) for m in pair]
        for chunk in (*range(max((terms.chunks(m) for _, m in sides), default=0)), SIGNED):
            here = [(number, m) for number, m in sides if chunk == SIGNED or chunk < terms.chunks(m)]
            for batch in _batches([(m, number) for number, m in here]):
                asked = [(m, pack_place(number, chunk)) for m, number in batch]
                boxes = self._each(k, wire.SEND, asked, run)
                takes = []
                for (m, number), box in zip(batch, boxes, strict=True):
                    self._must_fit(len(box) == terms.box_length(number, m, chunk), m)
                    takes.append((terms.other(number, m), pack_place(number, chunk) + box))
                self._each(k, wire.TAKE, takes, run)

    def _each(self, k: int, what: str, questions: Sequence[tuple[int, bytes]], run: bytes) -> list[bytes]:
        """What owners answered to all of these questions, in order: each owner is asked one at a time."""
        answers: dict[int, bytes] = {}
        for batch in _batches([(m, place) for place, (m, _) in enumerate(questions)]):
            asked = self._asked(k, what, {m: questions[place][1] for m, place in batch}, run)
            answers |= {place: asked[m] for m, place in batch}
        return [answers[place] for place in range(len(questions))]

    def _must_fit(self, fits: bool, m: int) -> None:
        """An owner may send anything: stop at what cannot be read. Nothing was charged."""
        if not fits:
            raise TooFewAnswers(f"products: {self._deployment.clients.names[m]}: {wire.BAD_ANSWER}: a wrong length")

    def _asked(self, k: int, what: str, questions: Mapping[int, bytes], run: bytes = b"") -> dict[int, bytes]:
        """What all of these owners answered: every one of them is needed."""
        asks = {m: self._ask(m, content, k, what, run.hex()) for m, content in questions.items()}
        replies = self._post.ask(asks, self._deployment.clients.deadline)
        answers: dict[int, bytes] = {}
        for m in asks:
            reply, content = understood(replies.get(m), wire.bytes_of)
            if reply.code == wire.SET_UP or (reply.code == wire.ANSWERED and what == wire.BEGIN):
                raise Again(self._why(m, reply))
            if content is None:
                scores = what in (wire.SCORE_BEGIN, wire.SCORES)
                go_on = "" if scores else f". Run the app again to go on from round {k}"
                rule = f"{what if scores else f'round {k}'}: every owner is needed{go_on}"
                raise TooFewAnswers(f"{rule}. Silent: {self._why(m, reply)}")
            answers[m] = content
        return answers

    def saved(self) -> None:
        """The result is on disk: owners may delete the secrets of the attempt. One that does not answer keeps them."""
        asks = {m: self._ask(m, b"", 1, wire.FORGET, self._run) for m in range(self.n)}
        self._post.ask(asks, min(_FAREWELL, self._deployment.clients.deadline))

    def _ask(self, client: int, down: State | bytes, k: int, what: str = wire.ROUND, run: str = "") -> Ask:
        return super()._ask(client, down, k, what, self._run if what == wire.ROUND else run)


def _batches(of_owners: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Pairs (owner, thing) in few groups, in each of which an owner is there once."""
    groups: list[list[tuple[int, int]]] = []
    seen: Counter[int] = Counter()
    for owner, thing in of_owners:
        groups += [[]] if seen[owner] == len(groups) else []
        groups[seen[owner]].append((owner, thing))
        seen[owner] += 1
    return groups

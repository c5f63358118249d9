"""Transport: owners of split columns on other machines, whose products are computed on masked tables.

Before the round, the server carries masked tables from owner to owner, chunk by chunk, sealed so that it cannot read
them; to two owners it also deals. All of that asks nothing that an owner has to pay for, and can be done again. If an
owner has lost what was agreed on, everybody begins another attempt, with fresh masks.

After the run, `sottovoce server predict` asks the same owners about new samples. Of scores, too, the server sees sums
of their parts alone.
"""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

import numpy as np

from sottovoce.core import check
from sottovoce.core.contract import Method
from sottovoce.core.files import read_bytes, utf8
from sottovoce.core.round import Exchange, State
from sottovoce.deploy import announcing, scoring, wire
from sottovoce.deploy.aggregation.messages import cut
from sottovoce.deploy.deployment import Deployment
from sottovoce.deploy.product_terms import COORDINATOR, FROM_DEALER, SIGNED, Terms, pack_place, usual_dealers
from sottovoce.deploy.remote import Post, Remote, TooFewAnswers, log
from sottovoce.experiment import predict, saved
from sottovoce.experiment.vertical_result import VerticalResult
from sottovoce.privacy.masked_products import dealt, opened_scores

_ATTEMPTS = 4
_FAREWELL = 30.0  # seconds to wait for owners who need not answer
_DIGEST = 32
Question = tuple[int, bytes, int]  # to which owner, what, and how long its answer must be


class Again(Exception):
    """This attempt cannot go on; another one can."""


class MultipliedRemote(Remote):
    """Owners of split columns on other machines, who multiply with each other. Parameters as of `Remote`."""

    def exchange(self, algorithm: Method, down: State, active: np.ndarray, k: int) -> Exchange | None:
        for number in range(_ATTEMPTS):
            try:
                self._prepare(self._terms(number), k)
                return super().exchange(algorithm, down, active, k)
            except Again as reason:
                log.warning("round %d: products: %s; another attempt begins", k, reason)
        why = "the owners could not agree on one attempt at their products"
        hint = "If one of them has answered, start another run: what was charged stays charged"
        raise TooFewAnswers(f"round {k}: {why}. {hint}")

    def _terms(self, number: int) -> Terms:
        algorithm, clients = self._deployment.task.masked_moments, self._deployment.clients
        attempt = hashlib.sha256(f"{self._name} {number}".encode()).hexdigest()  # a restarted server finds it again
        dealers = tuple(clients.names.index(name) for name in clients.dealers) or usual_dealers(algorithm.split)
        return Terms(algorithm.split, algorithm.samples, attempt, clients.names, dealers)

    def _prepare(self, terms: Terms, k: int) -> None:
        """All steps before the round."""
        self._run, everyone = "", range(self.n)
        lengths = list(map(announcing.length, terms.nonce_counts))
        answers = self._each(k, wire.BEGIN, [(m, terms.packed(), lengths[m]) for m in everyone])
        announced = b"".join(answers)
        answers = self._each(k, wire.AGREE, [(m, announced, _DIGEST + sum(terms.seed_lengths(m))) for m in everyone])
        agreed = {content[:_DIGEST] for content in answers}
        rule = "the owners do not agree on keys, on the order of samples or on who deals; compare their files"
        check.require(len(agreed) == 1, "products", rule)
        digest = agreed.pop()
        self._run = digest.hex()
        seeds: list[list[bytes]] = [[] for _ in terms.split.pairs]  # of each pair, the first owner's first
        for m, content in enumerate(answers):
            _, *parts = cut("seeds", content, _DIGEST, *terms.seed_lengths(m))
            for pair, seed in zip(terms.pairs_of(m), parts, strict=True):
                seeds[pair].append(seed)
        self._deal(terms, k, seeds, announced, digest)
        self._carry(terms, k)

    def _deal(self, terms: Terms, k: int, seeds: list[list[bytes]], announced: bytes, agreed: bytes) -> None:
        """W_2 to the second owner of each pair: of another owner, or computed here."""
        if COORDINATOR in terms.dealers:  # there are two owners, and one pair
            first, second = seeds[0]
            attempt = terms.attempt_of(0, agreed, announcing.parsed(announced, terms.nonce_counts))
            products = [dealt(first, second, attempt).astype("<u8").tobytes()]
        else:
            asked = [
                (dealer, pack_place(n, 0) + b"".join(seeds[n]), terms.box_length(n, dealer, FROM_DEALER))
                for n, dealer in enumerate(terms.dealers)
            ]
            products = self._each(k, wire.DEAL, asked)
        takes = [(pair[1], pack_place(n, FROM_DEALER) + products[n], 0) for n, pair in enumerate(terms.split.pairs)]
        self._each(k, wire.TAKE, takes)

    def _carry(self, terms: Terms, k: int) -> None:
        """The masked tables of all pairs, a chunk of each at a time, and what their owners sign of them."""
        sides = [(m, number) for number, pair in enumerate(terms.split.pairs) for m in pair]
        for chunk in (*range(max((terms.chunks(m) for m, _ in sides), default=0)), SIGNED):
            here = [(m, number) for m, number in sides if chunk == SIGNED or chunk < terms.chunks(m)]
            for batch in _batches(here):
                asked = {m: (pack_place(n, chunk), terms.box_length(n, m, chunk)) for m, n in batch.items()}
                boxes = self._asked(k, wire.SEND, asked)
                takes = [(terms.other(n, m), pack_place(n, chunk) + boxes[m], 0) for m, n in batch.items()]
                self._each(k, wire.TAKE, takes)

    def _each(self, k: int, what: str, questions: Sequence[Question]) -> list[bytes]:
        """What owners answered to all of these questions, in order: each owner is asked one at a time."""
        answers: dict[int, bytes] = {}
        for batch in _batches([(m, place) for place, (m, *_) in enumerate(questions)]):
            asked = self._asked(k, what, {m: questions[place][1:] for m, place in batch.items()})
            answers |= {place: asked[m] for m, place in batch.items()}
        return [answers[place] for place in range(len(questions))]

    def _asked(self, k: int, what: str, questions: Mapping[int, tuple[bytes, int]]) -> dict[int, bytes]:
        """What all of these owners answered: every one of them is needed. A wrong length cannot be read."""

        def read(m: int, up: wire.Packed) -> bytes:
            return cut("a wrong length", wire.bytes_of(up), questions[m][1])[0]

        answers, silent = self._heard(what, k, {m: content for m, (content, _) in questions.items()}, read)
        for m, reply in silent.items():
            if reply.code == wire.SET_UP or (reply.code == wire.ANSWERED and what == wire.BEGIN):
                raise Again(self._why(m, reply))
            if what in wire.SCORING:
                raise TooFewAnswers(f"{what}: every owner is needed. Silent: {self._why(m, reply)}")
            raise self._too_few(k, "every owner is needed", {m: reply})
        return answers

    def saved(self) -> None:
        """The result is on disk: owners may delete the secrets of the attempt. One that does not answer keeps them."""
        asks = {m: self._ask(m, b"", 1, wire.FORGET) for m in range(self.n)}
        self._post.ask(asks, min(_FAREWELL, self._deployment.clients.deadline))

    # ------------------------------------------------------------------------------------- about new samples

    def scores(self, result: VerticalResult, ids: Sequence[str]) -> np.ndarray:
        """Scores of the samples with these ids: (ids,), or one column per class for softmax."""
        parts = [ids[start : start + scoring.MOST_IDS] for start in range(0, len(ids), scoring.MOST_IDS)]
        return np.concatenate([self._some(result, part) for part in parts])

    def _some(self, result: VerticalResult, ids: Sequence[str]) -> np.ndarray:
        for _ in range(_ATTEMPTS):
            with suppress(Again):  # a reply was lost, and its masks with it: another question, under others
                return self._asked_once(result, ids)
        raise TooFewAnswers("scores: the owners' replies were lost again and again; ask another time")

    def _asked_once(self, result: VerticalResult, ids: Sequence[str]) -> np.ndarray:
        names, everyone = self._deployment.clients.names, range(self.n)
        terms = scoring.pack_names(secrets.token_hex(32), names)
        begun = self._each(1, wire.SCORE_BEGIN, [(m, terms, announcing.length(1)) for m in everyone])
        announced, outputs = b"".join(begun), result.objective.loss.outputs
        parts = [scoring.pack_question(announced, result.party_model(m), ids) for m in everyone]
        masked = self._each(1, wire.SCORES, [(m, parts[m], 8 * len(ids) * outputs) for m in everyone])
        shape = (len(ids),) if outputs == 1 else (len(ids), outputs)
        return opened_scores([np.frombuffer(part, dtype="<u8").astype(np.uint64).reshape(shape) for part in masked])


def predicted_scores(
    deployment: Deployment, name: str, post: Post, result: VerticalResult, ids: Sequence[str]
) -> np.ndarray:
    """Scores of new samples by the model of a finished run, from all owners behind `post`."""
    clients = deployment.clients
    check.require(deployment.task.split is not None, "predict", "between machines it is for runs of masked-moments")
    met = post.statuses(clients.wait)
    missing = [who for m, who in enumerate(clients.names) if m not in met]
    if missing:
        raise TooFewAnswers(f"predict: every owner has a part of each score. Missing: {', '.join(missing)}")
    rows, sizes = sum(status.size for status in met.values()), np.ones(len(clients.names), dtype=int)
    return MultipliedRemote(deployment, name, post, sizes, deployment.settings.engine, rows).scores(result, ids)


def predict_ids(deployment: Deployment, name: str, post: Post, run: Path, file: Path, out: Path) -> int:
    """Write the predictions for a file of ids, one on each line, by the model in a run's folder; returns how many."""
    ids, result = read_ids(file), cast(VerticalResult, saved.load_result(run))
    scores = predicted_scores(deployment, name, post, result, ids)
    predict.write_new(out, predict.to_csv({"id": ids} | predict.of_scores(result, scores)))
    return len(ids)


def read_ids(file: Path) -> list[str]:
    """The ids in a file, one on each line; refuses none, repeated ones and such as no owner would read."""
    text = utf8(str(file), read_bytes(file), "ids, one on each line")
    ids = [line.strip() for line in text.removeprefix("\ufeff").splitlines() if line.strip()]
    distinct = 0 < len(ids) == len(set(ids)) and all(len(each) <= scoring.LONGEST_ID for each in ids)
    rule = f"must hold ids, at least one, all different and of at most {scoring.LONGEST_ID} characters"
    check.require(distinct, str(file), rule)
    return ids


def _batches(of_owners: Sequence[tuple[int, int]]) -> list[dict[int, int]]:
    """Pairs (owner, thing) in few groups, in each of which an owner is there once."""
    groups: list[dict[int, int]] = []
    for owner, thing in of_owners:
        free = next((group for group in groups if owner not in group), None)
        if free is None:
            groups.append(free := {})
        free[owner] = thing
    return groups

"""The server's steps. What it is told is verified, so that a wrong message names its sender, and a wrong sum is not
taken for a sum. Privacy does not rest on any of that: it rests on what clients check.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import Words
from sottovoce.deploy.aggregation import masks, messages, shamir
from sottovoce.deploy.aggregation.client import run_of
from sottovoce.deploy.aggregation.messages import Announcement
from sottovoce.deploy.aggregation.plan import Plan


class Unopened(check.SottovoceError):
    """The sum of a round could not be opened. What was uploaded stays masked for ever."""


class Server:
    """One set-up at the server: who announced what, and the name of the run.

    Parameters
    ----------
    plan
        The plan that all clients were shown.
    announcements
        The answers to S1 by client; all of the roster.
    """

    def __init__(self, plan: Plan, announcements: Mapping[int, bytes]) -> None:
        missing = sorted(plan.everyone - announcements.keys())
        check.require(not missing, "set-up of sums", f"needs all clients, and {missing} are missing")
        self.plan = plan
        self.peers = [Announcement.read(plan, i, announcements[i]) for i in range(plan.n)]
        self.announcements = b"".join(announcements[i] for i in range(plan.n))  # S2 question, to all
        self.run = run_of(plan, self.announcements)

    def deliver(self, boxes: Mapping[int, bytes]) -> dict[int, bytes]:
        """The S3 question to each client, from the answers of all to S2."""
        plan, length = self.plan, messages.box_length(self.plan)
        sent = {}
        for i in range(plan.n):
            check.require(
                i in boxes, "set-up of sums", f"needs the shares of all clients, and those of {i} are missing"
            )
            parts = messages.pieces(f"S2 of client {i}", boxes[i], plan.n - 1, length)
            parts.insert(i, b"")
            sent[i] = parts
        return {j: b"".join(sent[i][j] for i in range(plan.n) if i != j) for j in range(plan.n)}

    def name_set(self, uploads: Mapping[int, Words]) -> frozenset[int]:
        """U: all who uploaded, if they are enough."""
        if len(uploads) < self.plan.least:
            raise Unopened(f"{len(uploads)} clients uploaded, and at least {self.plan.least} must; nothing is opened")
        return frozenset(uploads)

    def signatures(self, k: int, named: frozenset[int], answers: Mapping[int, bytes]) -> dict[int, bytes]:
        """Q signatures of (run, k, U), from the answers to R2."""
        content = messages.about_set(self.plan, self.run, k, named)
        good = {i: each for i, each in answers.items() if messages.is_signed(self.plan.roster[i], each, content)}
        self._enough("signatures", len(good))
        return {i: good[i] for i in sorted(good)[: self.plan.quorum]}

    def open(
        self, k: int, named: frozenset[int], uploads: Mapping[int, Words], shares: Mapping[int, Sequence[int]]
    ) -> Words:
        """Σ u_i over U modulo 2^64, from the shares that Q clients gave in R2 (U = whole roster) or R3."""
        plan = self.plan
        givers = sorted(shares)[: plan.quorum]
        self._enough("answers", len(givers))
        factors = shamir.weights([i + 1 for i in givers])
        secrets = [shamir.combine(factors, [shares[i][j] for i in givers]) for j in range(plan.n)]
        place, width = k - plan.first, len(next(iter(uploads.values())))
        total = np.zeros(width, dtype=np.uint64)
        for i in named:
            self._must_fit(masks.commitment(plan, k, i, secrets[i]) == self.peers[i].commitments[place])
            total += uploads[i] - masks.own_mask(self.run, k, i, secrets[i], width)
        for j in plan.everyone - named:  # what those in U added for j, j would have subtracted
            pair = masks.pair_key(plan, k, j, secrets[j])
            self._must_fit(pair.public_key().public_bytes_raw() == self.peers[j].keys[place])
            for i in named:
                total += masks.pair_mask(self.run, k, j, i, pair, self.peers[i].keys[place], width)
        return total

    def _enough(self, what: str, count: int) -> None:
        if count < self.plan.quorum:
            raise Unopened(f"{count} {what} are there, and {self.plan.quorum} must be; nothing is opened")

    @staticmethod
    def _must_fit(fits: bool) -> None:
        if not fits:
            raise Unopened("a client gave false shares; nothing is opened")

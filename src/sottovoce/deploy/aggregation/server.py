"""The server's steps. What it is told is verified, so that a wrong message names its sender, and a wrong sum is not
taken for a sum. Privacy does not rest on any of that: it rests on what clients check.
"""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import Words
from sottovoce.deploy.aggregation import masks, messages, shamir
from sottovoce.deploy.aggregation.client import run_of
from sottovoce.deploy.aggregation.plan import Plan

MOST_WAYS = 1000  # of leaving clients out that are tried where a share does not fit


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
        self.liars: set[int] = set()  # who gave a false share in some round
        self.peers = [messages.Announcement.read(plan, i, announcements[i]) for i in range(plan.n)]
        self.announcements = b"".join(announcements[i] for i in range(plan.n))  # S2 question, to all
        self.run = run_of(plan, self.announcements)

    def deliver(self, boxes: Mapping[int, bytes]) -> dict[int, bytes]:
        """The S3 question to each client, from the answers of all to S2."""
        plan, length = self.plan, messages.box_length(self.plan)
        sent = {}
        for i in range(plan.n):
            rule = f"needs the shares of all clients, and those of {i} are missing"
            check.require(i in boxes, "set-up of sums", rule)
            parts = messages.pieces(f"S2 of client {i}", boxes[i], plan.n - 1, length)
            parts.insert(i, b"")
            sent[i] = parts
        return {j: b"".join(sent[i][j] for i in range(plan.n) if i != j) for j in range(plan.n)}

    def name_set(self, uploads: Mapping[int, Words]) -> frozenset[int]:
        """U: all who uploaded, if they are enough."""
        if len(uploads) < self.plan.least:
            raise Unopened(f"{len(uploads)} clients uploaded, and at least {self.plan.least} must; nothing is opened")
        return frozenset(uploads)

    def signatures(self, k: int, members: frozenset[int], answers: Mapping[int, bytes]) -> dict[int, bytes]:
        """Q signatures of (run, k, U), from the answers to R2."""
        content = messages.about_set(self.plan, self.run, k, members)
        good = {i: each for i, each in answers.items() if messages.is_signed(self.plan.roster[i], each, content)}
        self._enough("signatures", len(good))
        return {i: good[i] for i in sorted(good)[: self.plan.quorum]}

    def open(
        self, k: int, members: frozenset[int], uploads: Mapping[int, Words], shares: Mapping[int, Sequence[int]]
    ) -> Words:
        """Σ u_i over U modulo 2^64, from the shares that Q clients gave in R2 (U = whole roster) or R3.

        Who gave a share that does not fit is left out and noted in `liars`, as long as Q others are there. One liar is
        named for certain. Several who agree on their numbers can make it look as if it were another; the sum is right
        all the same, because every secret is compared with what S1 said.
        """
        plan, secrets = self.plan, self._secrets(k, members, shares)
        place, width = k - plan.first, len(next(iter(uploads.values())))
        total = np.zeros(width, dtype=np.uint64)
        for i in members:
            total += uploads[i] - masks.own_mask(self.run, k, i, secrets[i], width)
        for j in plan.everyone - members:  # what those in U added for j, j would have subtracted
            pair = masks.pair_key(plan, k, j, secrets[j])
            for i in members:
                total += masks.pair_mask(self.run, k, j, i, pair, self.peers[i].keys[place], width)
        return total

    def _secrets(self, k: int, members: frozenset[int], shares: Mapping[int, Sequence[int]]) -> list[int]:
        """The secrets of all clients that S1 committed them to, from the first Q clients whose shares fit."""
        givers, quorum = sorted(shares), self.plan.quorum
        self._enough("answers", len(givers))
        ways = (
            [i for i in givers[: quorum + spare] if i not in left_out]
            for spare in range(len(givers) - quorum + 1)
            for left_out in itertools.combinations(givers[: quorum + spare], spare)
        )
        for used in itertools.islice(ways, MOST_WAYS):
            secrets = self._joined(used, shares)
            if all(self._fits(k, i, secrets[i], i in members) for i in self.plan.everyone):
                others = (i for i in givers if i not in used)
                self.liars |= {i for i in others if self._joined([*used[1:], i], shares) != secrets}
                return secrets
        joined = enumerate(self._joined(givers[:quorum], shares))
        unfit = [i for i, secret in joined if not self._fits(k, i, secret, i in members)]
        why = f"they dealt false shares, or too many of {givers} gave false ones; nothing is opened"
        raise Unopened(f"shares of the secrets of {unfit} do not fit what these clients announced: {why}")

    def _joined(self, givers: Sequence[int], shares: Mapping[int, Sequence[int]]) -> list[int]:
        """The secret of each client, from the shares that Q clients gave."""
        factors = shamir.weights([i + 1 for i in givers])
        return [shamir.combine(factors, [shares[i][j] for i in givers]) for j in range(self.plan.n)]

    def _fits(self, k: int, i: int, secret: int, alive: bool) -> bool:
        """Whether it is the b_i^k (of a client in U) or the p_i^k (of another) that client i announced."""
        place = k - self.plan.first
        if alive:
            return masks.commitment(self.plan, k, i, secret) == self.peers[i].commitments[place]
        return masks.pair_key(self.plan, k, i, secret).public_key().public_bytes_raw() == self.peers[i].keys[place]

    def _enough(self, what: str, count: int) -> None:
        if count < self.plan.quorum:
            raise Unopened(f"{count} {what} are there, and {self.plan.quorum} must be; nothing is opened")

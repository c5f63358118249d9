"""Transport: clients on other machines, of whom the server sees sums only (`aggregation/`).

A set-up is made before the first round, and again when its rounds are used up, when nothing could be opened, or when a
client has lost what it agreed on. It asks nothing about data, so it is free: whoever cannot take part in it is left out
before anybody is charged. A round whose sum is not opened is over: it was charged, and the next one has fresh noise.
"""

import logging
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from sottovoce.core import codec
from sottovoce.core.check import InvalidInput
from sottovoce.core.contract import Method
from sottovoce.core.round import Exchange, State
from sottovoce.deploy import wire
from sottovoce.deploy.remote import Content, Remote, TooFewAnswers, understood
from sottovoce.deploy.summing import roster_question, settings_of, stated_in
from sottovoce.deploy.wire import Ask
from sottovoce.experiment import sums

if TYPE_CHECKING:
    from sottovoce.core.arrays import Words
    from sottovoce.deploy.aggregation.plan import Plan
    from sottovoce.deploy.aggregation.server import Server

log = logging.getLogger("sottovoce")
_TRIES = 4  # to set up with whoever is left
_SHORT = 10  # rounds of a set-up that somebody is missing in: then they may come back


class SummedRemote(Remote):
    """Clients on other machines, of whom only sums are seen. Parameters as of `Remote`."""

    _server: "Server | None" = None
    _roster: tuple[int, ...] = ()  # clients by their place in the protocol
    _broken = False  # somebody lost what was agreed on

    @property
    def _least(self) -> int:
        return stated_in(self._deployment.task)[0]

    def exchange(self, algorithm: Method, down: State, active: np.ndarray, k: int) -> Exchange | None:
        from sottovoce.deploy.aggregation.server import Unopened

        nobody = Exchange(None, np.zeros(self.n, dtype=bool))
        if (~self._spent).sum() < self._least:
            return None
        if self._server is None or self._broken or k > self._server.plan.last:
            self._server, self._broken = None, False
            self._server = self._set_up(k)
        uploads = self._uploads(down, active, k)
        if (~self._spent).sum() < self._least:
            return None
        try:
            members, total = self._opened(self._server, k, uploads)
        except Unopened as error:
            log.warning("round %d: %s; it stays charged, and the next one has fresh noise", k, error)
            self._server = None
            return nobody
        answered = np.zeros(self.n, dtype=bool)
        answered[[self._roster[place] for place in members]] = True
        if not answered.all():
            missing = (self._deployment.clients.names[client] for client in np.flatnonzero(~answered))
            log.info("round %d: the sum is without %s", k, ", ".join(missing))
        self.heard |= answered
        return sums.opened(self._blank, down, k, total, answered)

    # --------------------------------------------------------------------------------------------------------- set-up

    def _set_up(self, k: int) -> "Server":
        """With all who have budget left; those who fail in a step are left out of the next attempt.

        Where too few are left all are asked again: somebody may only have been slow.
        """
        there: list[int] = []
        for _ in range(_TRIES):
            able = np.flatnonzero(~self._spent).tolist()
            self._roster = tuple(sorted(there if len(there) >= self._least else able))
            server, there = self._attempt(self._plan(k))
            if server is not None:
                log.info("sums are set up with %d clients for rounds %d to %d", server.plan.n, k, server.plan.last)
                return server
        raise TooFewAnswers(
            f"round {k}: {len(there)} clients can take part in a sum and at least {self._least} must. "
            f"Nothing was charged. Run the app again to go on from round {k}"
        )

    def _plan(self, k: int) -> "Plan":
        from sottovoce.deploy.aggregation.plan import MOST_ROUNDS, Plan

        keys = tuple(bytes.fromhex(self._deployment.clients.signing_keys[client]) for client in self._roster)
        most = MOST_ROUNDS if len(self._roster) == self.n else _SHORT
        rounds = min(most, self._deployment.task.rounds - k + 1)
        return Plan(settings_of(self._ask(0, None, k)), keys, *stated_in(self._deployment.task), rounds, k)

    def _attempt(self, plan: "Plan") -> "tuple[Server | None, list[int]]":
        """S1, S2, S3: a set-up, or None; and who is left."""
        from sottovoce.deploy.aggregation.messages import Announcement, box_length, pieces
        from sottovoce.deploy.aggregation.server import Server

        k, names = plan.first, tuple(self._deployment.clients.names[client] for client in self._roster)
        question = roster_question(secrets.token_bytes(32), plan.rounds, names)
        signed = self._asked(k, wire.ANNOUNCE, dict.fromkeys(plan.everyone, question))  # S1
        signed = self._readable(signed, lambda place, content: Announcement.read(plan, place, content) and content)
        if len(signed) < plan.n:
            return None, [self._roster[place] for place in signed]
        server = Server(plan, signed)
        boxes = self._asked(k, wire.SHARE, dict.fromkeys(plan.everyone, server.announcements))  # S2
        boxes = self._readable(boxes, lambda _, content: b"".join(pieces("S2", content, plan.n - 1, box_length(plan))))
        if len(boxes) < plan.n:
            return None, [self._roster[place] for place in boxes]
        ready = self._asked(k, wire.RECEIVE, server.deliver(boxes), server.run)  # S3
        left = [self._roster[place] for place in ready]
        return (server if len(ready) == plan.n else None), left

    # --------------------------------------------------------------------------------------------------------- rounds

    def _uploads(self, down: State, active: np.ndarray, k: int) -> "dict[int, Words]":
        """R1: the masked numbers, by place."""
        from sottovoce.deploy.aggregation import messages

        assert self._server is not None
        width, run = sums.length(self._blank, down, k), self._server.run
        asked = {
            place: client for place, client in enumerate(self._roster) if active[client] and not self._spent[client]
        }
        asks = {
            client: self._ask(client, codec.rows(down, np.array([client])), k, wire.UPLOAD, run.hex())
            for client in asked.values()
        }
        uploads = self._replies(asks, k)
        return self._readable(
            {place: uploads[client] for place, client in asked.items() if client in uploads},
            lambda place, content: messages.read_numbers(content, width),
        )

    def _opened(self, server: "Server", k: int, uploads: "Mapping[int, Words]") -> "tuple[frozenset[int], Words]":
        """R2, and R3 where somebody is missing: the set, and the sum over it."""
        from sottovoce.deploy.aggregation import messages

        members, plan = server.name_set(uploads), server.plan
        question = messages.pack_set(plan, members)
        answers = self._asked(k, wire.STAND_FOR, dict.fromkeys(members, question), server.run)  # R2
        if members != plan.everyone:
            question = messages.pack_signatures(plan, members, server.signatures(k, members, answers))
            answers = self._asked(k, wire.REVEAL, dict.fromkeys(members, question), server.run)  # R3
        shares = self._readable(answers, lambda _, content: messages.read_shares("shares", content, plan.n))
        known = set(server.liars)
        total = server.open(k, members, uploads, shares)
        for place in sorted(server.liars - known):
            name = self._deployment.clients.names[self._roster[place]]
            log.warning("round %d: %s gave shares that do not fit; the sum was opened without them", k, name)
        return members, total

    # ------------------------------------------------------------------------------------------------------- questions

    def _asked(self, k: int, what: str, questions: Mapping[int, bytes], run: bytes = b"") -> dict[int, bytes]:
        """What was answered, by place."""
        client_of = {place: self._roster[place] for place in questions}
        asks = {
            client_of[place]: self._ask(client_of[place], content, k, what, run.hex())
            for place, content in questions.items()
        }
        answers = self._replies(asks, k)
        return {place: answers[client] for place, client in client_of.items() if client in answers}

    def _replies(self, asks: Mapping[int, Ask], k: int) -> dict[int, bytes]:
        """The bytes of those who answered; the others are told of."""
        answers: dict[int, bytes] = {}
        replies = self._post.ask(asks, self._deployment.clients.deadline) if asks else {}
        for client in asks:
            reply, content = understood(replies.get(client), wire.bytes_of)
            if content is not None:
                answers[client] = content
            else:
                self._spent[client] |= reply.code == wire.BUDGET
                self._broken |= reply.code == wire.SET_UP
                log.warning("round %d: %s", k, self._why(client, reply))
        return answers

    def _readable(self, sent: Mapping[int, bytes], read: Callable[[int, bytes], Content]) -> dict[int, Content]:
        """What can be read of it, by place; a client may send anything."""
        contents: dict[int, Content] = {}
        for place, content in sent.items():
            try:
                contents[place] = read(place, content)
            except InvalidInput as error:
                name = self._deployment.clients.names[self._roster[place]]
                log.warning("%s: %s: %s", name, wire.BAD_ANSWER, wire.printable(str(error), 300))
        return contents

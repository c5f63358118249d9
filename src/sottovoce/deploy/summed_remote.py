"""Transport: clients on other machines, of whom the server sees sums only (`aggregation/`).

A set-up is made before the first round, and again when its rounds are used up, when nothing could be opened, or when a
client has lost what it agreed on. It asks nothing about data, so it is free: whoever cannot take part in it is left out
before anybody is charged. A round whose sum is not opened is over: it was charged, and the next one has fresh noise.
"""

import secrets
from collections.abc import Callable, Mapping

import numpy as np

from sottovoce.core import codec
from sottovoce.core.arrays import Words
from sottovoce.core.contract import Method
from sottovoce.core.round import Exchange, State
from sottovoce.deploy import wire
from sottovoce.deploy.aggregation import messages
from sottovoce.deploy.aggregation.plan import MOST_ROUNDS, Plan
from sottovoce.deploy.aggregation.server import Server, Unopened
from sottovoce.deploy.remote import Content, Remote, TooFewAnswers, log
from sottovoce.deploy.summing import roster_question, settings_of, stated_in
from sottovoce.experiment import sums

_TRIES = 4  # to set up with whoever is left
_SHORT = 10  # rounds of a set-up that somebody is missing in: then they may come back


class SummedRemote(Remote):
    """Clients on other machines, of whom only sums are seen. Parameters as of `Remote`."""

    _server: Server | None = None
    _roster: tuple[int, ...] = ()  # clients by their place in the protocol
    _broken = False  # somebody lost what was agreed on

    @property
    def _least(self) -> int:
        return stated_in(self._deployment.task)[0]

    def exchange(self, algorithm: Method, down: State, active: np.ndarray, k: int) -> Exchange | None:
        answered = np.zeros(self.n, dtype=bool)
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
            return Exchange(None, answered)
        answered[[self._roster[place] for place in members]] = True
        if not answered.all():
            missing = (self._deployment.clients.names[client] for client in np.flatnonzero(~answered))
            log.info("round %d: the sum is without %s", k, ", ".join(missing))
        self.heard |= answered
        return sums.opened(self._blank, down, k, total, answered)

    # --------------------------------------------------------------------------------------------------------- set-up

    def _set_up(self, k: int) -> Server:
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
        why = f"{len(there)} clients can take part in a sum and at least {self._least} must"
        raise TooFewAnswers(f"round {k}: {why}. Nothing was charged. Run the app again to go on from round {k}")

    def _plan(self, k: int) -> Plan:
        keys = tuple(bytes.fromhex(self._deployment.clients.signing_keys[client]) for client in self._roster)
        most = MOST_ROUNDS if len(self._roster) == self.n else _SHORT
        rounds = min(most, self._deployment.task.rounds - k + 1)
        settings = settings_of(self._ask(0, None, k, wire.ANNOUNCE))
        return Plan(settings, keys, *stated_in(self._deployment.task), rounds, k)

    def _attempt(self, plan: Plan) -> tuple[Server | None, list[int]]:
        """S1, S2, S3: a set-up, or None; and who is left."""
        self._run, k, names = "", plan.first, tuple(self._deployment.clients.names[client] for client in self._roster)
        question = roster_question(secrets.token_bytes(32), plan.rounds, names)

        def announced(place: int, content: bytes) -> bytes:
            messages.Announcement.read(plan, place, content)  # refuses what is none
            return content

        def boxed(_: int, content: bytes) -> bytes:
            return messages.cut("S2", content, (plan.n - 1) * messages.box_length(plan))[0]

        signed = self._asked(k, wire.ANNOUNCE, dict.fromkeys(plan.everyone, question), announced)  # S1
        if len(signed) < plan.n:
            return None, [self._roster[place] for place in signed]
        server = Server(plan, signed)
        boxes = self._asked(k, wire.SHARE, dict.fromkeys(plan.everyone, server.announcements), boxed)  # S2
        if len(boxes) < plan.n:
            return None, [self._roster[place] for place in boxes]
        self._run = server.run.hex()
        ready = self._asked(k, wire.RECEIVE, server.deliver(boxes), _unread)  # S3
        return (server if len(ready) == plan.n else None), [self._roster[place] for place in ready]

    # --------------------------------------------------------------------------------------------------------- rounds

    def _uploads(self, down: State, active: np.ndarray, k: int) -> dict[int, Words]:
        """R1: the masked numbers, by place."""
        asked = [place for place, client in enumerate(self._roster) if active[client] and not self._spent[client]]
        questions = {place: codec.rows(down, np.array([self._roster[place]])) for place in asked}
        width = sums.length(self._blank, down, k)
        return self._asked(k, wire.UPLOAD, questions, lambda _, content: messages.read_numbers(content, width))

    def _opened(self, server: Server, k: int, uploads: Mapping[int, Words]) -> tuple[frozenset[int], Words]:
        """R2, and R3 where somebody is missing: the set, and the sum over it."""
        members, plan = server.name_set(uploads), server.plan

        def shares_of(_: int, content: bytes) -> list[int]:
            return messages.read_shares("shares", content, plan.n)

        question = dict.fromkeys(members, messages.pack_set(plan, members))
        if members == plan.everyone:
            shares = self._asked(k, wire.STAND_FOR, question, shares_of)  # R2
        else:
            answers = self._asked(k, wire.STAND_FOR, question, _unread)  # R2
            signed = messages.pack_signatures(plan, members, server.signatures(k, members, answers))
            shares = self._asked(k, wire.REVEAL, dict.fromkeys(members, signed), shares_of)  # R3
        known = set(server.liars)
        total = server.open(k, members, uploads, shares)
        for place in sorted(server.liars - known):
            name = self._deployment.clients.names[self._roster[place]]
            log.warning("round %d: %s gave shares that do not fit; the sum was opened without them", k, name)
        return members, total

    def _asked(
        self, k: int, what: str, questions: Mapping[int, State | bytes], read: Callable[[int, bytes], Content]
    ) -> dict[int, Content]:
        """What was answered, by place, as `read` reads it; the log says why others are silent."""
        place_of = {self._roster[place]: place for place in questions}
        to_clients = {client: questions[place] for client, place in place_of.items()}
        answers, silent = self._heard(what, k, to_clients, lambda who, up: read(place_of[who], wire.bytes_of(up)))
        for client, reply in silent.items():
            self._broken |= reply.code == wire.SET_UP
            log.warning("round %d: %s", k, self._why(client, reply))
        return {place_of[client]: content for client, content in answers.items()}


def _unread(_: int, content: bytes) -> bytes:
    """Bytes that are looked at later, or not at all."""
    return content

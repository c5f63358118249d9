"""Carries the server's questions over a Flower grid.

Nothing is asked of Flower that it does not promise: replies are matched by the message they reply to, and one that is
lost on its way is asked for again. A client that has answered gives the same answer, at no charge.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping

from flwr.app import Message
from flwr.serverapp import Grid

from sottovoce.core import check
from sottovoce.deploy import wire
from sottovoce.deploy.flower.records import KIND, log, replied, to_records

_POLL = 0.1, 0.5  # seconds between two looks for replies, at least and at most
_FIRST = 0.6  # of the time that the last replies took, after which to look for the first
_AGAIN = 0.25  # of the deadline, after which a question is asked again
_SOON = 1.0  # seconds after which a question is asked again whose answer is known to be lost
_PATIENCE, _TRIES = 60.0, 3  # seconds of a round for a newcomer to say who it is, and how often it is asked in vain


class FlowerPost:
    """Carries questions over a Flower grid. Nodes tell which client they are by their names."""

    def __init__(self, grid: Grid, names: tuple[str, ...], deadline: float) -> None:
        self._grid, self._names, self._patience = grid, names, min(deadline, _PATIENCE)
        self._node_of: dict[int, int] = {}
        self._refused: set[int] = set()
        self._silent: Counter[int] = Counter()
        self._usual = 0.0  # seconds that the last exchange took

    def ask(self, asks: Mapping[int, wire.Ask], deadline: float) -> dict[int, wire.Reply]:
        here = set(self._grid.get_node_ids())
        # New nodes, and those that came back under another id, are asked for their names.
        self._meet(here - self._refused - set(self._node_of.values()), self._patience)
        until = time.monotonic() + deadline
        absent = wire.Reply(wire.ABSENT, "its node is not connected")
        replies = {i: absent for i in asks if self._node_of.get(i) not in here}
        questions = {self._node_of[i]: ask for i, ask in asks.items() if i not in replies}
        client_of = {node: client for client, node in self._node_of.items()}
        for node, reply in self._exchange(questions, until).items():
            other = wire.Reply(wire.BAD_ANSWER, "it answered something else")
            replies[client_of[node]] = reply if isinstance(reply, wire.Reply) else other
        return replies

    def statuses(self, wait: float) -> dict[int, wire.Status]:
        """What each client says of itself; those that are not there yet are waited for."""
        until, met = time.monotonic() + wait, {}
        while True:
            here = set(self._grid.get_node_ids())
            new = [node for node in here - self._refused if node not in {self._node_of.get(i) for i in met}]
            met |= self._meet(new, max(self._patience, wait / _TRIES))
            if len(met) == len(self._names) or time.monotonic() >= until:
                return met
            time.sleep(0.5)

    def _meet(self, nodes: Iterable[int], patience: float) -> dict[int, wire.Status]:
        met: dict[int, wire.Status] = {}
        asked = {node: wire.Hello() for node in nodes}
        replies = self._exchange(asked, time.monotonic() + patience)
        self._silent.update(node for node in asked if node not in replies)
        self._refused |= {node for node, times in self._silent.items() if times >= _TRIES}  # it shall not delay others
        for node, status in replies.items():
            if isinstance(status, wire.Reply):  # it may say who it is another time, unless it is no client of ours
                log.warning("a node was left out: %s", status.reason())
                self._silent[node] += _TRIES if status.code == wire.BAD_ANSWER else 1
                continue
            try:
                client = self._names.index(check.one_of("app", "client", status.name, self._names))
                other = self._node_of.get(client)
                alone = other in (None, node) or other not in set(self._grid.get_node_ids())
                check.require(alone, "app", "two nodes have the same name", status.name)
            except check.InvalidInput as error:
                log.warning("a node was left out: %s", wire.printable(str(error), 300))
                self._silent[node] += _TRIES
                continue
            self._node_of[client], met[client] = node, status
        return met

    def _exchange(self, questions: Mapping[int, wire.Question], until: float) -> dict[int, wire.Response]:
        """Put one question to each node, and return the replies that came in time. Repeated ones are ignored.

        A question can be lost on its way, and so can a reply that the server could not store. So one who is silent is
        asked the same again after a part of the time there is; one whose reply is known to be lost, if its node is
        still there, soon.
        """
        begun = time.monotonic()
        pause = max(1.0, (until - begun) * _AGAIN)
        waiting = self._push(questions, until)
        again = dict.fromkeys(questions, begun + pause)  # when to ask a node again
        replies: dict[int, wire.Response] = {}
        lost: dict[int, wire.Response] = {}
        time.sleep(min(_FIRST * self._usual, pause))
        while len(replies) < len(questions) and (now := time.monotonic()) < until:
            for message in self._grid.pull_messages(list(waiting)):
                node = waiting.pop(message.metadata.reply_to_message_id, None)
                if node is None or node in replies:
                    continue
                reply = replied(message)
                here = not (isinstance(reply, wire.Reply) and reply.code == wire.UNREACHABLE)
                (replies if here else lost)[node] = reply
                again[node] = min(again[node], now + _SOON)
            if gone := lost.keys() - replies.keys() - set(self._grid.get_node_ids() if lost else ()):
                replies |= {node: lost[node] for node in gone}
            late = {node: question for node, question in questions.items() if node not in replies and again[node] < now}
            waiting |= self._push(late, until)
            again |= dict.fromkeys(late, now + pause)
            if len(replies) < len(questions):
                short, long = _POLL
                time.sleep(min(long, max(short, (now - begun) / 10)))
        self._usual = time.monotonic() - begun if questions and len(replies) == len(questions) else 0.0
        return lost | replies

    def _push(self, questions: Mapping[int, wire.Question], until: float) -> dict[str, int]:
        """Send one message to each node: {id of the message: node}. Flower drops what is older than its `ttl`."""
        ttl, nodes = max(1.0, until - time.monotonic()), list(questions)
        messages = [
            Message(to_records(questions[node]), dst_node_id=node, message_type=KIND, ttl=ttl) for node in nodes
        ]
        ids = list(self._grid.push_messages(messages)) if messages else []
        return {name: node for name, node in zip(ids, nodes, strict=False) if name}

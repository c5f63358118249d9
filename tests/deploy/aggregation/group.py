"""Clients of the protocol in one process, with stores that can be killed, looked into and put back."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sottovoce.core.arrays import Words
from sottovoce.deploy.aggregation import messages
from sottovoce.deploy.aggregation.client import Client
from sottovoce.deploy.aggregation.plan import Plan
from sottovoce.deploy.aggregation.server import Server

QUESTION, ATTEMPT = b"q" * 32, b"a" * 32


def signing_key(i: int) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes([i % 256, i // 256]) * 16)


def plan_for(n: int, least: int, colluders: int, rounds: int = 1, first: int = 1, key: int = 0) -> Plan:
    keys = tuple(signing_key(key + i).public_key().public_bytes_raw() for i in range(n))
    return Plan(b"s" * 32, keys, least, colluders, rounds, first)


def added(vectors: Iterable[Words]) -> Words:
    return np.asarray(np.sum(list(vectors), axis=0, dtype=np.uint64))  # modulo 2^64


class Killed(Exception):
    """The client's process ended here."""


@dataclass
class Dictionary:
    """A store in memory. `kill_at`: it is killed at this write, `late` after the write and not before it."""

    files: dict[str, bytes] = field(default_factory=dict)
    kill_at: int | None = None
    late: bool = False
    writes: int = 0

    def names(self) -> Iterable[str]:
        return list(self.files)

    def read(self, name: str) -> bytes | None:
        return self.files.get(name)

    def write(self, name: str, content: bytes) -> None:
        killed = self.writes == self.kill_at
        self.writes += 1
        if killed and not self.late:
            raise Killed
        self.files[name] = content
        if killed:
            raise Killed

    def write_all(self, contents: Mapping[str, bytes]) -> None:
        for name, content in contents.items():
            self.write(name, content)

    def delete(self, name: str) -> None:
        self.files.pop(name, None)


class Group:
    """All clients of a plan, set up or to be set up, and a server that follows the protocol."""

    def __init__(self, plan: Plan, seed: int = 0, width: int = 3) -> None:
        self.plan, self.rng, self.width = plan, np.random.default_rng(seed), width
        self.stores = [Dictionary() for _ in range(plan.n)]
        self.values: dict[tuple[int, int], Words] = {}  # u_i by (client, round), as drawn last
        self.server: Server | None = None

    def client(self, i: int) -> Client:
        """A fresh process: it knows what its store knows."""
        return Client(self.plan, signing_key(i), self.stores[i])

    def announced(self) -> dict[int, bytes]:
        """The S1 messages of a new attempt."""
        attempt = self.rng.bytes(32)
        return {i: self.client(i).announce(attempt) for i in range(self.plan.n)}

    def set_up(self) -> Server:
        self.server = Server(self.plan, self.announced())
        boxes = {i: self.client(i).share(self.server.announcements) for i in range(self.plan.n)}
        for i, box in self.server.deliver(boxes).items():
            self.client(i).receive(self.run, box)
        return self.server

    @property
    def run(self) -> bytes:
        assert self.server is not None
        return self.server.run

    def numbers(self, i: int, k: int) -> Words:
        self.values[i, k] = self.rng.integers(0, 2**64, self.width, dtype=np.uint64)
        return self.values[i, k]

    def upload(self, i: int, k: int, question: bytes = QUESTION) -> Words:
        content = self.client(i).upload(self.run, k, question, self.width, lambda: self.numbers(i, k))
        return messages.read_numbers(content, self.width)

    def sum_of(self, clients: Iterable[int], k: int) -> Words:
        """The right answer."""
        return added(self.values[i, k] for i in clients)

    def opened(self, k: int, absent: Iterable[int] = (), gone: Iterable[int] = ()) -> Words:
        """One round of the protocol. `absent` upload nothing; `gone` upload and are not heard of again."""
        assert self.server is not None
        server, there = self.server, [i for i in range(self.plan.n) if i not in set(absent)]
        uploads = {i: self.upload(i, k) for i in there}
        named = server.name_set(uploads)
        alive = [i for i in there if i not in set(gone)]
        answers = {i: self.client(i).stand_for(self.run, k, named) for i in alive}
        if named != self.plan.everyone:
            signatures = server.signatures(k, named, answers)
            answers = {i: self.client(i).reveal(self.run, k, named, signatures) for i in alive}
        return server.open(k, named, uploads, self.read(answers))

    def read(self, answers: Mapping[int, bytes]) -> dict[int, list[int]]:
        """The shares in these answers."""
        return {i: messages.read_shares("shares", content, self.plan.n) for i, content in answers.items()}

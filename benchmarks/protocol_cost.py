"""What it costs that the server sees sums only: each step of the protocol, and a round of a deployment.

    .venv/bin/python -m benchmarks.protocol_cost

Steps are in CPU milliseconds of one client or of the server. Rounds are between ten warm nodes and a server in one
process, without a network: each in CPU milliseconds of all of them, the set-up spread over the rounds. Rounds with and
without sums are played in turn.
"""

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tests.deploy.aggregation.group import Group, plan_for
from tests.deployments import LocalPost
from tests.summed import deployment_of, sums, write_owners

from sottovoce.deploy.aggregation.server import Server
from sottovoce.deploy.deployment import Deployment
from sottovoce.deploy.node import Node
from sottovoce.deploy.server import serve
from sottovoce.deploy.wire import Ask, Reply
from sottovoce.privacy.modes import Proven

ROUNDS, CLIENTS, TURNS = 20, 10, 3


class Clock:
    """CPU milliseconds by name."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    def __call__(self, name: str, work: Callable[[], Any], times: int = 1) -> Any:
        begun = time.process_time()
        done = work()
        self.spent[name] = (time.process_time() - begun) * 1e3 / times
        return done


def steps(n: int, least: int, colluders: int, width: int, missing: int) -> dict[str, float]:
    """CPU milliseconds of each step: `a client`, or the server's."""
    clock, group = Clock(), Group(plan_for(n, least, colluders, ROUNDS), width=width)
    announced = clock("set-up, a client: announce", group.announced, n)
    server = clock("set-up, server: verify", lambda: Server(group.plan, announced))
    group.server = server
    boxes = clock(
        "set-up, a client: share", lambda: {i: group.client(i).share(server.announcements) for i in range(n)}, n
    )
    sent = clock("set-up, server: deliver", lambda: server.deliver(boxes))
    clock("set-up, a client: receive", lambda: [group.client(i).receive(server.run, box) for i, box in sent.items()], n)
    for k, there in ((1, n), (2, n - missing)):
        also, named = ("", f", {missing} missing")[k - 1], frozenset(range(there))
        uploads = clock(
            f"round{also}, a client: upload", lambda k=k, u=named: {i: group.upload(i, k) for i in u}, there
        )
        stand = lambda k=k, u=named: {i: group.client(i).stand_for(server.run, k, u) for i in u}  # noqa: E731
        answers = clock(f"round{also}, a client: stand for the set", stand, there)
        if k == 2:
            signed = clock("round, server: collect signatures", lambda a=answers, u=named: server.signatures(2, u, a))
            give = lambda u=named, s=signed: {i: group.client(i).reveal(server.run, 2, u, s) for i in u}  # noqa: E731
            answers = clock(f"round{also}, a client: reveal", give, there)
        open_ = lambda k=k, u=named, y=uploads, a=answers: server.open(k, u, y, group.read(a))  # noqa: E731
        total = clock(f"round{also}, server: open", open_)
        assert np.array_equal(total, group.sum_of(named, k))
    clock.spent |= {"kB sent in the set-up, a client": (len(announced[0]) + len(boxes[0])) / 1e3}
    return clock.spent


class WarmPost(LocalPost):
    """Every message goes to the same nodes."""

    def __init__(self, files: list[Path]) -> None:
        super().__init__(files)
        self.nodes = [Node(file) for file in files]

    def ask(self, asks: Mapping[int, Ask], deadline: float) -> dict[int, Reply]:
        return {client: self.nodes[client].answer(ask) for client, ask in asks.items()}


def rounds(files: list[Path], made: Deployment, turn: int, folder: Path) -> tuple[float, float]:
    """CPU milliseconds of all before the second round, and of a round from then on."""
    times: list[float] = [time.process_time()]
    post = WarmPost(files)
    serve(made, f"{turn:032x}", post, folder, lambda _: times.append(time.process_time()))
    return (times[1] - times[0]) * 1e3, (times[-1] - times[1]) * 1e3 / (len(times) - 2)


def main() -> None:
    for n, least, colluders, width, missing in ((100, 80, 27, 104, 3), (10, 8, 3, 10**5, 2)):
        print(f"\n{n} clients, {width} numbers, set-up for {ROUNDS} rounds")
        for name, spent in steps(n, least, colluders, width, missing).items():
            print(f"  {name:45s} {spent:8.2f}")
    with tempfile.TemporaryDirectory() as place:
        files = write_owners(Path(place) / "rows", CLIENTS, least=7, colluders=0, epsilon=1000.0)
        summed = deployment_of(files, sums(least=7, colluders=0), ROUNDS)
        plain = deployment_of(files, Proven(20.0, 1e-3, clip=1.0, noise="discrete"), ROUNDS, signing_keys=[])
        found: dict[str, list[tuple[float, float]]] = {"with sums": [], "without": []}
        for turn in range(TURNS):
            for name, made in (("with sums", summed), ("without", plain)):
                number = 2 * turn + (made is plain)
                found[name].append(rounds(files, made, number, Path(place) / f"run{number}"))
    print(f"\na round of {CLIENTS} warm nodes and their server, CPU ms")
    (first, with_sums), (plain_first, without) = (np.min(times, axis=0) for times in found.values())
    with_sums += (first - plain_first) / ROUNDS
    print(f"  {'with sums':45s} {with_sums:8.2f}\n  {'without':45s} {without:8.2f}")
    print(f"  {'ratio':45s} {with_sums / without:8.2f}")


if __name__ == "__main__":
    main()

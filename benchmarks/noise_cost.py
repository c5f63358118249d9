"""What exact discrete Gaussian noise costs: this library's sampler, its bits, the operating system's bits and OpenDP.

    .venv/bin/python -m benchmarks.noise_cost

CPU time, each task in turn, so that a busy machine slows all alike. An answer at a node is everything from question to
reply: gradients of 8 records, clipped, truncated and summed as integers; noise; the ledger; and the answer's file.
"""

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import sottovoce as sv
from benchmarks.clock import side_by_side
from sottovoce.algorithms.dp_sgd import Down
from sottovoce.core.random.bits import SeededBits, SystemBits
from sottovoce.deploy.deployment import Deployment
from sottovoce.deploy.node import Node
from sottovoce.deploy.remote import Remote, TooFewAnswers
from sottovoce.deploy.wire import Ask
from sottovoce.experiment.tables import describe_task, to_toml
from sottovoce.experiment.task import Task
from sottovoce.privacy import discrete_noise
from sottovoce.privacy.discrete_gaussian import draw, draw_rows

SIGMA, COUNT, CLIENTS, COORDINATES, RECORDS = 2.0**20, 10**6, 100, 104, 8
FEWER = 100  # OpenDP draws a hundredth of the numbers
TURNS = 7


def answers_of_a_node(home: Path) -> Callable[[], None]:
    """A function that asks a warm node for one more answer of COUNT coordinates, with secure noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((RECORDS, COUNT))
    X /= 1.001 * np.linalg.norm(X, axis=1)[:, None]
    y = np.resize([-1.0, 1.0], RECORDS)
    np.savez(home / "rows.npz", X=X, y=y)
    data = {"npz": "rows.npz", "labels": ["-1", "1"], "row_bound": 1.0}
    limits = {"epsilon": 1e3, "delta": 1e-5, "algorithms": ["dp-sgd"], "losses": ["logistic"]}
    (home / "node.toml").write_text(to_toml({"node": {"name": "one"}, "data": data, "limits": limits}))
    privacy = sv.Proven(1e3, 1e-5, 1.0, noise="secure")
    task = Task(sv.DPSGD(), sv.Objective(sv.Logistic(), sv.L2(1e-3)), privacy)
    tables: Any = describe_task(task) | {"run": {"engine": "numpy", "rounds": 10 * TURNS, "seed": 0}}
    tables["clients"] = {"names": ["one"], "columns": COUNT, "row_bound": 1.0, "least": 1, "deadline": 60, "wait": 60}
    made, post = Deployment.build(tables, "run.toml"), _Listens()
    remote = Remote(made, "ab" * 16, post, np.array([RECORDS]))
    with suppress(TooFewAnswers):
        remote.exchange(made.task.algorithm, Down(np.zeros((1, COUNT))), np.ones(1, dtype=bool), 1)
    ask = post.asks[0]
    node, rounds = Node(home / "node.toml"), iter(range(1, 10 * TURNS))

    def answer() -> None:
        reply = node.answer(replace(ask, k=next(rounds)))
        assert not reply.code, reply.why

    return answer


class _Listens:
    """Keeps the questions, and brings no answer."""

    def ask(self, asks: Any, deadline: float) -> dict[int, Any]:
        self.asks: dict[int, Ask] = dict(asks)
        return {}

    def statuses(self, wait: float) -> dict[int, Any]:
        return {}


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        _measure(answers_of_a_node(Path(home)))


def _measure(answer_of_a_node: Callable[[], None]) -> None:
    draw(SIGMA, 1, SystemBits())
    secret, zeros = SystemBits(), np.zeros(COUNT // FEWER, np.int64)
    tasks = {
        "draw": lambda: draw(SIGMA, COUNT, secret),
        "bits": lambda: secret.words(3 * COUNT),
        "urandom": lambda: os.urandom(24 * COUNT),
        "opendp": lambda: discrete_noise.noised_by_opendp("gaussian", SIGMA, zeros),
        "node": answer_of_a_node,
        "answer": lambda: draw(SIGMA, COORDINATES, secret),
        "clients": lambda: draw_rows(SIGMA, COORDINATES, [SeededBits(0, f"client {i}") for i in range(CLIENTS)]),
    }
    turns = side_by_side(tasks, TURNS)
    opendp = turns.ms("opendp") * FEWER
    print(f"{COUNT:,} numbers, sigma = 2^20: {turns.ms('draw'):.0f} ms   (target: under 100 ms)")
    print(f"  their random bits: {turns.ms('bits'):.0f} ms by ChaCha20, {turns.ms('urandom'):.0f} ms by os.urandom")
    print(f"  OpenDP: {opendp:.0f} ms, {turns.ratio('opendp', 'draw') * FEWER:.0f} times as long")
    print(f"an answer of {COUNT:,} coordinates about {RECORDS} records at a warm node, secure noise: "
          f"{turns.ms('node') / 1e3:.2f} s   (target: under 0.5 s)")  # fmt: skip
    print(f"  OpenDP, for its noise alone: {turns.ratio('opendp', 'node') * FEWER:.0f} times as long")
    print(f"one client's {COORDINATES} numbers: {turns.ms('answer'):.3f} ms")
    print(f"a simulator's {CLIENTS} clients x {COORDINATES} seeded numbers: {turns.ms('clients'):.2f} ms")


if __name__ == "__main__":
    main()

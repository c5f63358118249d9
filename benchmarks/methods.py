"""Whole methods: what a round costs in passes over the data, a million clients in one process, and how time grows."""

import dataclasses
import functools
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from tests.local import assemble

import sottovoce as sv
from benchmarks import clock, loop, round_cost
from sottovoce.algorithms import DPADMM, ADMMSharing, FedAvg
from sottovoce.core.compiling import THREADS
from sottovoce.core.participation import Everyone
from sottovoce.core.random.streams import Purpose, Streams
from sottovoce.experiment.local import LocalClients
from sottovoce.privacy.noise_key import Occasion

NOTHING = sv.Objective(sv.Logistic(), sv.L2(1e-3))
PROVEN = sv.Proven(10.0, 1e-5, 1.0)
LEAST_CLIENTS, LEAST_ROWS, LEAST_FEATURES = 1000, 40, 20


def run(quick: bool = False, turns: int = 21) -> dict[str, Any]:
    turns = 5 if quick else turns
    THREADS.most = 1
    return {
        "rounds": rounds(5 * turns),
        "sharing": sharing(turns),
        "train": train(turns),
        "million": million(100_000 if quick else 1_000_000, 1 if quick else 3),
        "growth": growth(4 if quick else 16, max(3, turns // 3)),
        "float32": float32(),
    }


def rounds(turns: int) -> dict[str, Any]:
    """Round over passes made, of the parts alone: client, oracle, ledger and server."""
    numbers = {}
    for name, mode, cost in round_cost.costs(round_cost.NAMES, turns):
        print(f"methods: {name}, {mode}", flush=True)
        numbers[f"{name} {mode}"] = dataclasses.asdict(cost)
    return numbers


def sharing(turns: int) -> dict[str, float]:
    """A round of ADMM sharing against the two products with each party's columns that it cannot do without.

    And against plain SciPy: the same iterations as a script would write them, factors kept.
    """
    from scipy.linalg import cho_factor, cho_solve
    from scipy.special import expit

    samples, split, rho, lam = 4000, [35, 35, 34], 1.0, 1.0
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal((samples, columns)) for columns in split]
    y = np.where(np.hstack(parts) @ rng.standard_normal(sum(split)) > 0, 1.0, -1.0)
    federation = sv.VerticalFederation.from_columns(np.hstack(parts), y, split)
    objective, privacy = sv.Objective(sv.Logistic(), sv.L2(lam), scale="sum"), sv.NoPrivacy()

    def ours(count: int) -> None:
        sv.train(
            ADMMSharing(rho=rho), federation, objective, rounds=count, privacy=privacy, seed=0,
            record_every=10**9, measure_training=False,
        )  # fmt: skip

    factors = [cho_factor(lam * np.eye(part.shape[1]) + rho * part.T @ part) for part in parts]

    def scipy(count: int) -> None:
        scores: list[Any] = [np.zeros(samples) for _ in parts]
        z, dual = np.zeros(samples), np.zeros(samples)
        for _ in range(count):
            rest = z - sum(scores) - dual
            scores = [
                part @ cho_solve(factor, part.T @ (rho * (score + rest / len(parts))))
                for part, factor, score in zip(parts, factors, scores, strict=True)
            ]
            mean = sum(scores) + dual
            for _ in range(20):  # Newton's method, for each sample
                p = expit(-y * z)
                z = z - (-y * p + rho * (z - mean)) / (p * (1 - p) + rho)
            dual = mean - z

    v = rng.standard_normal(samples)
    products = lambda: [part @ (part.T @ v) for part in parts]  # noqa: E731
    turn = clock.side_by_side(
        {"20": lambda: ours(20), "70": lambda: ours(70), "scipy": lambda: scipy(50), "products": products}, turns
    )
    seconds = turn.seconds
    ours_ms = 1e3 * float(np.median(seconds["70"] - seconds["20"])) / 50
    return {
        "ms": ours_ms,
        "scipy ms": turn.ms("scipy") / 50,
        "products ms": turn.ms("products"),
        "over scipy": ours_ms / (turn.ms("scipy") / 50),
        "over products": ours_ms / turn.ms("products"),
    }


def train(turns: int) -> dict[str, Any]:
    """`train` as a user calls it: what its loop, ledger, noise and history add to the passes, at Adult size.

    Beside as many passes in a row as a run makes; and beside one alone, which finds other work's data in the caches.
    And what `bare` adds to the same passes: whoever also counts and checks adds more.
    """
    short, long = 5, 25
    numbers = {}
    for name, steps, each in (("one step", 1, 400), ("five steps", 5, 400), ("one step, 2000 rows a client", 1, 2000)):
        federation = round_cost.data(rows=each)
        place = assemble(FedAvg(), federation, NOTHING, PROVEN, Everyone(), long, Streams(0), None, "kernel")

        def passes(count: int, rows: Any = place.exact) -> None:
            for _ in range(count):
                rows.gradient(round_cost.POINT, clip=1.0)

        def play(
            mode: str, history: str, count: int, steps: int = steps, federation: sv.Federation = federation
        ) -> None:
            sv.train(
                FedAvg(local_steps=steps), federation, NOTHING, rounds=count, seed=0, engine="kernel",
                privacy=loop.proven() if mode == "proven" else sv.NoPrivacy(), measure_training=history == "objective",
            )  # fmt: skip

        tasks: dict[str, Callable[[], Any]] = {
            f"passes {count}": functools.partial(passes, count) for count in (1, steps * short, steps * long)
        }
        for mode, history, count in itertools.product(("none", "proven"), ("released", "objective"), (short, long)):
            tasks[f"{mode} {history} {count}"] = functools.partial(play, mode, history, count)
        for mode, count in itertools.product(("none", "proven"), (short, long)):
            tasks[f"{mode} bare {count}"] = functools.partial(bare, place, mode == "proven", steps, count)
        print(f"methods: train, {name}", flush=True)
        turn = clock.side_by_side(tasks, turns)
        in_a_row = (turn.seconds[f"passes {steps * long}"] - turn.seconds[f"passes {steps * short}"]) / (long - short)
        numbers[name] = {"pass ms": turn.ms("passes 1"), "passes ms": 1e3 * float(np.median(in_a_row))}
        for mode, history in itertools.product(("none", "proven"), ("released", "objective", "bare")):
            many, few = (turn.seconds[f"{mode} {history} {count}"] for count in (long, short))
            a_round = (many - few) / (long - short)
            numbers[name][f"{mode}, {history}"] = {
                "ms": 1e3 * float(np.median(a_round - in_a_row)),
                "in a row": clock.median_within(a_round / in_a_row - 1),
                "alone": clock.median_within(a_round / (steps * turn.seconds["passes 1"]) - 1),
            }
    return numbers


def bare(place: LocalClients, noisy: bool, steps: int, rounds: int) -> np.ndarray:
    """FedAvg without a library around it: pass, noise, step and mean. Nothing counts, checks, seals or records."""
    w, noise, everyone = np.zeros((1, place.dim)), np.array([[0.01]]), np.arange(place.n)
    for k in range(rounds):
        of_clients = w
        for step in range(steps):
            slope = place.exact.gradient(of_clients, clip=1.0)
            if noisy:
                occasion = Occasion(everyone, everyone, k + 1, Purpose.NOISE, step)
                slope = place.door.key.noisy("gaussian", noise, occasion, slope, (noise, of_clients), in_place=True)
            of_clients = of_clients - 0.1 * (slope + 1e-3 * of_clients)
        w = of_clients.mean(axis=0, keepdims=True)
    return w


def million(clients: int, turns: int) -> dict[str, Any]:
    """So many clients of 10 rows and 20 features in one process of its own: peak memory, and CPU seconds a round."""
    print(f"methods: {clients} clients", flush=True)
    numbers = {}
    for stored in ("float64", "float32"):
        task = [sys.executable, "-m", "benchmarks.methods", str(clients), stored]
        runs: list[dict[str, float]] = []
        for _ in range(turns):
            done = subprocess.run(task, capture_output=True, text=True, check=False, env=os.environ)
            if done.returncode:
                raise RuntimeError(done.stderr[-1000:])
            runs.append({name: float(value) for name, value in (word.split("=") for word in done.stdout.split())})
        memory, cpu, wall = (np.array([run[name] for run in runs]) for name in ("GiB", "cpu", "wall"))
        numbers[stored] = {
            "GiB": clock.median_within(memory), "cpu": float(np.median(cpu)), "wall": float(np.median(wall)),
        }  # fmt: skip
    return {"clients": clients, **numbers}


def _million(clients: int, stored: str) -> None:
    import resource

    rng = np.random.default_rng(0)
    X = rng.standard_normal((10 * clients, 20))
    X /= np.sqrt(np.einsum("ij,ij->i", X, X))[:, None] * (1 + 1e-12)
    y = np.where(rng.random(len(X)) < 0.5, 1.0, -1.0)
    names = tuple(map(str, range(clients)))
    federation = sv.Federation(X, y, np.arange(clients + 1) * 10, names, row_bound=1.0)
    del X
    if stored == "float32":
        federation = federation.in_float32()
    at: list[tuple[float, float]] = []
    sv.train(
        DPADMM(), federation, NOTHING, rounds=6, privacy=PROVEN, seed=0, measure_training=False, record_every=10**9,
        after_round=lambda checkpoint: at.append((time.process_time(), time.perf_counter())),
    )  # fmt: skip
    cpu, wall = np.median(np.diff(np.array(at), axis=0), axis=0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"GiB={peak:.3f} cpu={cpu:.3f} wall={wall:.3f}")


def growth(factor: int, turns: int) -> dict[str, Any]:
    """Exponents of CPU seconds a round of FedAvg with proven noise, in clients, in rows and in features."""
    numbers = {}
    for axis, base in (("clients", LEAST_CLIENTS), ("rows", LEAST_ROWS), ("features", LEAST_FEATURES)):
        sizes = [base * 2**power for power in range(1 + int(np.log2(factor)))]
        shape = {"clients": LEAST_CLIENTS, "rows": LEAST_ROWS, "features": LEAST_FEATURES}
        tasks = {str(size): _rounds_of(**(shape | {axis: size})) for size in sizes}
        print(f"methods: growth in {axis}", flush=True)
        turn = clock.side_by_side(tasks, turns)
        seconds = [float(turn.seconds[str(size)].min()) for size in sizes]
        numbers[axis] = {"sizes": sizes, "seconds": seconds, "exponent": clock.exponent(sizes, seconds)}
    return numbers


def _rounds_of(clients: int, rows: int, features: int) -> Callable[[], list[int]]:
    """Three rounds; what is done once has been done."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((clients * rows, features))
    X /= np.sqrt(np.einsum("ij,ij->i", X, X))[:, None] * (1 + 1e-12)
    y = np.where(rng.random(len(X)) < 0.5, 1.0, -1.0)
    federation = sv.Federation.from_arrays(X, y, np.repeat(np.arange(clients), rows), row_bound=1.0)
    algorithm = FedAvg()
    place = assemble(algorithm, federation, NOTHING, PROVEN, Everyone(), 1000, Streams(0), None, "kernel")
    play = round_cost.play(place, algorithm)
    return lambda: [next(play) for _ in range(3)]


def float32() -> dict[str, float]:
    """What rows in float32 change after 100 rounds on the same data, and what another draw of proven noise changes."""

    def end(rows: sv.Federation, privacy: Any, seed: int) -> sv.Result:
        return sv.train(
            FedAvg(step=1.0, local_steps=5), rows, NOTHING, rounds=100, privacy=privacy, seed=seed, engine="kernel",
            record_every=100,
        )  # fmt: skip

    federation = round_cost.data()
    wide, narrow = (end(rows, sv.NoPrivacy(), 0) for rows in (federation, federation.in_float32()))
    noisy = [end(federation, PROVEN, seed).history["objective"][-1] for seed in range(5)]
    return {
        "objective": float(abs(narrow.history["objective"][-1] - wide.history["objective"][-1])),
        "model": float(np.abs(narrow.model - wide.model).max() / np.abs(wide.model).max()),
        "between draws of noise": float(np.std(noisy, ddof=1)),
    }


if __name__ == "__main__":
    _million(int(sys.argv[1]), sys.argv[2])

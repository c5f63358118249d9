"""What a round of each method costs, in passes over the data: 100 clients x 400 rows x 104 features, compiled engine.

    .venv/bin/python -m benchmarks.round_cost
    .venv/bin/python -m benchmarks.round_cost --only fedepm led --profile

A pass is one gradient for all clients (clipped where the method's are), timed in CPU seconds before every round, so
that a busy machine slows both. A method should take little more than the passes it makes; those above 1.5 times are
flagged, and profiled with --profile. All is done on one thread (`--threads`): the pass is the only part that more would
speed up.
"""

import argparse
import cProfile
import dataclasses
import pstats
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from tests.local import assemble

import sottovoce as sv
from sottovoce.algorithms import ALGORITHMS
from sottovoce.core.compiling import THREADS
from sottovoce.core.contract import Algorithm, Hub, VerticalAlgorithm
from sottovoce.core.participation import Everyone
from sottovoce.core.random.streams import SERVER, Draw, Streams
from sottovoce.experiment.local import LocalClients

CLIENTS, ROWS, FEATURES, LOCAL_STEPS = 100, 400, 104, 5
WARM_UP, PLANNED, TOO_MUCH = 2, 1000, 1.5
GOAL = sv.Objective(sv.Logistic(), sv.L2(1e-3))
POINT = np.random.default_rng(0).normal(size=(CLIENTS, FEATURES))  # of a pass; at 0 the exponential costs nothing
OF_ROWS = [
    name for name, kind in ALGORITHMS.items() if not issubclass(kind, VerticalAlgorithm)
]  # the others: vertical.py
# Methods that ask for moments do so in their first round, and have no rounds to take the median of.
NAMES = [name for name in OF_ROWS if all(part.kind != "moments" for part in ALGORITHMS[name]().asks().parts)]
NAMES += ["fedspd-dp P", "fed-plt B", "fedepm P"]  # other places for proven noise
SERVER_ONLY = np.array([SERVER], dtype=np.uint64)


def data(clients: int = CLIENTS, rows: int = ROWS, columns: int = FEATURES) -> sv.Federation:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(clients * rows, columns))
    X /= np.linalg.norm(X, axis=1)[:, None] * (1 + 1e-12)  # norms of at most 1, whatever the rounding
    y = np.where(X @ rng.normal(size=columns) > 0, 1.0, -1.0)
    return sv.Federation.from_arrays(X, y, np.repeat(np.arange(clients), rows), row_bound=1.0)


def make(name: str) -> Algorithm:
    """A method by its name, or by its name and its variant."""
    name, _, variant = name.partition(" ")
    fields = {field.name for field in dataclasses.fields(ALGORITHMS[name])}
    steps = {"local_steps": LOCAL_STEPS} if "local_steps" in fields else {}
    return ALGORITHMS[name](**steps, **({"variant": variant} if variant else {}))


def privacy_of(mode: str, name: str) -> Any:
    if mode == "none":
        return sv.NoPrivacy()
    if mode == "published":
        return sv.Published(10.0, 1e-5, clip=1.0)
    return sv.Proven(10.0, 1e-5, 1.0, unit="client" if name == "dp-fedavg" else "record")


def costs(names: Sequence[str], times: int) -> Iterator[tuple[str, str, "Cost"]]:
    """(method, mode, cost) for all modes that a method has; variants beside the default are not the papers'."""
    federation = data()
    for name in names:
        algorithm = make(name)
        for mode in ("none", "published", "proven"):
            if mode not in algorithm.modes or (mode == "published" and " " in name):
                continue
            parts = (algorithm, federation, GOAL, privacy_of(mode, name), Everyone(), PLANNED, Streams(0), None)
            yield name, mode, measure(assemble(*parts, "kernel"), algorithm, times)


def clip_of(place: LocalClients) -> float | None:
    privacy = getattr(place.door, "privacy", None)
    return privacy.clip if isinstance(privacy, sv.Proven) and privacy.unit == "record" else None


def play(place: LocalClients, algorithm: Algorithm) -> Iterator[int]:
    """Play rounds one by one; yields the passes over the data that each made (0: a solver decided)."""

    def hub(k: int) -> Hub:
        draw, zeros = Draw(place.streams, SERVER_ONLY, k), np.zeros((1, place.dim))
        return Hub(place.n, place.task.objective.penalty, draw, k, everyone[:, None], zeros)

    plain, asked = place.exact.gradient, 0

    def counted(*about: Any) -> np.ndarray:
        nonlocal asked
        asked += 1
        return plain(*about)

    place.exact.gradient = counted
    everyone = np.ones(place.n, dtype=bool)
    place.start(algorithm)
    server = algorithm.init_server(hub(0))
    for k in range(1, PLANNED + 1):
        asked, down = 0, algorithm.broadcast(server, hub(k))
        exchange = place.exchange(algorithm, down, everyone, k)
        assert exchange is not None
        assert exchange.answered.all()
        server = algorithm.server(server, exchange.up, hub(k))
        yield 0 if algorithm.asks().only.kind == "argmin" else asked


@dataclasses.dataclass(frozen=True)
class Cost:
    needed: str
    round_ms: float
    pass_ms: float
    ratio: float | None


def measure(place: LocalClients, algorithm: Algorithm, times: int) -> Cost:
    """Medians over `times` rounds; one round of FedLin is two exchanges."""
    exchanges = 2 if algorithm.name == "fedlin" else 1
    one_gradient, clip = place.exact.gradient, clip_of(place)
    rounds = play(place, algorithm)
    taken, one_pass, needed = [], [], []
    for number in range(WARM_UP + times):
        begun = time.process_time()
        one_gradient(POINT, clip=clip)
        between = time.process_time()
        asked = sum(next(rounds) for _ in range(exchanges))
        ended = time.process_time()
        if number >= WARM_UP:
            one_pass.append(between - begun)
            taken.append(ended - between)
            needed.append(asked)
    round_ms, pass_ms = 1e3 * float(np.median(taken)), 1e3 * float(np.median(one_pass))
    if not needed[0]:
        return Cost("solver", round_ms, pass_ms, None)
    low, high = min(needed), max(needed)
    per_pass = 1e3 * float(np.median(np.divide(taken, needed)))
    return Cost(str(low) if low == high else f"{low}-{high}", round_ms, pass_ms, per_pass / pass_ms)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=101, help="rounds to take the median of")
    parser.add_argument("--only", nargs="*", choices=NAMES, default=NAMES, metavar="METHOD")
    parser.add_argument("--profile", action="store_true", help="show where the flagged ones spend their time")
    parser.add_argument("--threads", type=int, default=1, help="of the compiled kernels")
    options = parser.parse_args()
    THREADS.most = options.threads
    print(f"{CLIENTS} clients x {ROWS} rows x {FEATURES} features, {options.threads} threads; {options.times} rounds")
    print(f"{'method':12}{'mode':11}{'passes':>8}{'ms a round':>12}{'ms a pass':>12}{'ratio':>8}")
    for name, mode, cost in costs(options.only, options.times):
        ratio = "-" if cost.ratio is None else f"{cost.ratio:.2f}"
        flag = f"   above {TOO_MUCH}" if cost.ratio is not None and cost.ratio > TOO_MUCH else ""
        numbers = f"{cost.needed:>8}{cost.round_ms:12.2f}{cost.pass_ms:12.2f}{ratio:>8}"
        print(f"{name:12}{mode:11}{numbers}{flag}", flush=True)
        if flag and options.profile:
            profile(name, mode, options.times)


def profile(name: str, mode: str, times: int) -> None:
    algorithm = make(name)
    parts = (algorithm, data(), GOAL, privacy_of(mode, name), Everyone(), PLANNED, Streams(0), None)
    rounds = play(assemble(*parts, "kernel"), algorithm)
    for _ in range(WARM_UP):
        next(rounds)
    with cProfile.Profile() as shown:
        for _ in range(times):
            next(rounds)
    pstats.Stats(shown).sort_stats("tottime").print_stats(10)


if __name__ == "__main__":
    main()

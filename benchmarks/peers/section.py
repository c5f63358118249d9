"""Peers on the same problem: CPU milliseconds a round, memory, size of the installation, lines the user writes.

A round costs (CPU of a long run - CPU of a short one) / (rounds between them), so that imports and set-up drop out:
each by the quickest of some runs, since whatever disturbs a set-up would count as a faster or slower round. Ours and a
NumPy loop are timed beside every run of a peer, and ratios are taken within such a turn.
"""

import functools
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import clock
from benchmarks.peers.environments import ENVIRONMENTS, Unavailable
from benchmarks.peers.watch import watch

SCRIPTS = Path(__file__).parent / "scripts"
LONGEST = 1800.0  # seconds of one process
RUNS = 3  # short ones, and as many long ones, in turn


@dataclass(frozen=True)
class Peer:
    name: str
    script: str
    environment: str = ""  # "": ours
    options: tuple[str, ...] = ()
    rounds: tuple[int, int] = (5, 45)  # of the short and of the long run
    turns: int = 3
    family: bool = False  # whether it starts processes of its own
    same: bool = True  # whether it is FedAvg, which must end where all others end
    more: str = ""  # what it does that this problem does not need


NUMPY = Peer("NumPy loop", "numpy_loop.py", rounds=(10, 310))
OURS = Peer("sottovoce", "run_sottovoce.py", rounds=(10, 310))
EXACT = Peer("sottovoce, no privacy", "run_sottovoce.py", options=("--exact",), rounds=(10, 310))
WIDE = Peer("sottovoce, float64", "run_sottovoce.py", options=("--float64",), rounds=(10, 310))

PEERS = (
    Peer(
        *("decent-bench FedAvg", "run_decent_bench.py", "decent-bench"),
        more="an object for each agent, messages that may be dropped, noisy or compressed, counters, snapshots",
    ),
    Peer(
        *("decent-bench Fed-LT", "run_decent_bench.py", "decent-bench", ("--fed-lt",)),
        same=False,
        more="the same; the nearest published code to Fed-PLT",
    ),
    Peer(
        *("JAX, vmap", "run_jax.py", "jax"),
        rounds=(10, 310), turns=7, more="nothing: a loop of its own for this problem, compiled as a whole",
    ),
    Peer("FedJAX", "run_fedjax.py", "fedjax", more="any JAX model, batches, accelerators"),
    Peer("pfl-research", "run_pfl.py", "pfl", more="any PyTorch model, central privacy, many processes"),
    Peer("fluke", "run_fluke.py", "fluke", more="any PyTorch model, loggers, checkpoints", turns=2),
    Peer("APPFL FedAvg", "run_appfl.py", "appfl", rounds=(3, 13), turns=1, more="any PyTorch model, deployment"),
    Peer(
        *("APPFL IIADMM", "run_appfl.py", "appfl", ("--iiadmm",)),
        rounds=(3, 13), turns=1, same=False, more="the same; an inexact ADMM whose noise breaks its duals",
    ),
    Peer("Flower simulation", "run_flower.py", "flower", turns=1, rounds=(5, 25), family=True,
         more="the code that is simulated is the code that is deployed; any model; isolation of clients"),
)  # fmt: skip


def run(quick: bool = False, only: Sequence[str] = ()) -> dict[str, Any]:
    """Goes on from what is there: a peer that has been measured is not measured again, unless it is named."""
    numbers: dict[str, Any] = clock.kept("peers") or {}
    numbers.setdefault("peers", {})
    if "ours" in only or (not only and "ours" not in numbers):
        numbers["ours"] = {str(steps): ours(steps, 1 if quick else 5) for steps in (1, 5)}
        numbers["fedepm"] = fedepm()
        clock.keep("peers", numbers)
    for peer in left(only):
        print(f"peers: {peer.name}", flush=True)
        try:
            cost = ENVIRONMENTS[peer.environment].ready()
            numbers["peers"][peer.name] = {"install": cost, "lines": lines(peer), "more": peer.more}
            for steps in (1, 5):
                numbers["peers"][peer.name][str(steps)] = beside(peer, steps, 1 if quick else peer.turns)
        except Unavailable as reason:
            numbers["peers"][peer.name] = {"missing": str(reason)}
            print(f"peers: {reason}", flush=True)
        clock.keep("peers", numbers)
    return numbers


def left(only: Sequence[str] = (), anew: bool = False) -> list[Peer]:
    """The peers that are named; or, if none is, those that have not been measured, which are all where it is `anew`."""
    if only:
        return [peer for peer in PEERS if {peer.name, peer.environment} & set(only)]
    measured = {} if anew else (clock.kept("peers") or {}).get("peers", {})
    return [peer for peer in PEERS if "1" not in measured.get(peer.name, {})]


def ours(steps: int, turns: int) -> dict[str, Any]:
    found = {peer.name: [a_round(peer, steps) for _ in range(turns)] for peer in (NUMPY, OURS, EXACT, WIDE)}
    return {
        name: {key: float(np.median([one[key] for one in some])) for key in some[0]} | {"lines": lines_of(name)}
        for name, some in found.items()
    }


def beside(peer: Peer, steps: int, turns: int) -> dict[str, Any]:
    """Medians over turns of: ours, the NumPy loop, the peer, one after the other."""
    found = []
    for _ in range(turns):
        mine, loop, theirs = (a_round(one, steps) for one in (OURS, NUMPY, peer))
        ratios = {"over ours": theirs["ms"] / mine["ms"], "over NumPy": theirs["ms"] / loop["ms"]}
        found.append(theirs | ratios | {"ours ms": mine["ms"]})
        if peer.same:
            wanted = _objective(steps, peer.rounds[1])
            assert abs(theirs["objective"] - wanted) < 1e-5, f"{peer.name} does not solve the same problem"
    within = clock.median_within(np.array([one["over ours"] for one in found]))
    medians = {key: float(np.median([one[key] for one in found])) for key in found[0]}
    return medians | {"turns": turns, "low": within["low"], "high": within["high"]}


def a_round(peer: Peer, steps: int, *shape: str) -> dict[str, float]:
    """CPU and wall milliseconds of a round, peak memory, and the objective that the long run reached."""
    interpreter = ENVIRONMENTS[peer.environment].interpreter if peer.environment else sys.executable
    command = [str(interpreter), peer.script, *peer.options, "--steps", str(steps), *shape, "--rounds"]
    short, long = map(str, peer.rounds)
    # Only from outside are all processes of a family seen; a single one times itself, one run after the other. Its
    # first run is for what is done once: compilers.
    runs = RUNS * [[short], [long]] if peer.family else [[short, *RUNS * [short, long]]]
    families = [watch([*command, *some], SCRIPTS, LONGEST) for some in runs]
    results = [line for done in families for line in done.output.splitlines() if line.startswith("RESULT ")]
    if len(results) != sum(map(len, runs)):
        last = (families[-1].errors.strip().splitlines() or ["nothing"])[-1]
        raise Unavailable(f"it ended with {families[-1].code} and said: {last[:200]}")
    found = [json.loads(line.removeprefix("RESULT ")) for line in results]
    if peer.family:
        for one, done in zip(found, families, strict=True):
            one["cpu"] = done.cpu
    between = (peer.rounds[1] - peer.rounds[0]) / 1e3
    found = found if peer.family else found[1:]
    shorts, longs = found[::2], found[1::2]
    cpu, wall = (min(run[of] for run in longs) - min(run[of] for run in shorts) for of in ("cpu", "wall"))
    return {
        "ms": cpu / between,
        "wall ms": wall / between,
        "megabytes": families[-1].megabytes,
        "objective": found[-1]["objective"],
    }


def fedepm() -> dict[str, float]:
    """A round of FedEPM in gradient passes: the paper's Table I (m = 50, 12 local steps), and ours beside a pass.

    The paper's pass is the slope of SFedAvg's time in its number of gradients.
    """
    from tests.local import assemble

    from benchmarks import methods, round_cost
    from sottovoce.algorithms import FedEPM
    from sottovoce.core.compiling import THREADS
    from sottovoce.core.participation import Everyone
    from sottovoce.core.random.streams import Streams
    from sottovoce.reproduce.fedepm import TABLE_1

    THREADS.most = 1
    paper_pass = (TABLE_1[50, 20][0] - TABLE_1[50, 4][0]) / 16
    algorithm = FedEPM(k0=12)
    parts = (algorithm, round_cost.data(), methods.NOTHING, methods.PROVEN, Everyone(), round_cost.PLANNED, Streams(0))
    cost = round_cost.measure(assemble(*parts, None, "kernel"), algorithm, 21)
    return {
        "paper ms": 1e3 * TABLE_1[50, 12][2],
        "paper passes": TABLE_1[50, 12][2] / paper_pass,
        "ours ms": cost.round_ms,
        "our passes": cost.round_ms / cost.pass_ms,
    }


def lines(peer: Peer) -> int:
    """Lines of the script that a user would write: those between its two marks that are not blank or comments."""
    text = (SCRIPTS / peer.script).read_text().split("# user: from here\n")[1].split("# to here")[0]
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in text.splitlines())


def lines_of(name: str) -> int:
    return lines(next(peer for peer in (NUMPY, OURS, EXACT, WIDE) if peer.name == name))


@functools.cache
def _objective(steps: int, rounds: int) -> float:
    """Where FedAvg must end after so many rounds."""
    done = watch([sys.executable, NUMPY.script, "--rounds", str(rounds), "--steps", str(steps)], SCRIPTS, LONGEST)
    return json.loads(done.output.removeprefix("RESULT "))["objective"]

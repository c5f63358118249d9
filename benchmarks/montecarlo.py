"""Monte Carlo: many runs through the runs axis against a loop over seeds; Fed-PLT's problem, and an audit's plays."""

from dataclasses import replace
from typing import Any

import sottovoce as sv
from benchmarks import clock
from sottovoce.algorithms import DPADMM, FedPLT
from sottovoce.auditing.audit import Player
from sottovoce.auditing.papers import proven_game
from sottovoce.core.compiling import THREADS
from sottovoce.core.participation import KOfN
from sottovoce.core.random.streams import Streams
from sottovoce.reproduce import fed_plt_trials as paper

SEEDS, PLAYS = 100, 20_000
ROUNDS = 50


def run(quick: bool = False, turns: int = 5) -> dict[str, Any]:
    THREADS.most = 1
    some = 4 if quick else 20  # seeds of the loop, which is timed by these
    numbers = {"fed-plt": fed_plt(SEEDS // 4 if quick else SEEDS, some // 2, 2 if quick else turns)}
    return numbers | {"audit": audit(PLAYS // 10 if quick else PLAYS, some, 1 if quick else 3)}


def fed_plt(seeds: int, some: int, turns: int) -> dict[str, float]:
    """10 agents x 20 rows x 16, ten local steps, half of the agents a round."""
    federation = paper.data(0)
    strong, smooth = paper.moduli(federation)
    algorithm = FedPLT(rho=paper.RHO, local_steps=paper.LOCAL_STEPS, strong=strong, smooth=smooth)

    def play(engine: Any, seed: int, runs: int | None = None) -> None:
        sv.train(
            algorithm, federation, paper.goal(), rounds=ROUNDS, privacy=sv.NoPrivacy(), participation=KOfN(5),
            seed=seed, runs=runs, record_every=ROUNDS, engine=engine,
        )  # fmt: skip

    tasks = {"loop": lambda: [play("numpy", seed) for seed in range(some)]}
    tasks |= {engine: lambda engine=engine: play(engine, 0, seeds) for engine in ("numpy", "kernel")}
    turn = clock.side_by_side(tasks, turns)
    return _against(turn, seeds, some) | {"seeds": seeds, "rounds": ROUNDS}


def audit(plays: int, some: int, turns: int) -> dict[str, float]:
    """Ten rounds of DP-ADMM with proven noise on the worst-case record; `plays` runs, a cacheful at a time."""
    game = replace(proven_game(DPADMM(), sv.Proven(1.0, 1e-5, 1.0)), engine="numpy")
    tasks: dict[str, Any] = {}
    alone = Player(game, 0, 1)
    tasks["loop"] = lambda: [alone.play(Streams(seed, 1)) for seed in range(some)]
    for engine in ("numpy", "kernel"):
        players = Player(replace(game, engine=engine), 0, game.at_once)
        times = -(-plays // game.at_once)
        tasks[engine] = lambda players=players, times=times: [
            players.play(Streams(turn, game.at_once)) for turn in range(times)
        ]
    turn = clock.side_by_side(tasks, turns)
    return _against(turn, plays, some) | {"plays": plays, "at once": game.at_once}


def _against(turn: clock.Turns, many: int, some: int) -> dict[str, float]:
    """Milliseconds a run in the loop and on the axis, and how many times faster the axis is."""
    numbers = {"loop ms": turn.ms("loop") / some}
    for engine in ("numpy", "kernel"):
        numbers[f"{engine} ms"] = turn.ms(engine) / many
        numbers[f"{engine} gain"] = turn.ratio("loop", engine) * many / some
    return numbers

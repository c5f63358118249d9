"""FedEPM (Zhou and Li 2022), section VII: objective, rounds, time and signal-to-noise ratio over k0, rho and eps.

Adult in 14 columns of unit length, 45 222 rows cut at random into m parts. The ridge is β m/d for all clients, the
mean of the paper's β/d_i up to their spread. A run ends by the rule that fits the paper's figures, |∇f/m|² < 1e-9
n, or f and the gradient both larger than three rounds ago; or after `MOST` rounds, for SFedAvg and SFedProx rarely
stop.
"""

import time
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

import sottovoce as sv
from sottovoce.algorithms import FedEPM, SFedAvg, SFedProx
from sottovoce.core.contract import Method
from sottovoce.core.participation import Everyone, KOfN
from sottovoce.core.plain import Json
from sottovoce.core.round import Checkpoint
from sottovoce.problems import partition
from sottovoce.reproduce.experiment import Cell, Claim, Columns, Experiment, Panel, Sweep, Table, every
from sottovoce.reproduce.trials import Enough, encoded, watch
from sottovoce.reproduce.verdicts import Which, above, alike, falls, lowest, rises

BETA, FEATURES, MOST = 1e-3, 14, 100
METHODS = ("FedEPM", "SFedAvg", "SFedProx")
RUNS = 10  # of FedEPM on each partition


def _partition(table: Table) -> np.ndarray:
    return table["run"] // np.where(table["method"] == "FedEPM", RUNS, 1)


OURS: Which = {"where": {"method": "FedEPM"}, "draw": _partition}

# ----------------------------------------------------------------------------------------------------------- the trials


def _rows(m: int, seed: int) -> sv.Federation:
    adult = encoded("ranks")
    return sv.Federation.from_arrays(adult.X, adult.y, partition.random_cuts(len(adult.y), m, seed=seed))


def _goal(rows: sv.Federation) -> sv.Objective:
    return sv.Objective(sv.Logistic(), penalty=sv.L2(BETA * rows.n / len(rows.y)))


def _method(name: str, m: int, share: float, k0: int) -> Method:
    if name == "FedEPM":
        return FedEPM.as_in_paper(m, share, k0=k0)
    return (SFedAvg if name == "SFedAvg" else SFedProx)(local_steps=k0)


def _watched(algorithm: Method, seen: list[tuple[np.ndarray, np.ndarray]]) -> Method:
    """The same method; `seen` gets the lengths of what clients release and of the noise on it."""
    kind: Any = type(algorithm)

    class Watched(kind):
        def client(self, state: Any, down: Any, site: Any) -> Any:
            def release(u: np.ndarray, noise: Any = None, centre: Any = None) -> np.ndarray:
                z = site.release(u, noise, centre)
                seen[:] = [(np.linalg.norm(u, axis=-1), np.linalg.norm(z - u, axis=-1))]
                return z

            return super().client(state, down, replace(site, release=release))

    return Watched(**{each.name: getattr(algorithm, each.name) for each in fields(algorithm)})


class _Trials:
    """Runs on one partition: f/m and its gradient over the rounds, and what each run had when it stopped."""

    def __init__(self, rows: sv.Federation, algorithm: Method, runs: int, most: int, stop: bool) -> None:
        self.rows, self.runs, self.most, self.stop = rows, runs, most, stop
        self.ridge = BETA * rows.n / len(rows.y)
        self.weight = np.repeat(1 / (rows.n * rows.sizes), rows.sizes)
        self.seen: list[tuple[np.ndarray, np.ndarray]] = []
        self.algorithm = _watched(algorithm, self.seen)
        self.values: list[np.ndarray] = []
        self.slopes: list[np.ndarray] = []
        self.ends: dict[int, tuple[float, ...]] = {}  # run -> CR, f/m, TCT, SNR
        self.begun, self.measuring = time.process_time(), 0.0

    def __call__(self, checkpoint: Checkpoint) -> None:
        since = time.process_time()
        k, w = checkpoint.k, self.algorithm.model(checkpoint.server)[:, 0, :]
        margin = (self.rows.X @ w.T) * self.rows.y[:, None]
        slope = self.ridge * w - ((self.weight * self.rows.y)[:, None] / (1 + np.exp(margin))).T @ self.rows.X
        self.values.append(self.weight @ np.logaddexp(0, -margin) + self.ridge / 2 * np.square(w).sum(axis=-1))
        self.slopes.append(np.square(slope).sum(axis=-1))
        self.measuring += time.process_time() - since
        stops = (self.slopes[-1] < 1e-9 * FEATURES) | (k == self.most)
        if k > 3:
            stops |= (self.values[-1] > self.values[-4]) & (self.slopes[-1] > self.slopes[-4])
        length, noise = self.seen[0]
        for run in np.flatnonzero(stops).tolist():
            taken = (time.process_time() - self.begun - self.measuring) / self.runs
            ratio = float(np.log10(length[run] / noise[run]).min())
            self.ends.setdefault(run, (k, float(self.values[-1][run]), taken, ratio))
        if self.stop and len(self.ends) == self.runs:
            raise Enough


def run(
    method: str,
    m: int,
    k0: int,
    share: float,
    epsilon: float,
    partitions: int,
    runs: int,
    most: int = MOST,
    trace: bool = False,
) -> Columns:
    """CR, f/m, TCT (CPU seconds) and SNR of every trial; or with `trace` f/m over rounds, without stopping."""
    recorded = []
    for seed in range(partitions):
        rows = _rows(m, seed)
        trials = _Trials(rows, _method(method, m, share, k0), runs, most, stop=not trace)
        options: Json = {"rounds": most, "seed": seed, "runs": runs, "engine": "kernel"}
        options["participation"] = Everyone() if share == 1 else KOfN(round(share * m))
        watch(trials.algorithm, rows, _goal(rows), sv.Published(epsilon), trials, **options)
        if trace:
            values = enumerate(trials.values, start=1)
            recorded += [(seed * runs + r, k, value) for k, row in values for r, value in enumerate(row)]
        else:
            recorded += [(seed * runs + r, *trials.ends[r]) for r in range(runs)]
    names = ("run", "round", "objective") if trace else ("run", "CR", "objective", "TCT", "SNR")
    return dict(zip(names, np.array(recorded).T, strict=True))


# ------------------------------------------------------------------------------------------------------------- Figure 2


PLAIN = {"share": (0.5,), "epsilon": (0.1,)}
TRACE = {"runs": 1, "trace": True}
FIGURE_2 = Experiment(
    "fedepm-figure-2",
    "Figure 2: objective over communication rounds",
    Sweep(
        run,
        every(m=(50, 128), k0=(4, 12, 20), method=METHODS, **PLAIN),
        every(m=(50,), k0=(4,), method=METHODS, **PLAIN),
        {"partitions": 5, "most": 60, **TRACE},
        {"partitions": 2, "most": 10, **TRACE},
    ),
    [
        Claim(
            "FedEPM declines the fastest",
            "FedEPM lowest (after 10 rounds)",
            lowest("objective", "method", "FedEPM", where={"round": 10.0}, each=("m", "k0")),
            robust=True,
        ),
        Claim(
            "all three approach the same objective",
            "the same; to 0.01, as we read it",
            alike("objective", "method", 0.01, each=("m", "k0")),
        ),
    ],
    [
        Panel("objective", lines=("method",), where={"m": m, "k0": k0}, title=f"m = {m}, k0 = {k0}")
        for m in (50, 128)
        for k0 in (4, 12, 20)
    ],
)

# ------------------------------------------------------------------------------------------------------ Figures 3 to 5


def _sizes(method: str, quick: bool) -> dict[str, int]:
    """Trials: 100 of FedEPM; fewer of the others, which cost 3 to 30 times as much a round."""
    if method == "FedEPM":
        return {"partitions": 2, "runs": 2, "most": 40} if quick else {"partitions": 10, "runs": RUNS}
    return {"partitions": 2, "runs": 1, "most": 4} if quick else {"partitions": 20, "runs": 1}


def _over(quick: bool, name: str, values: Sequence[float], numbers: Sequence[int] = (50,)) -> list[Cell]:
    """All three methods, m of `numbers` and the named values (quick: the ends); all else is as in the paper."""
    axes = {"k0": (12,), **PLAIN, name: values[:: len(values) - 1] if quick else values}
    settings = every(m=numbers, **axes, method=METHODS)
    return [Cell(setting, run, _sizes(str(setting["method"]), quick)) for setting in settings]


M_50: Which = {"where": {"method": "FedEPM", "m": 50}, "draw": _partition}
FIGURE_3 = Experiment(
    "fedepm-figure-3",
    "Figure 3: rounds and time over k0",
    lambda quick: _over(quick, "k0", (4, 8) if quick else (4, 8, 12, 16, 20), (50,) if quick else (50, 128)),
    [
        Claim("more local steps, fewer rounds", "CR falls with k0", falls("CR", "k0", **M_50)),
        Claim("more local steps, less time", "TCT falls with k0", falls("TCT", "k0", **M_50)),
        Claim(
            "FedEPM needs the fewest rounds",
            "FedEPM lowest",
            lowest("CR", "method", "FedEPM", each=("m", "k0"), draw=_partition),
        ),
        Claim(
            "FedEPM takes the least time",
            "FedEPM lowest",
            lowest("TCT", "method", "FedEPM", each=("m", "k0"), draw=_partition),
        ),
    ],
    [
        Panel(y, "k0", ("method",), {"m": m}, f"m = {m}", log="y", draw=_partition)
        for m in (50, 128)
        for y in ("CR", "TCT")
    ],
)
FIGURE_4 = Experiment(
    "fedepm-figure-4",
    "Figure 4: rounds and time over the share of clients in a round",
    lambda quick: _over(quick, "share", (0.2, 0.4, 0.6, 0.8, 1.0)),
    [
        Claim(
            "more clients a round, fewer rounds (it says: slightly)", "CR falls with rho", falls("CR", "share", **OURS)
        ),
        Claim("more clients a round, more time", "TCT rises with rho", rises("TCT", "share", **OURS)),
        *(
            Claim(
                f"FedEPM has the lowest median of {what}",
                "FedEPM lowest",
                lowest(y, "method", "FedEPM", each=("share",), draw=_partition),
            )
            for what, y in (("rounds", "CR"), ("time", "TCT"))
        ),
    ],
    [Panel(y, "share", ("method",), xlabel="ρ", kind="box", log="y") for y in ("CR", "TCT")],
)
FIGURE_5 = Experiment(
    "fedepm-figure-5",
    "Figure 5: rounds, time and signal-to-noise ratio over eps",
    lambda quick: _over(quick, "epsilon", (0.1, 0.3, 0.5, 0.7, 0.9)),
    [
        *(
            Claim(
                f"eps hardly changes the {what}",
                "within 20 %, as we read it",
                alike(y, "epsilon", 0.2, relative=True, **OURS),
            )
            for what, y in (("number of rounds", "CR"), ("time", "TCT"))
        ),
        Claim(
            "a larger eps, a larger signal-to-noise ratio",
            "SNR rises with eps",
            rises("SNR", "epsilon", **OURS),
        ),
        Claim(
            "FedEPM has the smallest signal-to-noise ratio",
            "FedEPM lowest",
            lowest("SNR", "method", "FedEPM", each=("epsilon",), draw=_partition),
        ),
    ],
    [
        Panel(y, "epsilon", ("method",), xlabel="ε", kind="box", log="y" if y != "SNR" else "")
        for y in ("CR", "TCT", "SNR")
    ],
)

# ------------------------------------------------------------------------------------------------------------- Table I

TABLE_1 = {  # (m, k0) -> seconds of SFedAvg, SFedProx, FedEPM
    (50, 4): (0.0037, 0.0082, 0.0011),
    (50, 8): (0.0067, 0.0155, 0.0015),
    (50, 12): (0.0096, 0.0226, 0.0018),
    (50, 16): (0.0125, 0.0293, 0.0021),
    (50, 20): (0.0148, 0.0360, 0.0023),
    (128, 4): (0.0058, 0.0109, 0.0019),
    (128, 8): (0.0097, 0.0198, 0.0024),
    (128, 12): (0.0132, 0.0279, 0.0030),
    (128, 16): (0.0172, 0.0359, 0.0036),
    (128, 20): (0.0213, 0.0457, 0.0041),
}


def local_time(m: int, k0: int, rounds: int) -> Columns:
    """Median CPU time of a round of each method, as multiples of FedEPM's."""
    rows, taken = _rows(m, seed=0), {}
    options: Json = {"rounds": rounds, "seed": 0, "engine": "kernel", "participation": KOfN(m // 2)}
    for method in METHODS:
        ends = [time.process_time()]
        algorithm, privacy = _method(method, m, 0.5, k0), sv.Published(0.1)
        watch(algorithm, rows, _goal(rows), privacy, lambda _, ends=ends: ends.append(time.process_time()), **options)
        taken[method] = float(np.median(np.diff(ends)[1:]))
    return {"method": list(taken), "times_fedepm": [value / taken["FedEPM"] for value in taken.values()]}


def _longer(method: str, number: int) -> Claim:
    ratios = {key: row[number] / row[2] for key, row in TABLE_1.items()}
    return Claim(
        f"{method} takes longer in a round than FedEPM",
        f"{min(ratios.values()):.1f} to {max(ratios.values()):.1f} times",
        above("times_fedepm", ("m", "k0"), 1, paper=ratios, where={"method": method}),
    )


TABLE_I = Experiment(
    "fedepm-table-1",
    "Table I: local computation time as multiples of FedEPM's",
    Sweep(
        local_time,
        [{"m": m, "k0": k0} for m, k0 in TABLE_1],
        [{"m": 50, "k0": 12}],
        {"rounds": 15},
        {"rounds": 6},
        alone=True,
    ),
    [_longer("SFedAvg", 0), _longer("SFedProx", 1)],
    [Panel("times_fedepm", "k0", ("method",), {"m": m}, f"m = {m}", ylabel="time, FedEPM = 1") for m in (50, 128)],
)
EXPERIMENTS = (FIGURE_2, FIGURE_3, TABLE_I, FIGURE_4, FIGURE_5)

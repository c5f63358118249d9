"""FedEPM (Zhou and Li 2022), section VII: objective, rounds, time and signal-to-noise ratio over k0, rho and eps.

Adult in 14 columns of unit length, 45 222 rows cut at random into m parts. The ridge is β m/d for all clients, the
mean of the paper's β/d_i up to their spread. A run ends by the rule of the authors' code, which differs from the
printed one: |∇f/m|² < 1e-9 n; or the variance of f over four rounds below 1e-9 n/(1 + f); or f and the gradient both
above the largest of the last three; or after 500 rounds.
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
from sottovoce.reproduce.verdicts import Rule, alike, falls, lowest, near, rises

BETA, FEATURES, MOST = 1e-3, 14, 500
METHODS = ("FedEPM", "SFedAvg", "SFedProx")
PARTITIONS, RUNS = 4, 25  # of FedEPM on each: 100 trials; one of the others, which cost far more


def _partition(table: Table) -> np.ndarray:
    return table["partition"]


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
        self.ends: dict[int, tuple[float, ...]] = {}  # run -> CR, f/m, TCT, SNR, whether it was cut
        self.begun, self.measuring = time.process_time(), 0.0

    def __call__(self, checkpoint: Checkpoint) -> None:
        since = time.process_time()
        k, w = checkpoint.k, self.algorithm.model(checkpoint.server)[:, 0, :]
        margin = (self.rows.X @ w.T) * self.rows.y[:, None]
        slope = self.ridge * w - ((self.weight * self.rows.y)[:, None] / (1 + np.exp(margin))).T @ self.rows.X
        self.values.append(self.weight @ np.logaddexp(0, -margin) + self.ridge / 2 * np.square(w).sum(axis=-1))
        self.slopes.append(np.square(slope).sum(axis=-1))
        self.measuring += time.process_time() - since
        stops = self.stops()
        length, noise = self.seen[0]
        for run in np.flatnonzero(stops | (k == self.most)).tolist():
            taken = (time.process_time() - self.begun - self.measuring) / self.runs
            ratio = float(np.log10(length[run] / noise[run]).min())
            self.ends.setdefault(run, (k, float(self.values[-1][run]), taken, ratio, float(not stops[run])))
        if self.stop and len(self.ends) == self.runs:
            raise Enough

    def stops(self) -> np.ndarray:
        """Which runs the rule of the authors' code would end now."""
        enough = 1e-9 * FEATURES
        stops = self.slopes[-1] < enough
        if len(self.values) > 3:
            f, slopes = self.rows.n * np.array(self.values[-4:]), np.array(self.slopes[-4:])
            stops = stops | (f.var(axis=0, ddof=1) < enough / (1 + f[-1]))
            stops |= (f[-1] > f[:-1].max(axis=0)) & (slopes[-1] > slopes[:-1].max(axis=0))
        return stops


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
    """CR, f/m, TCT (CPU seconds), SNR and whether it was cut, of every trial; with `trace` f/m over all rounds."""
    recorded = []
    for seed in range(partitions):
        rows = _rows(m, seed)
        trials = _Trials(rows, _method(method, m, share, k0), runs, most, stop=not trace)
        options: Json = {"rounds": most, "seed": seed, "runs": runs, "engine": "kernel"}
        options["participation"] = Everyone() if share == 1 else KOfN(round(share * m))
        watch(trials.algorithm, rows, _goal(rows), sv.Published(epsilon), trials, **options)
        if trace:
            values = enumerate(trials.values, start=1)
            recorded += [(seed, r, k, value) for k, row in values for r, value in enumerate(row)]
        else:
            recorded += [(seed, r, *trials.ends[r]) for r in range(runs)]
    names = ("round", "objective") if trace else ("CR", "objective", "TCT", "SNR", "cut")
    return dict(zip(("partition", "run", *names), np.array(recorded).T, strict=True))


# ------------------------------------------------------------------------------------------------------------- Figure 2


PLAIN = {"share": (0.5,), "epsilon": (0.1,)}
TRACE = {"runs": 1, "trace": True}
FIGURE_2 = Experiment(
    "fedepm-figure-2",
    "Figure 2: objective over communication rounds",
    Sweep(
        run,
        every(m=(50, 100), k0=(4, 12, 20), method=METHODS, **PLAIN),
        every(m=(50,), k0=(4,), method=METHODS, **PLAIN),
        {"partitions": PARTITIONS, "most": 60, **TRACE},
        {"partitions": PARTITIONS, "most": 10, **TRACE},
    ),
    [
        Claim(
            "FedEPM declines the fastest",
            "FedEPM lowest (after 10 rounds)",
            lowest("objective", "method", "FedEPM", where={"round": 10.0}, each=("m", "k0"), paired=_partition),
            robust=True,
        ),
    ],
    [
        Panel(
            "objective",
            lines=("method",),
            where={"m": m, "k0": k0},
            title=f"m = {m}, $k_0$ = {k0}",
            xlabel="communication rounds",
            ylabel="f(w)/m",
        )
        for m in (50, 100)
        for k0 in (4, 12, 20)
    ],
)

# ------------------------------------------------------------------------------------------------------ Figures 3 to 5

MEASURES = {"CR": "rounds", "TCT": "time"}
LABELS = {"CR": "communication rounds", "TCT": "CPU seconds", "SNR": "log10 of signal to noise"}


def _sizes(method: str, quick: bool) -> dict[str, int]:
    """Trials: 100 of FedEPM; fewer of the others, which cost 3 to 30 times as much a round."""
    if method == "FedEPM":
        return {"partitions": 2, "runs": 2, "most": 40} if quick else {"partitions": PARTITIONS, "runs": RUNS}
    return {"partitions": 2, "runs": 1, "most": 4} if quick else {"partitions": PARTITIONS, "runs": 1}


def _over(quick: bool, name: str, values: Sequence[float], numbers: Sequence[int] = (50,)) -> list[Cell]:
    """All three methods, m of `numbers` and the named values (quick: the ends); all else is as in the paper."""
    axes = {"k0": (12,), **PLAIN, name: values[:: len(values) - 1] if quick else values}
    settings = every(m=numbers, **axes, method=METHODS)
    return [Cell(setting, run, _sizes(str(setting["method"]), quick)) for setting in settings]


def _trends(says: str, paper: str, rule: Any, *arguments: Any, each: Sequence[str] = (), **more: Any) -> list[Claim]:
    """What the paper says of all three methods, for each of them."""

    def of(method: str) -> Rule:
        where = {"method": method}
        return rule(*arguments, where=where, paired=_partition, **({"each": each} if each else {}), **more)

    return [Claim(f"{says} ({method})", paper, of(method)) for method in METHODS]


def _best(each: Sequence[str], where: str = "") -> list[Claim]:
    """FedEPM has the fewest rounds and the least time in every setting."""
    return [
        Claim(
            f"FedEPM needs the least {what}{where}",
            "FedEPM lowest",
            lowest(y, "method", "FedEPM", each=each, paired=_partition),
        )
        for y, what in MEASURES.items()
    ]


FIGURE_3 = Experiment(
    "fedepm-figure-3",
    "Figure 3: rounds and time over k0",
    lambda quick: _over(quick, "k0", (4, 8) if quick else (4, 12, 20), (50,) if quick else (50, 100)),
    [
        *_trends("more local steps, fewer rounds", "CR falls with k0", falls, "CR", "k0", each=("m",)),
        *_trends("more local steps, less time", "TCT falls with k0", falls, "TCT", "k0", each=("m",)),
        *_best(("m", "k0")),
        Claim(
            "SFedProx needs fewer rounds than SFedAvg",
            "SFedProx lower",
            lowest(
                "CR",
                "method",
                "SFedProx",
                where={"method": ["SFedProx", "SFedAvg"]},
                each=("m", "k0"),
                paired=_partition,
            ),
        ),
        Claim(
            "all three approach the same objective (Figure 2)",
            "the same where they stop; to 0.01, as we read it",
            alike("objective", "method", 0.01, each=("m", "k0"), draw=_partition),
        ),
    ],
    [
        Panel(y, "k0", ("method",), {"m": m}, f"m = {m}", "$k_0$", LABELS[y], log="y", draw=_partition, cut="cut")
        for m in (50, 100)
        for y in MEASURES
    ],
)
FIGURE_4 = Experiment(
    "fedepm-figure-4",
    "Figure 4: rounds and time over the share of clients in a round",
    lambda quick: _over(quick, "share", (0.2, 0.6, 1.0)),
    [
        *_trends("more clients a round, fewer rounds", "CR falls with rho", falls, "CR", "share"),
        *_trends(
            "but only slightly fewer",
            "slightly; by less than a factor of 2, as we read it",
            alike,
            "CR",
            "share",
            1.0,
            relative=True,
        ),
        *_trends("more clients a round, more time", "TCT rises with rho", rises, "TCT", "share"),
        *_best(("share",)),
    ],
    [Panel(y, "share", ("method",), xlabel="ρ", ylabel=LABELS[y], kind="box", log="y", cut="cut") for y in MEASURES],
)
FIGURE_5 = Experiment(
    "fedepm-figure-5",
    "Figure 5: rounds, time and signal-to-noise ratio over eps",
    lambda quick: _over(quick, "epsilon", (0.1, 0.5, 0.9)),
    [
        *(
            claim
            for y, what in MEASURES.items()
            for claim in _trends(
                f"eps hardly changes the {what}",
                "within 20 %, as we read it",
                alike,
                y,
                "epsilon",
                0.2,
                relative=True,
            )
        ),
        *_trends("a larger eps, a larger signal-to-noise ratio", "SNR rises with eps", rises, "SNR", "epsilon"),
        Claim(
            "FedEPM has the smallest signal-to-noise ratio",
            "FedEPM lowest",
            lowest("SNR", "method", "FedEPM", each=("epsilon",), paired=_partition),
        ),
        *_best(("epsilon",), " at every eps"),
    ],
    [
        Panel(
            y, "epsilon", ("method",), xlabel="ε", ylabel=LABELS[y], kind="box", log="" if y == "SNR" else "y",
            cut="" if y == "SNR" else "cut",
        )
        for y in LABELS
    ],
)  # fmt: skip

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
RIVALS = {"SFedAvg": 0, "SFedProx": 1}  # places in that


def local_time(m: int, k0: int, rounds: int, partitions: int) -> Columns:
    """Median CPU time of a round of each method on each partition, and as a multiple of FedEPM's."""
    recorded: list[tuple[int, str, float, float]] = []
    for seed in range(partitions):
        rows, taken = _rows(m, seed), {}
        options: Json = {"rounds": rounds, "seed": seed, "engine": "kernel", "participation": KOfN(m // 2)}
        for method in METHODS:
            ends = [time.process_time()]
            algorithm, privacy = _method(method, m, 0.5, k0), sv.Published(0.1)
            note = lambda _, ends=ends: ends.append(time.process_time())  # noqa: E731
            watch(algorithm, rows, _goal(rows), privacy, note, **options)
            taken[method] = float(np.median(np.diff(ends)[1:]))
        recorded += [(seed, name, 1000 * value, value / taken["FedEPM"]) for name, value in taken.items()]
    return dict(zip(("partition", "method", "milliseconds", "times_fedepm"), zip(*recorded, strict=True), strict=True))


def _ratios(method: str) -> dict[tuple[int, int], float]:
    return {key: row[RIVALS[method]] / row[2] for key, row in TABLE_1.items()}


def _longer(method: str) -> list[Claim]:
    ratios, where = _ratios(method), {"method": method}
    pair = {"method": [method, "FedEPM"]}
    return [
        Claim(
            f"{method} takes longer in a round than FedEPM",
            "FedEPM lowest",
            lowest("milliseconds", "method", "FedEPM", where=pair, each=("m", "k0"), paired=_partition),
        ),
        Claim(
            f"by so many times ({method})",
            f"{min(ratios.values()):.1f} to {max(ratios.values()):.1f} times; to a factor of 2, as we read it",
            near("times_fedepm", ("m", "k0"), ratios, 2.0, where=where, draw=_partition),
        ),
    ]


TABLE_I = Experiment(
    "fedepm-table-1",
    "Table I: local computation time of a round",
    Sweep(
        local_time,
        [{"m": m, "k0": k0} for m, k0 in TABLE_1],
        [{"m": 50, "k0": 12}],
        {"rounds": 15, "partitions": PARTITIONS},
        {"rounds": 4, "partitions": 1},
        alone=True,
    ),
    [
        *(claim for method in RIVALS for claim in _longer(method)),
        *_trends("more local steps take longer", "rises with k0", rises, "milliseconds", "k0", each=("m",)),
    ],
    [
        Panel(
            "times_fedepm",
            "k0",
            ("method",),
            {"m": m, "method": list(RIVALS)},
            f"m = {m}",
            "$k_0$",
            "time of a round, FedEPM = 1",
            paper={name: {k: ratio for (n, k), ratio in _ratios(name).items() if n == m} for name in RIVALS},
            draw=_partition,
        )
        for m in (50, 128)
    ],
)
EXPERIMENTS = (FIGURE_2, FIGURE_3, TABLE_I, FIGURE_4, FIGURE_5)

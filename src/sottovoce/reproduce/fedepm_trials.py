"""FedEPM and its rivals on the problem of its section VII: rounds, time and signal-to-noise ratio where a run ends.

Adult in 14 columns of unit length, 45 222 rows cut at random into m parts. The ridge is β m/d for all clients, the
mean of the paper's β/d_i up to their spread. A run ends by the rule of the authors' code, which differs from the
printed one: |∇f/m|² < 1e-9 n; or the variance of f over four rounds below 1e-9 n/(1 + f); or f and the gradient both
above the largest of the last three; or after 500 rounds.
"""

import itertools
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

import sottovoce as sv
from sottovoce.algorithms import FedEPM, SFedAvg, SFedProx
from sottovoce.algorithms.fedepm import Client, Down, Up
from sottovoce.core.contract import Method, Site
from sottovoce.core.participation import KOfN
from sottovoce.core.plain import Json
from sottovoce.core.round import Checkpoint
from sottovoce.problems import partition
from sottovoce.reproduce.experiment import Columns
from sottovoce.reproduce.trials import Enough, encoded, watch

BETA, FEATURES, MOST = 1e-3, 14, 500
METHODS = ("FedEPM", "SFedAvg", "SFedProx")
PLAIN = {"k0": 12, "share": 0.5, "epsilon": 0.1}  # what is not varied
# Not the paper's: each differs from one of these in one thing, to tell why a result is not the paper's.
UNLIMITED, PRINTED_MU = "SFedAvg, to its own end", "FedEPM, μ as printed"
FIXED, FRESH = "FedEPM, η of ρ = 1", "FedEPM, η of ρ = 1, model of the new messages only"
RESET = f"{FRESH}, steps from w"
AS_PRINTED = "(34) as printed"
LATE = (UNLIMITED, FRESH, RESET, AS_PRINTED)  # such runs do not stop where f and its gradient rise


def cut_at_random(m: int, seed: int) -> sv.Federation:
    adult = encoded("ranks")
    return sv.Federation.from_arrays(adult.X, adult.y, partition.random_cuts(len(adult.y), m, seed=seed))


def goal(rows: sv.Federation) -> sv.Objective:
    return sv.Objective(sv.Logistic(), penalty=sv.L2(BETA * rows.n / len(rows.y)))


class FromTheModel(FedEPM):
    """Not the paper's: a client's steps start at the server's w, not at its own w_i."""

    def client(self, state: Client, down: Down, site: Site) -> tuple[Client, Up]:
        return super().client(Client(np.broadcast_to(down.w, state.w.shape)), down, site)


def method_named(name: str, m: int, share: float, k0: int) -> Method:
    if name.startswith("FedEPM"):
        changed: Json = {"over": "uploaded" if name in (FRESH, RESET) else "all", "by_size": name != PRINTED_MU}
        kind = FromTheModel if name == RESET else FedEPM
        return kind.as_in_paper(m, 1.0 if name in (FIXED, FRESH, RESET) else share, k0=k0, **changed)
    rival = SFedProx if name.startswith("SFedProx") else SFedAvg
    return rival(local_steps=k0, over="drawn" if name.endswith(AS_PRINTED) else "uploaded")


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


class _Trial:
    """One run: f/m and its gradient over the rounds, and what it had when it stopped."""

    def __init__(self, rows: sv.Federation, algorithm: Method, most: int, rise_stops: bool) -> None:
        self.rows, self.most, self.rise_stops = rows, most, rise_stops
        self.ridge = BETA * rows.n / len(rows.y)
        self.weight = np.repeat(1 / (rows.n * rows.sizes), rows.sizes)
        self.seen: list[tuple[np.ndarray, np.ndarray]] = []
        self.algorithm = _watched(algorithm, self.seen)
        self.values: list[float] = []
        self.slopes: list[float] = []
        self.end: tuple[float, ...] = ()  # CR, f/m, SNR, whether it was cut, whether f and its gradient had risen

    def note(self, checkpoint: Checkpoint) -> None:
        """f/m and its gradient after a round."""
        w = self.algorithm.model(checkpoint.server).ravel()
        odds = np.exp(-(self.rows.X @ w) * self.rows.y)  # once for both, as this is done after every round
        slope = self.ridge * w - (self.weight * self.rows.y * odds / (1 + odds)) @ self.rows.X
        self.values.append(float(self.weight @ np.log(1 + odds) + self.ridge / 2 * w @ w))
        self.slopes.append(float(slope @ slope))

    def note_until_it_stops(self, checkpoint: Checkpoint) -> None:
        self.note(checkpoint)
        still, risen = self.stops()
        if still or risen or checkpoint.k == self.most:
            length, noise = self.seen[0]
            with np.errstate(divide="ignore"):  # after thousands of rounds there is none
                ratio = float(np.log10(length / noise).min())
            cut = not (still or risen)
            self.end = (checkpoint.k, self.values[-1], ratio, float(cut), float(risen and not still))
            raise Enough

    def stops(self) -> tuple[bool, bool]:
        """Whether the rule of the authors' code would end it now: as it stands still; as f and its gradient rise."""
        enough = 1e-9 * FEATURES
        still, risen = self.slopes[-1] < enough, False
        if len(self.values) > 3:
            f, slopes = self.rows.n * np.array(self.values[-4:]), np.array(self.slopes[-4:])
            still = still or bool(f.var(ddof=1) < enough / (1 + f[-1]))
            risen = bool(f[-1] > f[:-1].max() and slopes[-1] > slopes[:-1].max())
        return still, risen and self.rise_stops


def run(
    method: str,
    m: int,
    k0: int,
    share: float,
    epsilon: float,
    partitions: int,
    last: int = MOST,
    trace: bool = False,
) -> Columns:
    """CR, f/m, SNR and how it ended, on every partition; with `trace` f/m over all rounds."""
    recorded = []
    for seed in range(partitions):
        rows = cut_at_random(m, seed)
        trial = _Trial(rows, method_named(method, m, share, k0), last, rise_stops=not method.endswith(LATE))
        options: Json = {"rounds": last, "seed": seed, "runs": 1, "engine": "kernel"}
        options["participation"] = KOfN(round(share * m))
        note = trial.note if trace else trial.note_until_it_stops
        watch(trial.algorithm, rows, goal(rows), sv.Published(epsilon), note, **options)
        recorded += [(seed, k, f) for k, f in enumerate(trial.values, start=1)] if trace else [(seed, *trial.end)]
    names = ("round", "objective") if trace else ("CR", "objective", "SNR", "cut", "risen")
    return {"run": 0, **dict(zip(("partition", *names), np.array(recorded).T, strict=True))}


def local_time(
    m: int, varied: str, values: Sequence[float], rounds: int, partitions: int, methods: Sequence[str] = METHODS
) -> Columns:
    """Median CPU time of a round of each method with each value of what is `varied`, and as a multiple of the first's.

    All are timed in turns on one partition after the other, so that whatever else a machine does falls on all alike.
    """
    recorded: list[tuple[int, str, float, float, float]] = []
    for seed in range(partitions):
        rows, taken = cut_at_random(m, seed), {}
        for value, method in itertools.product(values, methods):
            setting = PLAIN | {varied: value}
            ends, privacy = [time.process_time()], sv.Published(setting["epsilon"])
            algorithm = method_named(method, m, setting["share"], int(setting["k0"]))
            options: Json = {"rounds": rounds, "seed": seed, "engine": "kernel"}
            options["participation"] = KOfN(round(setting["share"] * m))
            note = lambda _, ends=ends: ends.append(time.process_time())  # noqa: E731
            watch(algorithm, rows, goal(rows), privacy, note, **options)
            taken[value, method] = float(np.median(np.diff(ends)[1:]))
        recorded += [(seed, who, at, 1000 * one, one / taken[at, methods[0]]) for (at, who), one in taken.items()]
    names = ("partition", "method", varied, "milliseconds", "times_fedepm")
    return dict(zip(names, zip(*recorded, strict=True), strict=True))

"""FedEPM and its rivals on the problem of its section VII: rounds, time and signal-to-noise ratio where a run ends.

Adult in 14 columns of unit length, 45 222 rows cut at random into m parts. The ridge is β m/d for all clients, the
mean of the paper's β/d_i up to their spread. A run ends by the rule of the authors' code, which differs from the
printed one: |∇f/m|² < 1e-9 n; or the variance of f over four rounds below 1e-9 n/(1 + f); or f and the gradient both
above the largest of the last three; or after 500 rounds.
"""

import time
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
from sottovoce.reproduce.experiment import Columns
from sottovoce.reproduce.trials import Enough, encoded, watch

BETA, FEATURES, MOST = 1e-3, 14, 500
METHODS = ("FedEPM", "SFedAvg", "SFedProx")
# Not the paper's: each differs from one of these in one thing, to tell why a result is not the paper's.
NOT_RISEN = "SFedAvg, not stopped where f and its gradient rise"
FIXED, FRESH = "FedEPM, η of ρ = 1", "FedEPM, η of ρ = 1, model of the new messages only"


def cut_at_random(m: int, seed: int) -> sv.Federation:
    adult = encoded("ranks")
    return sv.Federation.from_arrays(adult.X, adult.y, partition.random_cuts(len(adult.y), m, seed=seed))


def goal(rows: sv.Federation) -> sv.Objective:
    return sv.Objective(sv.Logistic(), penalty=sv.L2(BETA * rows.n / len(rows.y)))


def method_named(name: str, m: int, share: float, k0: int) -> Method:
    if name.startswith("FedEPM"):
        over = "uploaded" if name == FRESH else "all"
        return FedEPM.as_in_paper(m, 1.0 if name in (FIXED, FRESH) else share, k0=k0, over=over)
    return (SFedProx if name == "SFedProx" else SFedAvg)(local_steps=k0)


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
        self.end: tuple[float, ...] = ()  # CR, f/m, TCT, SNR, whether it was cut, whether f and its gradient had risen
        self.begun, self.measuring = time.process_time(), 0.0

    def note(self, checkpoint: Checkpoint) -> None:
        """f/m and its gradient after a round. What that takes is no time of the method's."""
        since, w = time.process_time(), self.algorithm.model(checkpoint.server).ravel()
        margin = (self.rows.X @ w) * self.rows.y
        slope = self.ridge * w - (self.weight * self.rows.y / (1 + np.exp(margin))) @ self.rows.X
        self.values.append(float(self.weight @ np.logaddexp(0, -margin) + self.ridge / 2 * w @ w))
        self.slopes.append(float(slope @ slope))
        self.measuring += time.process_time() - since

    def note_until_it_stops(self, checkpoint: Checkpoint) -> None:
        self.note(checkpoint)
        still, risen = self.stops()
        if still or risen or checkpoint.k == self.most:
            taken = time.process_time() - self.begun - self.measuring
            length, noise = self.seen[0]
            ratio = float(np.log10(length / noise).min())
            cut = not (still or risen)
            self.end = (checkpoint.k, self.values[-1], taken, ratio, float(cut), float(risen and not still))
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
    """CR, f/m, TCT (CPU seconds), SNR and how it ended, on every partition; with `trace` f/m over all rounds."""
    recorded = []
    for number in range(-1, partitions):  # the first compiles, and is not counted
        seed = max(number, 0)
        rows, most = cut_at_random(m, seed), last if number >= 0 else 1
        trial = _Trial(rows, method_named(method, m, share, k0), most, rise_stops=method != NOT_RISEN)
        options: Json = {"rounds": most, "seed": seed, "runs": 1, "engine": "kernel"}
        options["participation"] = Everyone() if share == 1 else KOfN(round(share * m))
        note = trial.note if trace else trial.note_until_it_stops
        watch(trial.algorithm, rows, goal(rows), sv.Published(epsilon), note, **options)
        if number >= 0:
            recorded += [(seed, k, f) for k, f in enumerate(trial.values, start=1)] if trace else [(seed, *trial.end)]
    names = ("round", "objective") if trace else ("CR", "objective", "TCT", "SNR", "cut", "risen")
    return {"run": 0, **dict(zip(("partition", *names), np.array(recorded).T, strict=True))}


def local_time(m: int, k0: int, rounds: int, partitions: int) -> Columns:
    """Median CPU time of a round of each method on each partition, and as a multiple of FedEPM's."""
    recorded: list[tuple[int, str, float, float]] = []
    for seed in range(partitions):
        rows, taken = cut_at_random(m, seed), {}
        options: Json = {"rounds": rounds, "seed": seed, "engine": "kernel", "participation": KOfN(m // 2)}
        for method in METHODS:
            ends = [time.process_time()]
            algorithm, privacy = method_named(method, m, 0.5, k0), sv.Published(0.1)
            note = lambda _, ends=ends: ends.append(time.process_time())  # noqa: E731
            watch(algorithm, rows, goal(rows), privacy, note, **options)
            taken[method] = float(np.median(np.diff(ends)[1:]))
        recorded += [(seed, name, 1000 * value, value / taken["FedEPM"]) for name, value in taken.items()]
    return dict(zip(("partition", "method", "milliseconds", "times_fedepm"), zip(*recorded, strict=True), strict=True))

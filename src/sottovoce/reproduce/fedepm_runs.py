"""How the trials of FedEPM's section VII are run, when they stop, and what is noted of each; time of a round."""

import time
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

import numpy as np

import sottovoce as sv
from sottovoce.algorithms import FedEPM, SFedAvg, SFedProx
from sottovoce.core.participation import Everyone, KOfN
from sottovoce.core.round import Checkpoint
from sottovoce.problems import partition
from sottovoce.reproduce.adult import Method, encoded
from sottovoce.reproduce.experiment import Columns

BETA, FEATURES, MOST = 1e-3, 14, 100
METHODS = ("FedEPM", "SFedAvg", "SFedProx")


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


class _AllStopped(Exception):
    pass


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
            raise _AllStopped


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
    adult, found = encoded("ranks"), []
    for seed in range(partitions):
        rows = sv.Federation.from_arrays(adult.X, adult.y, partition.random_cuts(len(adult.y), m, seed=seed))
        trials = _Trials(rows, _method(method, m, share, k0), runs, most, stop=not trace)
        with suppress(_AllStopped):
            sv.train(
                trials.algorithm,
                rows,
                sv.Objective(sv.Logistic(), penalty=sv.L2(trials.ridge)),
                rounds=most,
                privacy=sv.Published(epsilon),
                participation=Everyone() if share == 1 else KOfN(round(share * m)),
                seed=seed,
                runs=runs,
                record_every=10**9,
                measure_training=False,
                after_round=trials,
                engine="kernel",
            )
        if trace:
            values = enumerate(trials.values, start=1)
            found += [(seed * runs + r, k, value) for k, row in values for r, value in enumerate(row)]
        else:
            found += [(seed * runs + r, *trials.ends[r]) for r in range(runs)]
    names = ("run", "round", "objective") if trace else ("run", "CR", "objective", "TCT", "SNR")
    return dict(zip(names, np.array(found).T, strict=True))


def local_time(m: int, k0: int, rounds: int) -> Columns:
    """Median CPU time of a round of each method, as multiples of FedEPM's."""
    adult = encoded("ranks")
    rows = sv.Federation.from_arrays(adult.X, adult.y, partition.random_cuts(len(adult.y), m, seed=0))
    taken = {}
    for method in METHODS:
        at = [time.process_time()]
        sv.train(
            _method(method, m, 0.5, k0),
            rows,
            sv.Objective(sv.Logistic(), penalty=sv.L2(BETA * m / len(adult.y))),
            rounds=rounds,
            privacy=sv.Published(0.1),
            participation=KOfN(m // 2),
            seed=0,
            record_every=10**9,
            measure_training=False,
            after_round=lambda checkpoint, at=at: at.append(time.process_time()),
            engine="kernel",
        )
        taken[method] = float(np.median(np.diff(at)[1:]))
    return {"method": list(taken), "times_fedepm": [value / taken["FedEPM"] for value in taken.values()]}

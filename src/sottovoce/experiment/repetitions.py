"""One configuration run several times: curves over its seeds, means with intervals, differences paired by seed.

Run r of `train(seed=s, runs=R)` draws from the key of (s, r), whatever R is, so (s, r) names its random numbers. Two
configurations under one (s, r) share who takes part and what algorithms draw, and are paired there. Their noise and
batches are bound to the settings and differ, so a paired interval may be no narrower than an unpaired one; it is
right in both cases.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path

import numpy as np

from sottovoce.core.check import require
from sottovoce.experiment.result import Result
from sottovoce.experiment.tables import to_toml
from sottovoce.privacy.guarantee import Guarantee

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % interval by Student's t; without one (`low` is NaN) where there is a single value."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def plain(self) -> dict[str, float]:
        return {"mean": float(self.mean), "low": float(self.low), "high": float(self.high)}


def interval(values: np.ndarray) -> Interval:
    """Over the last axis."""
    from scipy.stats import t

    values = np.asarray(values, dtype=np.float64)
    count = values.shape[-1]
    with np.errstate(invalid="ignore", over="ignore"):  # a run that went to infinity has no interval
        mean = values.mean(axis=-1)
        spread = np.nan if count == 1 else values.std(axis=-1, ddof=1)
        half = t.ppf(0.5 + LEVEL / 2, count - 1) * spread / np.sqrt(count)
        return Interval(mean, mean - half, mean + half)


@dataclass(frozen=True)
class Repetitions:
    """Results of one configuration under different seeds, and the folders they were read from."""

    name: str
    results: tuple[Result, ...]
    folders: tuple[Path, ...] = ()

    @property
    def first(self) -> Result:
        return self.results[0]

    @property
    def guarantee(self) -> Guarantee:
        """Of the repetition that spent most."""
        return max((result.guarantee for result in self.results), key=lambda one: one.epsilon or 0.0)

    @cached_property
    def keys(self) -> tuple[tuple[object, int], ...]:
        """(seed, run) of every repetition; a seed that was not kept is like no other."""
        seeds = [result.config["run"].get("seed", object()) for result in self.results]
        pairs = zip(seeds, self.results, strict=True)
        return tuple((seed, run) for seed, result in pairs for run in range(result.runs))

    @cached_property
    def rounds(self) -> np.ndarray:
        """The recorded rounds that all repetitions have."""
        recorded = [np.unique(result.history.columns.get("round", [])) for result in self.results]
        return reduce(np.intersect1d, recorded).astype(np.int64)

    def has(self, column: str) -> bool:
        return all(column in result.ends for result in self.results)

    def values(self, column: str) -> np.ndarray:
        """(rounds, repetitions)"""
        parts = []
        for result in self.results:
            table = result.history[column].reshape(-1, result.runs)
            parts.append(table[np.isin(np.unique(result.history["round"]), self.rounds)])
        return np.concatenate(parts, axis=1)

    def last(self, column: str) -> np.ndarray:
        """(repetitions,): each at its own end."""
        return np.concatenate([result.ends[column] for result in self.results])


def paired(first: Repetitions, other: Repetitions, column: str) -> Interval | None:
    """other − first at the end, seed by seed; None where they were not run with the same seeds."""
    if set(first.keys) != set(other.keys) or len(first.keys) < 2 or not (first.has(column) and other.has(column)):
        return None
    before = dict(zip(first.keys, first.last(column), strict=True))
    after = dict(zip(other.keys, other.last(column), strict=True))
    with np.errstate(invalid="ignore"):
        return interval(np.array([after[key] - before[key] for key in first.keys]))


def pool(folders: Sequence[Path], results: Sequence[Result]) -> list[Repetitions]:
    """Put together what differs in nothing but the seed; each group gets a short name that no other has."""
    groups: dict[str, list[int]] = {}
    seen: dict[tuple[str, object], Path] = {}
    for number, (folder, result) in enumerate(zip(folders, results, strict=True)):
        run = {name: value for name, value in result.config["run"].items() if name not in ("seed", "name", "runs")}
        settings, seed = to_toml(result.config | {"run": run}), result.config["run"].get("seed", object())
        groups.setdefault(settings, []).append(number)
        same = seen.setdefault((settings, seed), folder)
        rule = f"has the same settings and the same seed ({seed}) as {same}, so it tells nothing more"
        require(same is folder, str(folder), rule, hint="Leave one of them out")
    names = _names([(folders[members[0]], results[members[0]]) for members in groups.values()])
    return [
        Repetitions(name, tuple(results[i] for i in members), tuple(folders[i] for i in members))
        for name, members in zip(names, groups.values(), strict=True)
    ]


def _names(runs: Sequence[tuple[Path, Result]]) -> list[str]:
    """The shortest kind of name that tells all of them apart."""
    kinds = (
        [str(result.config["algorithm"]["name"]) for _, result in runs],
        [str(result.config["run"].get("name", "")) for _, result in runs],
        [folder.resolve().name for folder, _ in runs],
        [str(folder) for folder, _ in runs],
    )
    return next((names for names in kinds if len({*names, ""}) == len(runs) + 1), kinds[-1])

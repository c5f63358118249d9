"""How claims are decided: a few rules that all papers share, each from an experiment's table to a finding.

A mean over trials is known up to its standard error, and the rules speak in those: a difference counts beyond `CLEAR`
of them. Of few trials the error is not well known either, and more are needed (`Mean.beyond`). Rows are trials; several
on the same draw of the data are not independent, and are averaged first (`draw`).
Where all are run on the same draws, differences are taken draw by draw (`paired`). One trial has no error that we know:
it is reported and not judged, except for formulas (`exact`).
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

import numpy as np
from scipy.special import ndtri, stdtr

from sottovoce.core import check
from sottovoce.reproduce.experiment import Draw, Finding, Table, Value

Rule = Callable[[Table], Finding]
Key = Any  # a value of one column, or a tuple of values of several
CLEAR, SLIGHT = 3, 2  # standard errors: a difference that counts; one that does not


@dataclass(frozen=True)
class Mean:
    value: float
    error: float  # standard error
    trials: float = np.inf  # from which the error is known

    @classmethod
    def of(cls, values: Sequence[float] | np.ndarray) -> "Mean":
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        return cls(float(np.mean(values)), spread / np.sqrt(len(values)), len(values))

    def __str__(self) -> str:
        return f"{self.value:.4g}" + (f" ± {self.error:.1g}" if self.error else "")

    def beyond(self, other: "Mean") -> float:
        """How many standard errors of the difference this mean lies above the other, told as for many trials.

        That is the number which a normal variable exceeds as seldom as a Student's t, with the degrees of freedom that
        the trials leave, exceeds the quotient (Welch). 3 stands for a quotient of 9.2 with 4 paired trials, of 4.1 with
        10. What is too seldom for a float is told as 37.
        """
        difference, error = self.value - other.value, float(np.hypot(self.error, other.error))
        if error == 0:
            return float(np.sign(difference)) * np.inf if difference else 0.0
        unsure = sum((one.error / error) ** 4 / (one.trials - 1) for one in (self, other) if one.error > 0)
        tail = stdtr(1 / max(unsure, 1e-9), -abs(difference) / error)
        return float(np.sign(difference)) * -float(ndtri(max(tail, 1e-300)))


def mean(table: Table, y: str) -> Mean:
    """Over all rows, which are trials."""
    check.require(len(table) > 0, "mean", f"there is no row with {y!r}")
    return Mean.of(np.asarray(table[y], dtype=np.float64))


def means(table: Table, y: str, by: str) -> dict[Key, Mean]:
    return {key: mean(rows, y) for (key,), rows in table.each(by)}


def tuned(y: str, over: str, *each: str) -> Callable[[Table], Table]:
    """Of every combination of the columns `each` only the value of `over` with the least mean of `y` at the end."""

    def best(table: Table) -> Table:
        numbered, kept = Table({**table.columns, "row": np.arange(len(table))}), []
        for _, rows in numbered.each(*each):
            qualities = means(rows.at_end(), y, over)
            kept += rows.where(**{over: min(qualities, key=lambda value: qualities[value].value)})["row"].tolist()
        return table.rows(np.array(sorted(kept), dtype=int))

    return best


class Which(TypedDict, total=False):
    """What a rule compares: `y` in the last round (or whichever `where` names), for each value of `by`."""

    of: Callable[[Table], Table]  # done first, see `tuned`
    where: Mapping[str, Value | Sequence[Value]]  # only rows that have these values
    each: Sequence[str]  # the rule must hold for every combination of these columns' values
    draw: Draw  # rows on the same draw of the data are averaged first
    paired: Draw  # so too, and all are run on the same draws: differences are taken draw by draw
    exact: bool  # a formula: one number decides


class Groups:
    """`y` for each value of `by`, in one setting."""

    def __init__(self, table: Table, y: str, by: Sequence[str], which: Which) -> None:
        check.require(len(table) > 0, "verdict", f"there is no row with {y!r}")
        draw = which.get("paired", which.get("draw"))
        table = table if draw is None else table.averaged(y, *by, draw=draw(table))
        groups = {key if len(by) > 1 else key[0]: rows for key, rows in table.each(*by)}
        names = {key: rows["draw"].tolist() if draw else range(len(rows)) for key, rows in groups.items()}
        self.draws = {key: dict(zip(names[key], rows[y].tolist(), strict=True)) for key, rows in groups.items()}
        self.paired = "paired" in which
        self.means = {key: mean(rows, y) for key, rows in groups.items()}

    def single(self) -> bool:
        """Whether something was run once only."""
        return min(len(values) for values in self.draws.values()) < 2

    def apart(self, high: Key, low: Key) -> float:
        """How many standard errors of the difference `high` lies above `low`."""
        if not self.paired:
            return self.means[high].beyond(self.means[low])
        pairs = [(self.draws[high][draw], value) for draw, value in self.draws[low].items() if draw in self.draws[high]]
        check.require(bool(pairs), "verdict", f"{high!r} and {low!r} have no draw of the data in common")
        return Mean.of([above - below for above, below in pairs]).beyond(Mean(0.0, 0.0))

    def climbs(self, keys: Sequence[Key]) -> bool:
        """The ends are clearly apart, and no two neighbours more than slightly the wrong way round: where all share
        one mean, a wrong "yes" is a 3-sigma event."""
        steady = all(self.apart(high, low) > -SLIGHT for low, high in itertools.pairwise(keys))
        return steady and self.apart(keys[-1], keys[0]) > CLEAR

    def least(self) -> Key:
        return min(self.means, key=lambda key: self.means[key].value)

    def values(self) -> list[float]:
        return [one.value for one in self.means.values()]

    def listed(self) -> str:
        return ", ".join(f"{_named(key)}: {value}" for key, value in self.means.items())


def rises(y: str, by: str, **which: Unpack[Which]) -> Rule:
    """The mean of `y` rises with `by`."""
    return _rule(y, by, which, lambda groups: groups.climbs(sorted(groups.means)), _in_order)


def falls(y: str, by: str, **which: Unpack[Which]) -> Rule:
    return _rule(y, by, which, lambda groups: groups.climbs(sorted(groups.means)[::-1]), _in_order)


def lowest(y: str, by: str, winner: Value, **which: Unpack[Which]) -> Rule:
    """The mean of `y` is clearly lower for `winner` than for any other value of `by`."""
    return _first(y, by, winner, which, lambda groups, other: groups.apart(other, winner))


def highest(y: str, by: str, winner: Value, **which: Unpack[Which]) -> Rule:
    return _first(y, by, winner, which, lambda groups, other: groups.apart(winner, other))


def alike(y: str, by: str, within: float, relative: bool = False, **which: Unpack[Which]) -> Rule:
    """The means of `y` differ by less than `within`, or by less than that share of the least."""

    def decide(groups: Groups) -> bool:
        values = groups.values()
        return len(values) > 1 and max(values) - min(values) < within * (min(values) if relative else 1)

    def describe(groups: Groups) -> str:
        return f"{min(groups.values()):.4g} to {max(groups.values()):.4g}" if which.get("each") else groups.listed()

    return _rule(y, by, which, decide, describe)


def above(
    y: str, by: str | Sequence[str], level: float, paper: Mapping[Key, float] | None = None, **which: Unpack[Which]
) -> Rule:
    """Every mean of `y` is above `level`; printed next to the paper's own numbers, if given."""
    columns = () if isinstance(by, str) else by
    own = {key: f" ({number:.2g})" for key, number in (paper or {}).items()}

    def describe(groups: Groups) -> str:
        each = (f"{_named(key, columns)}: {one.value:.2g}{own.get(key, '')}" for key, one in groups.means.items())
        return ", ".join(each) + (" (in brackets the paper's)" if own else "")

    return _rule(y, by, which, lambda groups: min(groups.values()) > level, describe)


def near(y: str, by: str | Sequence[str], numbers: Mapping[Key, float], factor: float, **which: Unpack[Which]) -> Rule:
    """Every mean of `y` is within `factor` times of the paper's number, either way; both are printed."""
    columns = () if isinstance(by, str) else by

    def decide(groups: Groups) -> bool:
        ratios = [groups.means[key].value / number for key, number in numbers.items()]
        return max(ratios) <= factor and min(ratios) >= 1 / factor

    def describe(groups: Groups) -> str:
        each = (f"{_named(key, columns)}: {groups.means[key].value:.2g} ({numbers[key]:.2g})" for key in numbers)
        return ", ".join(each) + " (in brackets the paper's)"

    return _rule(y, by, which, decide, describe)


def meets(y: str, by: str | Sequence[str], numbers: Mapping[Key, float], **which: Unpack[Which]) -> Rule:
    """Each of the paper's numbers, from one draw of the data, lies within two standard deviations between draws. Where
    draws differ much that is a broad band, so it is printed: what can be told within it, `ordered` tells."""

    def band(groups: Groups, key: Key) -> tuple[float, float]:
        middle, spread = groups.means[key].value, float(np.std(list(groups.draws[key].values()), ddof=1))
        return middle - 2 * spread, middle + 2 * spread

    def decide(groups: Groups) -> bool:
        bands = {key: band(groups, key) for key in numbers}
        return all(bands[key][0] <= number <= bands[key][1] for key, number in numbers.items())

    def describe(groups: Groups) -> str:
        if groups.single():
            return ", ".join(f"{groups.means[key].value:.3g}" for key in numbers)
        bands = {key: band(groups, key) for key in numbers}
        each = (f"{groups.means[key].value:.3g} ({low:.3g} to {high:.3g})" for key, (low, high) in bands.items())
        return ", ".join(each) + " (in brackets what would have passed)"

    return _rule(y, by, which, decide, describe)


def ordered(y: str, by: str | Sequence[str], numbers: Mapping[Key, float], **which: Unpack[Which]) -> Rule:
    """The means of `y` have the order of the paper's numbers: its first and last are clearly apart, and no two
    neighbours in its order more than slightly the wrong way round."""

    def in_its_order(groups: Groups) -> list[Key]:
        return sorted((key for key in groups.means if key in numbers), key=lambda key: numbers[key])

    def describe(groups: Groups) -> str:
        keys = in_its_order(groups)
        steps = [f" <{groups.apart(high, low):+.1f}> " for low, high in itertools.pairwise(keys)]
        names = [f"{_named(key)} {groups.means[key].value:.3g}" for key in keys]
        return "".join(itertools.chain(*itertools.zip_longest(names, steps, fillvalue="")))

    note = " (in the paper's order; <standard errors of the step up>)"
    return _rule(y, by, which, lambda groups: groups.climbs(in_its_order(groups)), describe, note)


def bounded(y: str, bound: str, by: str = "round", **which: Unpack[Which]) -> Rule:
    """What a theorem says: the mean of `y` is below the column `bound` at every value of `by`, or not clearly above."""
    each = which.get("each", ())

    def measure(table: Table) -> Finding:
        table = which.get("of", lambda all_: all_)(table).where(**which.get("where", {}))
        found = [(key, _below(rows, y, bound, by, which)) for key, rows in table.each(*each)]
        text = "; ".join(f"{_named(key, each)}: {one.measured}" if each else one.measured for key, one in found)
        holds = bool(found) and all(one.same for _, one in found)
        loosest = {_named(key, each): one.loose for key, one in found if one.same}
        loose = "; ".join(f"{key}: {factor}" if key else factor for key, factor in loosest.items())
        return Finding(text, holds, loose if holds else "")

    return measure


def _below(table: Table, y: str, bound: str, by: str, which: Which) -> Finding:
    groups, bounds = Groups(table, y, (by,), which), means(table, bound, by)
    above = [key for key, mean_ in groups.means.items() if mean_.beyond(bounds[key]) > CLEAR]
    ratios = {key: bounds[key].value / mean_.value for key, mean_ in groups.means.items() if mean_.value > 0}
    last = max(groups.means)
    text = f"{groups.means[last]} where {bounds[last].value:.3g} is allowed, at {by} {last:g}"
    if above:
        worst = max(above, key=lambda key: groups.means[key].value / bounds[key].value)
        text += f"; {groups.means[worst]} above {bounds[worst].value:.3g} at {by} {worst:g}"
    if not ratios:
        return Finding(text, not above)
    least = min(ratios, key=lambda key: ratios[key])
    return Finding(
        text, not above, f"{ratios[least]:.2g} times at {by} {least:g}, {ratios.get(last, np.inf):.2g} at the end"
    )


def least_at(y: str, by: str, low: float, high: float, **which: Unpack[Which]) -> Rule:
    """The least mean of `y` is that of a value of `by` from `low` to `high`."""

    def describe(groups: Groups) -> str:
        return f"least at {groups.least():g} ({groups.means[groups.least()]})"

    return _rule(y, by, which, lambda groups: low <= groups.least() <= high, describe)


def rises_both_ways(y: str, by: str, **which: Unpack[Which]) -> Rule:
    """The mean of `y` rises from its least towards both ends of `by`."""

    def decide(groups: Groups) -> bool:
        keys = sorted(groups.means)
        best = keys.index(groups.least())
        return groups.climbs(keys[best:]) and groups.climbs(keys[best::-1])

    def describe(groups: Groups) -> str:
        keys = (min(groups.means), groups.least(), max(groups.means))
        return ", ".join(f"{groups.means[key]} at {key:g}" for key in keys)

    return _rule(y, by, which, decide, describe)


def declines(y: str, **which: Unpack[Which]) -> Rule:
    """The mean of `y` ends clearly below its first record, and not clearly above its least."""

    def decide(groups: Groups) -> bool:
        first, last = min(groups.means), max(groups.means)
        return groups.apart(first, last) > CLEAR and not groups.apart(last, groups.least()) > CLEAR

    def describe(groups: Groups) -> str:
        first, last, least = (groups.means[k].value for k in (min(groups.means), max(groups.means), groups.least()))
        return f"{first:.4g} to {last:.4g}, least {least:.4g} after {groups.least():g} rounds"

    return _rule(y, "round", which, decide, describe)


def _first(y: str, by: str, winner: Value, which: Which, lead: Callable[[Groups, Key], float]) -> Rule:
    def others(groups: Groups) -> list[Key]:
        return [key for key in groups.means if key != winner]

    def describe(groups: Groups) -> str:
        """All in one setting; in each of several, against whom it is least clear."""
        if not which.get("each"):
            return groups.listed()
        ours = groups.means[winner].value
        other = min(others(groups), key=lambda key: (lead(groups, key), abs(groups.means[key].value - ours)))
        errors = lead(groups, other)
        clear = f" ({errors:.1f})" if np.isfinite(errors) else ""
        return f"{ours:.3g} against {groups.means[other].value:.3g} of {other}{clear}"

    def decide(groups: Groups) -> bool:
        return len(groups.means) > 1 and all(lead(groups, other) > CLEAR for other in others(groups))

    note = ""
    if which.get("each"):
        difference = "paired differences" if "paired" in which else "the difference"
        note = f" (against whom it is least clear; in brackets: standard errors of {difference})"
    return _rule(y, by, which, decide, describe, note)


def _rule(
    y: str,
    by: str | Sequence[str],
    which: Which,
    decide: Callable[[Groups], bool],
    describe: Callable[[Groups], str] = Groups.listed,
    note: str = "",
) -> Rule:
    columns = (by,) if isinstance(by, str) else tuple(by)
    each = which.get("each", ())

    def measure(table: Table) -> Finding:
        table = which.get("of", lambda all_: all_)(table).where(**which.get("where", {}))
        table = table if "round" in columns else table.at_end()
        settings = [(key, Groups(rows, y, columns, which)) for key, rows in table.each(*each)]
        text = "; ".join(
            f"{_named(key, each)}: {describe(groups)}" if each else describe(groups) for key, groups in settings
        )
        if not which.get("exact") and any(groups.single() for _, groups in settings):
            return Finding(f"{text} (one run)", None)
        return Finding(text + note, bool(settings) and all(decide(groups) for _, groups in settings))

    return measure


def _in_order(groups: Groups) -> str:
    keys = sorted(groups.means)
    text = ", ".join(f"{_named(key)}: {groups.means[key]}" for key in keys)
    errors = abs(groups.apart(keys[-1], keys[0]))
    return text + (f" (ends {errors:.1f} standard errors of paired differences apart)" if groups.paired else "")


def _named(key: Key, columns: Sequence[str] = ()) -> str:
    """A value, or several: numbers with the names of their columns, where those are given."""
    values = key if isinstance(key, tuple) else (key,)
    names = [f"{name} = " for name in columns] or [""] * len(values)
    pairs = zip(names, values, strict=True)
    return ", ".join(value if isinstance(value, str) else f"{name}{value:g}" for name, value in pairs)

"""How claims are decided: a few rules that all papers share, each from an experiment's table to a finding.

A mean over trials is known up to its standard error, and the rules speak in those: a difference counts beyond `CLEAR`
of them. Of few trials the error is not well known either, and more are needed (`Mean.beyond`). Rows are trials; several
on the same draw of the data are not independent, and are averaged first (`draw`).
Where all are run on the same draws, differences are taken draw by draw (`paired`). One trial has no error that we know:
it is reported and not judged, except for formulas (`exact`).

There are three verdicts on an order: the same; the right order, but not clear; and not the same. The right order asks
for what the same does, with `ONE` standard error in place of `CLEAR`: a sign alone is a coin toss. Where a number must
be met to a tolerance there is nothing in between.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Unpack

import numpy as np

from sottovoce.core import check
from sottovoce.reproduce.experiment import Finding, Table, Value
from sottovoce.reproduce.groups import CLEAR, ONE, Groups, Key, Which, means, named

Rule = Callable[[Table], Finding]


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


def lowest_median(y: str, by: str, winner: Value, **which: Unpack[Which]) -> Rule:
    """The median of `y` is lower for `winner` than for any other value of `by`, and clearly more than half of the draws
    have it so; needs `paired`."""
    return _first(y, by, winner, which, lambda groups, other: groups.wins(winner, other), median=True)


def alike(y: str, by: str, within: float, relative: bool = False, **which: Unpack[Which]) -> Rule:
    """The means of `y` differ by less than `within`, or by less than that share of the least."""

    def clear(groups: Groups) -> float:
        values = groups.values()
        return _sure(len(values) > 1 and max(values) - min(values) < within * (min(values) if relative else 1))

    def describe(groups: Groups) -> str:
        return f"{min(groups.values()):.4g} to {max(groups.values()):.4g}" if which.get("each") else groups.listed()

    return _rule(y, by, which, clear, describe)


def near(y: str, by: str | Sequence[str], numbers: Mapping[Key, float], factor: float, **which: Unpack[Which]) -> Rule:
    """Every mean of `y` is within `factor` times of the paper's number, either way; both are printed."""
    columns = () if isinstance(by, str) else by

    def clear(groups: Groups) -> float:
        ratios = [groups.means[key].value / number for key, number in numbers.items()]
        return _sure(max(ratios) <= factor and min(ratios) >= 1 / factor)

    def describe(groups: Groups) -> str:
        each = (f"{named(key, columns)}: {groups.means[key].value:.2g} ({numbers[key]:.2g})" for key in numbers)
        return ", ".join(each) + " (in brackets the paper's)"

    return _rule(y, by, which, clear, describe)


def meets(y: str, by: str | Sequence[str], numbers: Mapping[Key, float], **which: Unpack[Which]) -> Rule:
    """Each of the paper's numbers, from one draw of the data, lies within two standard deviations between draws. Where
    draws differ much that is a broad band, so it is printed: what can be told within it, `ordered` tells."""

    def band(groups: Groups, key: Key) -> tuple[float, float]:
        middle, spread = groups.means[key].value, float(np.std(list(groups.draws[key].values()), ddof=1))
        return middle - 2 * spread, middle + 2 * spread

    def clear(groups: Groups) -> float:
        bands = {key: band(groups, key) for key in numbers}
        return _sure(all(bands[key][0] <= number <= bands[key][1] for key, number in numbers.items()))

    def describe(groups: Groups) -> str:
        if groups.single():
            return ", ".join(f"{groups.means[key].value:.3g}" for key in numbers)
        bands = {key: band(groups, key) for key in numbers}
        each = (f"{groups.means[key].value:.3g} ({low:.3g} to {high:.3g})" for key, (low, high) in bands.items())
        return ", ".join(each) + " (in brackets what would have passed)"

    return _rule(y, by, which, clear, describe)


def ordered(y: str, by: str | Sequence[str], numbers: Mapping[Key, float], **which: Unpack[Which]) -> Rule:
    """The means of `y` have the order of the paper's numbers: its first and last are clearly apart, and no two
    neighbours in its order more than slightly the wrong way round."""

    def in_its_order(groups: Groups) -> list[Key]:
        return sorted((key for key in groups.means if key in numbers), key=lambda key: numbers[key])

    def describe(groups: Groups) -> str:
        keys = in_its_order(groups)
        steps = [f" <{groups.apart(high, low):+.1f}> " for low, high in itertools.pairwise(keys)]
        names = [f"{named(key)} {groups.means[key].value:.3g}" for key in keys]
        return "".join(itertools.chain(*itertools.zip_longest(names, steps, fillvalue="")))

    note = " (in the paper's order; <standard errors of the step up>)"
    return _rule(y, by, which, lambda groups: groups.climbs(in_its_order(groups)), describe, note)


def bounded(y: str, bound: str, **which: Unpack[Which]) -> Rule:
    """What a theorem says: the mean of `y` is below the column `bound` in every round, or not clearly above."""
    each = which.get("each", ())

    def measure(table: Table) -> Finding:
        table = which.get("of", lambda all_: all_)(table).where(**which.get("where", {}))
        found = [(key, _below(rows, y, bound, which)) for key, rows in table.each(*each)]
        text = "; ".join(f"{named(key, each)}: {one.measured}" if each else one.measured for key, one in found)
        holds = bool(found) and all(one.same for _, one in found)
        loosest = {named(key, each): one.loose for key, one in found if one.same}
        loose = "; ".join(f"{key}: {factor}" if key else factor for key, factor in loosest.items())
        return Finding(text, holds, loose if holds else "")

    return measure


def _below(table: Table, y: str, bound: str, which: Which) -> Finding:
    groups, bounds = Groups(table, y, ("round",), which), means(table, bound, "round")
    above = [key for key, mean_ in groups.means.items() if mean_.beyond(bounds[key]) > CLEAR]
    ratios = {key: bounds[key].value / mean_.value for key, mean_ in groups.means.items() if mean_.value > 0}
    last = max(groups.means)
    text = f"{groups.means[last]} where {bounds[last].value:.3g} is allowed, at round {last:g}"
    if above:
        worst = max(above, key=lambda key: groups.means[key].value / bounds[key].value)
        text += f"; {groups.means[worst]} above {bounds[worst].value:.3g} at round {worst:g}"
    if not ratios:
        return Finding(text, not above)
    least = min(ratios, key=lambda key: ratios[key])
    loose = f"{ratios[least]:.2g} times at round {least:g}, {ratios.get(last, np.inf):.2g} at the end"
    return Finding(text, not above, loose)


def least_at(y: str, by: str, low: float, high: float, **which: Unpack[Which]) -> Rule:
    """The least mean of `y` is that of a value of `by` from `low` to `high`."""

    def describe(groups: Groups) -> str:
        return f"least at {groups.least():g} ({groups.means[groups.least()]})"

    return _rule(y, by, which, lambda groups: _sure(low <= groups.least() <= high), describe)


def rises_both_ways(y: str, by: str, **which: Unpack[Which]) -> Rule:
    """The mean of `y` rises from its least towards both ends of `by`."""

    def clear(groups: Groups) -> float:
        keys = sorted(groups.means)
        best = keys.index(groups.least())
        return min(groups.climbs(keys[best:]), groups.climbs(keys[best::-1]))

    def describe(groups: Groups) -> str:
        keys = (min(groups.means), groups.least(), max(groups.means))
        return ", ".join(f"{groups.means[key]} at {key:g}" for key in keys)

    return _rule(y, by, which, clear, describe)


def declines(y: str, **which: Unpack[Which]) -> Rule:
    """The mean of `y` ends clearly below its first record, and not clearly above its least."""

    def clear(groups: Groups) -> float:
        first, last = min(groups.means), max(groups.means)
        return -np.inf if groups.apart(last, groups.least()) > CLEAR else groups.apart(first, last)

    def describe(groups: Groups) -> str:
        first, last, least = (groups.means[k].value for k in (min(groups.means), max(groups.means), groups.least()))
        return f"{first:.4g} to {last:.4g}, least {least:.4g} after {groups.least():g} rounds"

    return _rule(y, "round", which, clear, describe)


def _first(
    y: str, by: str, winner: Value, which: Which, lead: Callable[[Groups, Key], float], median: bool = False
) -> Rule:
    def others(groups: Groups) -> list[Key]:
        return [key for key in groups.means if key != winner]

    def describe(groups: Groups) -> str:
        """All in one setting; in each of several, against whom it is least clear."""
        check.require(winner in groups.means, "Table", f"there is no row with {winner!r}")
        if not which.get("each"):
            return groups.listed()
        ours = groups.means[winner].value
        other = min(others(groups), key=lambda key: (lead(groups, key), abs(groups.means[key].value - ours)))
        errors, pairs = lead(groups, other), ((winner, other), (other, winner))
        by_errors = f" ({errors:.1f})" if np.isfinite(errors) else ""
        levels = [np.median(groups.common(*pair)) if median else groups.level(*pair) for pair in pairs]
        return f"{levels[0]:.3g} against {levels[1]:.3g} of {other}{by_errors}"

    def clear(groups: Groups) -> float:
        leads = [lead(groups, other) for other in others(groups)]
        return float(np.min(leads)) if leads else -np.inf

    note = ""
    if which.get("each"):
        difference = "paired differences" if "paired" in which else "the difference"
        difference = "a coin, by how often it is lower; medians" if median else difference
        note = f" (against whom it is least clear; in brackets: standard errors of {difference})"
    return _rule(y, by, which, clear, describe, note)


def _sure(yes: bool) -> float:
    """Of what is met or not, with nothing in between."""
    return np.inf if yes else -np.inf


def _rule(
    y: str,
    by: str | Sequence[str],
    which: Which,
    clear: Callable[[Groups], float],
    describe: Callable[[Groups], str],
    note: str = "",
) -> Rule:
    """`clear` tells by how many standard errors the paper's order is seen: more than `CLEAR` of them are the same, more
    than `ONE` the right order."""
    columns = (by,) if isinstance(by, str) else tuple(by)
    each = which.get("each", ())

    def measure(table: Table) -> Finding:
        table = which.get("of", lambda all_: all_)(table).where(**which.get("where", {}))
        table = table if "round" in columns else table.at_end()
        settings = [(key, Groups(rows, y, columns, which)) for key, rows in table.each(*each)]
        text = "; ".join(
            f"{named(key, each)}: {describe(groups)}" if each else describe(groups) for key, groups in settings
        )
        if not which.get("exact") and any(groups.single() for _, groups in settings):
            return Finding(f"{text} (one run)", None)
        unclear = [errors for errors in (clear(groups) for _, groups in settings) if not errors > CLEAR]
        if unclear and all(errors > ONE for errors in unclear):
            note_ = f"{note} (least clear: {min(unclear):.2f} standard errors of the {CLEAR} that are needed)"
            return Finding(text + note_, same=False, in_order=True)
        return Finding(text + note, bool(settings) and not unclear)

    return measure


def _in_order(groups: Groups) -> str:
    keys = sorted(groups.means)
    text = ", ".join(f"{named(key)}: {groups.means[key]}" for key in keys)
    errors = abs(groups.apart(keys[-1], keys[0]))
    return text + (f" (ends {errors:.1f} standard errors of paired differences apart)" if groups.paired else "")

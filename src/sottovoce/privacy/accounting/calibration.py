"""From a budget back to noise, and to the number of answers that it holds."""

import math
from collections.abc import Callable
from dataclasses import replace
from decimal import ROUND_CEILING, Context
from typing import Any

from sottovoce.core import check
from sottovoce.privacy.accounting.bounds import cost
from sottovoce.privacy.accounting.composition import PURE, Composition, Spent, compose, is_sampled, squared_mu
from sottovoce.privacy.accounting.discrete import as_discrete, as_gaussian
from sottovoce.privacy.accounting.gaussian import gaussian_mu
from sottovoce.privacy.accounting.renyi import zcdp_rho
from sottovoce.privacy.accounting.search import last_good, log_ratio
from sottovoce.privacy.events import LEAST_SCALE, Event, GridEvent, make_event

_MARGIN, _DIGITS = 1e-11, 10  # of noise: see `_least_of`
_ROUNDING = 1e-12  # relative, of a number of answers
_LEAST_SAMPLED_NOISE = 0.1  # with a generous delta, sampling alone is enough and the search for noise has no end


# ---------------------------------------------------------------------------------------------------------- noise


def calibrate(epsilon: float, delta: float, answers: int, *, spent: Spent | None = None, **kind: Any) -> float:
    """The smallest noise multiplier with which `answers` such events cost at most `epsilon`, never more.

    `kind` are the other fields of an `Event`, or of a `GridEvent` if it has `coordinates`; "gaussian" if no `mechanism`
    is named. `spent` is what was answered before and has to be paid from the same budget.
    """
    any_noise = 2 * LEAST_SCALE * math.sqrt(kind.get("contributors", 1)) / kind.get("sensitivity", 1.0)
    event = make_event(**{"mechanism": "gaussian", "noise_multiplier": any_noise, **kind})
    return with_least_noise(event, epsilon, delta, answers, spent).noise_multiplier


def with_least_noise(kind: Event, epsilon: float, delta: float, answers: int, spent: Spent | None = None) -> Event:
    """`kind` with the smallest noise multiplier with which `answers` of it cost at most `epsilon`, never more.

    The noise multiplier of `kind` itself does not matter. `spent` is what was answered before and has to be paid from
    the same budget.
    """
    check.positive("calibrate", epsilon=epsilon)
    check.whole("calibrate", answers=answers)
    spent = spent or {}
    alone = _least_of(kind, _noise_alone(kind, epsilon, delta, answers), {}, epsilon, delta, answers)
    if not spent:
        return alone
    return _least_of(kind, _noise_beside(spent, alone, epsilon, delta, answers), spent, epsilon, delta, answers)


def _least_of(kind: Event, noise: float, spent: Spent, epsilon: float, delta: float, answers: int) -> Event:
    """`kind` with this much noise, which suffices up to rounding, rounded up to a few digits so that it truly does.

    It is a little more than would do: on a machine whose functions differ in their last bits, the last answer of a plan
    still fits, and the plan has the same noise. The last bits of a closed form may be on the wrong side.
    """
    least = Context(prec=_DIGITS, rounding=ROUND_CEILING)
    step = _MARGIN
    while True:
        event = replace(kind, noise_multiplier=float(least.create_decimal_from_float(noise * (1 + step))))
        if _cost_with(event, answers, spent, delta) <= epsilon:
            return event
        step *= 2


def _cost_with(event: Event, answers: int, spent: Spent, delta: float, cheaply: bool = False) -> float:
    """The epsilon of `spent` and so many answers more."""
    together = {**spent, event: spent.get(event, 0) + answers}
    return cost(compose("calibrate", together, delta), delta, cheaply)


def _noise_alone(kind: Event, epsilon: float, delta: float, answers: int) -> float:
    """The smallest noise multiplier, up to rounding, if nothing was spent before."""
    if isinstance(kind, GridEvent):
        gaussian, slack_of_one = as_gaussian(kind)
        slack = answers * slack_of_one
        multiplier = _noise_alone(gaussian, epsilon - 2 * slack, delta * math.exp(-slack), answers)
        return as_discrete(kind, multiplier)
    compose("calibrate", {kind: answers}, delta)  # refuses what has no proof
    if kind.mechanism in PURE:
        added = answers / epsilon
        return added if delta == 0 else min(added, math.sqrt(answers / (2 * zcdp_rho(epsilon, delta))))
    if kind.mechanism != "gaussian":
        return math.sqrt(answers / (2 * zcdp_rho(epsilon, delta)))
    enough = math.sqrt(answers) / gaussian_mu(epsilon, delta)
    return _sampled_noise(kind, epsilon, delta, answers, enough) if is_sampled(kind) else enough


def _sampled_noise(kind: Event, epsilon: float, delta: float, answers: int, enough: float) -> float:
    """The least noise multiplier for secret batches; `enough` suffices without them."""

    def excess(log_noise: float) -> float:
        event = replace(kind, noise_multiplier=math.exp(log_noise))
        return log_ratio(cost(Composition(((event, int(answers)),)), delta), epsilon)

    # Start where the central limit theorem (Bu et al. 2020) would have it, a little too low: a privacy loss
    # distribution takes a while, and for ever where epsilon is huge. Epsilon falls at least like 1/noise.
    rate = kind.rate if kind.sampling == "poisson" else kind.batch / kind.size
    most = math.log(enough)
    least = min(math.log(_LEAST_SAMPLED_NOISE), most - 1)
    point = min(max(-0.5 * math.log(math.log1p((rate * enough) ** -2)), least), most - 1e-3)
    value = excess(point)
    while True:
        if value <= 0 and point <= least:
            return math.exp(point)
        last, last_value = point, value
        point = min(point + max(1.1 * value, -0.3) + math.copysign(1e-3, value), most)
        value = excess(point)
        if point == most or (value > 0) != (last_value > 0):
            break
    return math.exp(last_good(excess, max(last, point), min(last, point), _precision(kind)))


def _noise_beside(spent: Spent, alone: Event, epsilon: float, delta: float, answers: int) -> float:
    """The least noise multiplier for `answers` after `spent`; `alone` would do if nothing had been spent."""
    before = cost(compose("calibrate", spent, delta), delta)
    rule = f"epsilon {before:.6g} is spent before the first answer, and the budget is {epsilon:.6g}"
    hint = "Give a larger budget, or spend less of it before"
    check.require(before < epsilon, "calibrate", rule, hint=hint, error=check.BudgetSpent)

    def excess(log_noise: float) -> float:
        event = replace(alone, noise_multiplier=math.exp(log_noise))
        return log_ratio(_cost_with(event, answers, spent, delta), epsilon)

    bad = good = math.log(alone.noise_multiplier)
    while excess(good) > 0:  # ends, since without bound on the noise only `before` is left
        bad, good = good, good + 0.5
    return math.exp(last_good(excess, good, bad, _precision(alone)))


def _precision(kind: Event) -> float:
    """How closely the logarithm of the noise is searched: each look at a privacy loss distribution takes a while."""
    return 1e-5 if kind.sampling == "poisson" else 1e-12


# -------------------------------------------------------------------------------------------------------- answers


def affordable(
    event: Event, budget_epsilon: float, delta: float, spent: Spent | None = None, at_most: int = 10**9
) -> int:
    """How many more answers like `event` the budget allows after `spent`, up to `at_most`.

    Microseconds for Gaussian noise on full batches, so it can be asked before every answer. With Poisson batches a
    call may take a second: ask once, then count.
    """
    check.positive("affordable", budget_epsilon=budget_epsilon)
    spent = spent or {}
    for count in spent.values():
        check.whole("affordable", 0, count=count)

    def excess(more: float, cheaply: bool = False) -> float:
        return _cost_with(event, math.floor(more), spent, delta, cheaply) - budget_epsilon

    most = compose("affordable", {**spent, event: spent.get(event, 0) + max(at_most, 1)}, delta)
    if all(other.mechanism not in PURE and not is_sampled(other) for other, _ in most.items):  # costs add up
        left = budget_epsilon - 2 * most.slack, delta * math.exp(-most.slack)
        gaussian = all(other.mechanism == "gaussian" for other, _ in most.items)
        precision = gaussian_mu(*left) ** 2 if gaussian else 2 * zcdp_rho(*left)
        room = precision * (1 + _ROUNDING) - squared_mu((_continuous(other), n) for other, n in spent.items())
        high = max(0, math.floor(min(room * _continuous(event).noise_multiplier ** 2, at_most)))
        if excess(high) > 0:  # rounding had made it too large
            return 0 if high == 0 or excess(0) > 0 else math.floor(last_good(excess, 0, high, 0.5))
        if high == at_most or excess(high + 1) > 0:
            return high
        return _most(excess, high, at_most)  # or too small, of which little is left
    # The bounds that cost nothing give a number of answers that is certainly affordable; a privacy loss
    # distribution can only add to it, and is never asked about numbers far beyond the budget.
    low = 0 if excess(0, True) > 0 else math.floor(last_good(lambda n: excess(n, True), 0, at_most, 0.5))
    return _most(excess, low, at_most)


def _most(excess: Callable[[float], float], low: int, at_most: int) -> int:
    """The largest number up to `at_most` that does not exceed; `low` does not."""
    high = low
    while high < at_most and excess(high) <= 0:
        low, high = high, min(2 * high + 1, at_most)
    return math.floor(last_good(excess, low, high, 0.5)) if low < high else low


def _continuous(event: Event) -> Event:
    return as_gaussian(event)[0] if isinstance(event, GridEvent) else event

"""From events to epsilon, and from a budget back to noise.

Every number is an upper bound with a proof; where several proofs apply, the smallest bound counts. What no proof
covers is refused with `NoGuarantee`.

| events | bound |
|---|---|
| Gaussian, full batch | the Gaussian trade-off, exact (Dong, Roth & Su 2022) |
| Gaussian, Poisson batch | add/remove: privacy loss distribution (dp-accounting), Rényi (Mironov et al. 2019) |
| Gaussian, fixed-size batch | replace-one: Rényi (Wang, Balle & Kasiviswanathan 2019, Theorem 27) |
| discrete Gaussian, Gaussian chain | zCDP, converted as in Canonne, Kamath & Steinke 2020, Proposition 12 |
| Laplace, randomised response | the sum of the epsilons, or zCDP with rho = epsilon²/2 |
| mixed | Rényi or zCDP for all together; pure events may instead add their epsilons |

Two habits keep the numbers honest. A noise multiplier is always noise over the sensitivity *of the event's own
relation*, so no accountant may rescale it (dp-accounting's PLD would, for replace-one). And an event with secret
batches is never worse than the same event without: it is a mixture of neighbouring pairs with common weights, and
the divergences are jointly convex. So "sampling ignored" is one of the bounds.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import numpy as np

from sottovoce.core import check
from sottovoce.privacy.events import Event, Mechanism, Relation, Sampling

Spent = Mapping[Event, int]
"""How often each event happened to one client."""

_Items = tuple[tuple[Event, int], ...]
_PURE = ("laplace", "randomized-response")
_TOLERANCE = 1e-9  # relative; a plan that uses up its budget must not fail on the last bit
_LEAST_SAMPLED_NOISE = 0.1  # with a generous delta, sampling alone is enough and the search for noise has no end


# ---------------------------------------------------------------------------------------------- what the rest asks


def epsilon(spent: Spent, delta: float) -> float:
    """The smallest epsilon that is proven for all events of `spent` together; 0 for none.

    `delta` may be 0 if every event is pure (Laplace, randomised response).
    """
    return _epsilon(_items("epsilon", spent, delta), delta)


def accountant_name(spent: Spent, delta: float | None = None) -> str:
    """What to call the proof: for a given `delta` the one that gives `epsilon`, else the one meant for such events."""
    items = _items("accountant_name", spent, delta)
    if not items:
        return "nothing spent"
    methods = _methods(items)
    if delta is None:
        return methods[-1][0]
    return min(reversed(methods), key=lambda method: method[1](delta))[0]


def calibrate(
    epsilon: float,
    delta: float,
    answers: int,
    *,
    mechanism: Mechanism = "gaussian",
    sampling: Sampling = "full",
    relation: Relation = "replace-one",
    rate: float = 1.0,
    batch: int = 0,
    size: int = 0,
    spent: Spent | None = None,
) -> float:
    """The smallest noise multiplier with which `answers` such events cost at most `epsilon`, never more.

    `spent` is what was answered before and has to be paid from the same budget.
    """
    check.positive("calibrate", epsilon=epsilon)
    check.whole("calibrate", answers=answers)

    def cost(noise: float) -> float:
        return _epsilon(((Event(mechanism, noise, sampling, relation, rate, batch, size), int(answers)),), delta)

    event = Event(mechanism, 1.0, sampling, relation, rate, batch, size)
    _items("calibrate", {event: answers}, delta)
    if mechanism in _PURE:
        noise = answers / epsilon
        if delta > 0:
            noise = min(noise, math.sqrt(answers / (2 * _zcdp_rho(epsilon, delta))))
    elif mechanism in ("discrete-gaussian", "gaussian-chain"):
        noise = math.sqrt(answers / (2 * _zcdp_rho(epsilon, delta)))
    else:
        noise = math.sqrt(answers) / gaussian_mu(epsilon, delta)
        if _is_sampled(event):
            noise = _sampled_noise(cost, epsilon, noise, event)
    step = 2**-52
    while cost(noise) > epsilon:  # the last bits of a closed form may be on the wrong side
        noise, step = noise * (1 + step), 2 * step
    return noise if not spent else _noise_beside(spent, event, answers, epsilon, delta, least=noise)


def affordable(
    event: Event, budget_epsilon: float, delta: float, spent: Spent | None = None, at_most: int = 10**9
) -> int:
    """How many more answers like `event` the budget allows after `spent`, up to `at_most`.

    Microseconds for (discrete) Gaussian noise on full batches, so it can be asked before every answer. With Poisson
    batches a call may take a second: ask once, then count.
    """
    check.positive("affordable", budget_epsilon=budget_epsilon)
    spent = spent or {}
    already = spent.get(event, 0)
    if all(_has_closed_form(other) and other.relation == event.relation for other in (event, *spent)):
        for count in spent.values():
            check.whole("affordable", 0, count=count)
        if all(other.mechanism == "gaussian" for other in (event, *spent)):
            most = gaussian_mu(budget_epsilon, delta) ** 2
        else:
            most = 2 * _zcdp_rho(budget_epsilon, delta)
        room = most * (1 + _TOLERANCE) - _squared_mu(spent.items())
        return max(0, math.floor(min(room * event.noise_multiplier**2, at_most)))

    _items("affordable", {**spent, event: already + 1}, delta)
    limit = budget_epsilon * (1 + _TOLERANCE)

    def excess(more: float, cheaply: bool) -> float:
        items = tuple(sorted({**spent, event: already + math.floor(more)}.items(), key=repr))
        return _epsilon(tuple((e, n) for e, n in items if n), delta, cheaply) - limit

    # The bounds that cost nothing give a number of answers that is certainly affordable; a privacy loss
    # distribution can only add to it, and is never asked about numbers far beyond the budget.
    low = 0 if excess(0, True) > 0 else math.floor(_last_good(lambda n: excess(n, True), 0, at_most, 0.5))
    high = low
    while high < at_most and excess(high, False) <= 0:
        low, high = high, min(2 * high + 1, at_most)
    return math.floor(_last_good(lambda n: excess(n, False), low, high, 0.5)) if low < high else low


def table(event: Event, delta: float, rounds: Sequence[int]) -> list[tuple[int, float]]:
    """(number of answers, epsilon) for each entry of `rounds`."""
    return [(n, epsilon({event: n}, delta)) for n in rounds]


# ------------------------------------------------------------------------------------------- the Gaussian trade-off


def gaussian_delta(mu: float, epsilon: float) -> float:
    """delta of N(0, 1) against N(mu, 1): Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)."""
    check.positive("gaussian_delta", mu=mu)
    check.non_negative("gaussian_delta", epsilon=epsilon)
    return math.exp(_log_gaussian_delta(mu, epsilon / mu - mu / 2))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The epsilon >= 0 at which N(0, 1) against N(mu, 1) has `delta`."""
    check.positive("gaussian_epsilon", mu=mu)
    check.between("gaussian_epsilon", 0, 1, delta=delta)
    goal = math.log(delta)
    # In x = epsilon/mu - mu/2 the curve has one scale for every mu: delta is at most Phi(-x) <= exp(-x²/2).
    if _log_gaussian_delta(mu, -mu / 2) <= goal:
        return 0.0
    x = math.sqrt(-2 * goal)
    # delta is log-concave in epsilon: the mean of (1 - exp(epsilon - loss))+, which is log-concave, over a normal loss.
    # So Newton's method for log delta = log(delta), begun on the safe side, never leaves it but by rounding.
    good, tolerance = x, 2**-51 * x
    while (log_delta := _log_gaussian_delta(mu, x)) <= goal:
        good, step = x, (log_delta - goal) / _log_delta_slope(mu, x, log_delta)
        if step <= tolerance:
            break
        x -= step
    else:
        good = _last_good(lambda x: _log_gaussian_delta(mu, x) - goal, good, x, tolerance)
    return max(0.0, mu * (good + mu / 2))


@lru_cache(maxsize=1024)
def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest mu for which N(0, 1) against N(mu, 1) is (`epsilon`, `delta`)-private."""
    check.positive("gaussian_mu", epsilon=epsilon)
    check.between("gaussian_mu", 0, 1, delta=delta)
    goal = math.log(delta)

    def excess(log_mu: float) -> float:
        mu = math.exp(log_mu)
        return _log_gaussian_delta(mu, epsilon / mu - mu / 2) - goal

    # epsilon = mu²/2 + mu sqrt(2 log 1/delta), solved for mu, is on the safe side.
    start = 2 * epsilon / (math.sqrt(-2 * goal + 2 * epsilon) + math.sqrt(-2 * goal))
    return math.exp(_growing(excess, math.log(start)))


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


@cache
def _special() -> tuple[Any, Any]:
    """An import statement in a loop of root finding would cost as much as the functions do."""
    from scipy.special import erfcx, ndtr

    return erfcx, ndtr


def _log_gaussian_delta(mu: float, x: float) -> float:
    """log delta at epsilon = mu (x + mu/2), to full relative precision.

    With M(t) = Phi(-t)/phi(t), Mills' ratio, delta = phi(x) (M(x) - M(x + mu)). For small mu the difference is the
    integral of -M'(t) = 1 - t M(t) over [x, x + mu], which has nothing left to cancel.
    """
    if x > 37.5:  # delta < 1e-305: the bound Phi(-x) <= exp(-x²/2) will do
        return -x * x / 2
    erfcx, ndtr = _special()
    log_phi = -x * x / 2 - 0.5 * math.log(2 * math.pi)
    if mu <= 0.5:
        t = x + mu * (_NODES + 1) / 2
        slope = 1 - t * (math.sqrt(math.pi / 2) * erfcx(t / math.sqrt(2)))
        return log_phi + math.log(mu / 2 * float(_WEIGHTS @ slope))
    far = math.sqrt(math.pi / 2) * float(erfcx((x + mu) / math.sqrt(2)))
    return math.log(float(ndtr(-x)) - math.exp(log_phi) * far)


def _log_delta_slope(mu: float, x: float, log_delta: float) -> float:
    """The derivative of `_log_gaussian_delta` in x: -mu phi(x) M(x + mu) / delta, for d delta / d epsilon is
    -e^epsilon Phi(-x - mu)."""
    if x > 37.5:
        return -x
    mills = math.sqrt(math.pi / 2) * float(_special()[0]((x + mu) / math.sqrt(2)))
    return -mu * math.exp(-x * x / 2 - 0.5 * math.log(2 * math.pi) - log_delta) * mills


# --------------------------------------------------------------------------------------- concentrated and Rényi DP


def _zcdp_epsilon(rho: float, delta: float) -> float:
    """Proposition 12 of Canonne, Kamath & Steinke for Rényi divergences `rho * order`, at the best real order.

    epsilon(order) = rho order + log(1 - 1/order) - log(delta order)/(order - 1) is least where
    rho (order - 1)² + log order = log(1/delta). Any order gives a valid bound, so nothing depends on the solver.
    """
    if delta == 0:
        return math.inf
    goal = -math.log(delta)
    most = min(goal, math.log1p(math.sqrt(goal / rho)))
    log_order = _last_good(lambda v: rho * math.expm1(v) ** 2 + v - goal, 0.0, most * (1 + 1e-15), 1e-14 * most)
    above_one = math.expm1(max(log_order, 1e-300))
    return max(0.0, rho * (1 + above_one) + math.log(above_one) - log_order + (goal - log_order) / above_one)


@lru_cache(maxsize=1024)
def _zcdp_rho(epsilon: float, delta: float) -> float:
    """The largest rho whose `_zcdp_epsilon` is at most `epsilon`."""
    check.between("zCDP", 0, 1, delta=delta)
    goal = -math.log(delta)
    start = 2 * math.log(epsilon / (math.sqrt(goal + epsilon) + math.sqrt(goal)))  # epsilon = rho + 2 sqrt(rho goal)
    return math.exp(_growing(lambda log_rho: _log_ratio(_zcdp_epsilon(math.exp(log_rho), delta), epsilon), start))


_WHOLE_ORDERS = np.arange(1, 257)
_ORDERS = np.concatenate([np.arange(11, 110) / 10, _WHOLE_ORDERS[10:]])


def _renyi_epsilon(curve: np.ndarray, delta: float) -> float:
    bounds = curve + np.log1p(-1 / _ORDERS) - (math.log(delta) + np.log(_ORDERS)) / (_ORDERS - 1)
    return max(0.0, float(bounds.min()))


@lru_cache(maxsize=1024)
def _renyi(event: Event) -> np.ndarray:
    """Rényi divergences of one event at `_ORDERS`."""
    without_sampling = _ORDERS / (2 * event.noise_multiplier**2)
    if event.mechanism in _PURE:
        return np.minimum(without_sampling, 1 / event.noise_multiplier)
    if not _is_sampled(event):
        return without_sampling
    log_excess = _log_poisson_excess(event) if event.sampling == "poisson" else _log_fixed_size_excess(event)
    # (order - 1) times the divergence is convex in the order: between whole orders a chord is an upper bound.
    cumulants = np.interp(_ORDERS, _WHOLE_ORDERS, np.logaddexp(0, log_excess))
    return np.minimum(cumulants / (_ORDERS - 1), without_sampling)


def _log_poisson_excess(event: Event) -> np.ndarray:
    """log(E[(P/Q)^order] - 1) of the Poisson-sampled Gaussian at whole orders: the binomial sum of Mironov, Talwar &
    Zhang, less the binomial expansion of 1, so that every term is positive."""
    k, exponent = _terms(event)
    log_terms = exponent + np.log(-np.expm1(-exponent)) + k * math.log(event.rate)
    return _binomial_sum(log_terms, math.log1p(-event.rate))


def _log_fixed_size_excess(event: Event) -> np.ndarray:
    """The sum of Theorem 27 of Wang, Balle & Kasiviswanathan, less its leading 1, at whole orders.

    The forward differences in it are the even moments E[(P/Q - 1)^k] of the full-batch Gaussian. As a sum they
    cancel (at high orders and multipliers from 30 on nothing is left); as the integral they are, nothing is lost.
    """
    k, exponent = _terms(event)
    z = np.arange(-28, 54, 0.1)
    ratio = z / event.noise_multiplier - 0.5 / event.noise_multiplier**2
    with np.errstate(divide="ignore", over="ignore"):
        log_distance = np.where(ratio > 40, ratio, np.log(np.abs(np.expm1(ratio))))
    even = np.arange(2, 258, 2)
    inside = even[:, None] * log_distance - z**2 / 2
    peak = inside.max(axis=1)
    log_moments = peak + np.log(np.exp(inside - peak[:, None]).sum(axis=1) * 0.1 / math.sqrt(2 * math.pi))
    # Beyond the grid the other argument of the minimum is the smaller one.
    log_moments[even > 40 * event.noise_multiplier] = math.inf
    between = (log_moments[k // 2 - 1] + log_moments[(k + 1) // 2 - 1]) / 2
    log_terms = np.minimum(math.log(4) + between, math.log(2) + exponent)
    return _binomial_sum(log_terms + k * math.log(event.batch / event.size), 0.0)


def _terms(event: Event) -> tuple[np.ndarray, np.ndarray]:
    """k = 2, 3, ... and log E[(P/Q)^k] of the full-batch Gaussian."""
    k = _WHOLE_ORDERS[1:]
    return k, k * (k - 1) / (2 * event.noise_multiplier**2)


def _binomial_sum(log_terms: np.ndarray, log_rest: float) -> np.ndarray:
    """log of sum over k >= 2 of binomial(order, k) terms[k] rest^(order - k), for each whole order."""
    logs = _log_binomials() + log_terms + log_rest * np.maximum(_WHOLE_ORDERS[:, None] - _WHOLE_ORDERS[1:], 0)
    return np.logaddexp.reduce(logs, axis=1)


@lru_cache(maxsize=1)
def _log_binomials() -> np.ndarray:
    from scipy.special import gammaln

    order, k = _WHOLE_ORDERS[:, None], _WHOLE_ORDERS[1:]
    logs = gammaln(order + 1) - gammaln(k + 1) - gammaln(np.maximum(order - k, 0) + 1)
    return np.where(k <= order, logs, -math.inf)


# -------------------------------------------------------------------------------------- privacy loss distributions


def _pld_epsilon(items: _Items, delta: float) -> float:
    """Poisson-sampled and full-batch Gaussians by privacy loss distributions; infinite where they are no use."""
    sampled = [(event, count) for event, count in items if _is_sampled(event)]
    full = _squared_mu((event, count) for event, count in items if not _is_sampled(event))
    step = min(_loss_step(event) for event, _ in sampled)
    width = full / 2 + 9 * math.sqrt(full) + sum(_loss_width(event, count) for event, count in sampled)
    # The rounding of the Fourier transforms is absolute, about 1e-15 per composition (measured): delta pays for it.
    delta -= 5e-15 * sum(count for _, count in sampled)
    if delta <= 0 or width > 2e6 * step:
        return math.inf
    import dp_accounting
    from dp_accounting import pld

    # Un-sampled Gaussians mean what they say under ADD_OR_REMOVE_ONE only.
    accountant = pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE, step)
    if full > 0:
        accountant.compose(dp_accounting.GaussianDpEvent(1 / math.sqrt(full)))
    for event, count in sampled:
        noise = dp_accounting.GaussianDpEvent(event.noise_multiplier)
        accountant.compose(dp_accounting.PoissonSampledDpEvent(event.rate, noise), count)
    return float(accountant.get_epsilon(delta))


def _loss_step(event: Event) -> float:
    """The grid of the privacy loss: 1e-3, and not much more or less than 10 000 points for one answer.

    Rounding to a grid `h` adds up to h²/6 to the variance of each loss. So where one loss spreads over less than four
    steps the grid must be finer, and where it spreads over many it may be coarser. More noise never coarsens it.
    """
    spread = event.rate * math.sqrt(math.expm1(min(event.noise_multiplier**-2, 700)))
    largest = _loss(event, _farthest(event))
    return float(max(min(1e-3, spread / 4), min(spread / 10, largest / 10_000), largest / 40_000))


def _loss_width(event: Event, count: int) -> float:
    """How far the loss of `count` answers may reach: Chernoff's bound for a tail of 1e-15."""
    exponents = np.array([1, 2, 4, 8, 20]) / _loss(event, _farthest(event))
    z = np.linspace(-10, _farthest(event), 2000)
    density = (1 - event.rate) * np.exp(-(z**2) / 2) + event.rate * np.exp(-((z - 1 / event.noise_multiplier) ** 2) / 2)
    moments = np.exp(exponents[:, None] * _loss(event, z)) @ density / density.sum()
    return float(np.min((count * np.log(moments) + 35) / exponents))


def _loss(event: Event, z: Any) -> Any:
    """Privacy loss of one answer, `z` standard deviations from its mean without the record."""
    inverse = 1 / event.noise_multiplier
    return np.logaddexp(math.log1p(-event.rate), math.log(event.rate) + z * inverse - inverse**2 / 2)


def _farthest(event: Event) -> float:
    return 10 + 1 / event.noise_multiplier


# ----------------------------------------------------------------------------------------- choosing between bounds


@lru_cache(maxsize=4096)  # clients of one run have the same history
def _epsilon(items: _Items, delta: float, cheaply: bool = False) -> float:
    return min((bound(delta) for _, bound in _methods(items, cheaply)), default=0.0)


def _methods(items: _Items, cheaply: bool = False) -> list[tuple[str, Callable[[float], float]]]:
    """Every valid bound as (name, delta -> epsilon), the one meant for such events last; `cheaply` leaves PLD out."""
    if not items:
        return []
    pure = tuple((event, count) for event, count in items if event.mechanism in _PURE)
    rest = tuple((event, count) for event, count in items if event.mechanism not in _PURE)
    added = math.fsum(count / event.noise_multiplier for event, count in pure)
    gaussian = all(event.mechanism == "gaussian" for event, _ in items)
    sampled = [event for event, _ in items if _is_sampled(event)]
    squared_mu = _squared_mu(items)  # = 2 rho, for pure events too
    methods: list[tuple[str, Callable[[float], float]]] = []

    if pure and rest:
        methods.append(("pure DP added to the rest", lambda delta: added + _epsilon(rest, delta, cheaply)))
    ignored = " (sampling ignored)" if sampled else ""
    if gaussian:
        name = f"exact Gaussian trade-off{ignored}"
        methods.append((name, lambda delta: gaussian_epsilon(math.sqrt(squared_mu), delta)))
    else:
        methods.append((f"zCDP{ignored}", lambda delta: _zcdp_epsilon(squared_mu / 2, delta)))
    if not rest:
        methods.append(("pure DP", lambda delta: added))
    if sampled:
        poisson = sampled[0].sampling == "poisson"  # never both: their relations differ
        how = "(Poisson sampling, add/remove)" if poisson else "(fixed-size sampling, replace-one)"

        def by_renyi(delta: float) -> float:
            return _renyi_epsilon(sum((count * _renyi(event) for event, count in items), np.zeros(len(_ORDERS))), delta)

        methods.append((f"RDP {how}", by_renyi))
        if poisson and gaussian and not cheaply:
            methods.append((f"PLD {how}", lambda delta: _pld_epsilon(items, delta)))
    return methods


def _items(who: str, spent: Spent, delta: float | None) -> _Items:
    """The events that happened, in a fixed order, once it is certain that their costs can be added."""
    for count in spent.values():
        check.whole(who, 0, count=count)
    events = [event for event, count in spent.items() if count]
    for event in events:
        if event.mechanism != "gaussian" and _is_sampled(event):
            raise check.NoGuarantee(
                f"{who}: no proof covers {event.mechanism} noise on {event.sampling} batches ({event}). "
                "Use sampling='full', or Gaussian noise"
            )
    relations = sorted({event.relation for event in events})
    if len(relations) > 1:
        named = "; ".join(str(event) for event in sorted(events, key=repr))
        raise check.NoGuarantee(
            f"{who}: events under different neighbouring relations ({', '.join(relations)}) do not add up: {named}. "
            "Keep to one relation per client"
        )
    if delta is not None and not (delta == 0 and all(event.mechanism in _PURE for event in events)):
        check.between(who, 0, 1, delta=delta)
    together: dict[Event, int] = {}
    for event in events:  # what a sensitivity rests on changes nothing about what it costs
        plain = event if event.row_bound == 0 else replace(event, row_bound=0.0)
        together[plain] = together.get(plain, 0) + int(spent[event])
    ordered = together if len(together) < 2 else sorted(together, key=repr)
    return tuple((event, together[event]) for event in ordered)


def _is_sampled(event: Event) -> bool:
    """Whether a record can be left out by chance: a rate of one or a batch of everything is a full batch."""
    return (event.sampling == "poisson" and event.rate < 1) or (
        event.sampling == "fixed-size" and event.batch < event.size
    )


def _has_closed_form(event: Event) -> bool:
    """Whether costs of such events are one number each, and add up."""
    return event.mechanism not in _PURE and not _is_sampled(event)


def _squared_mu(items: Iterable[tuple[Event, int]]) -> float:
    return math.fsum(count / event.noise_multiplier**2 for event, count in items)


# ---------------------------------------------------------------------------------------------------------- search


def _sampled_noise(cost: Callable[[float], float], target: float, enough: float, event: Event) -> float:
    """The least noise multiplier for secret batches; `enough` suffices without them."""

    def excess(log_noise: float) -> float:
        return _log_ratio(cost(math.exp(log_noise)), target)

    # Start where the central limit theorem (Bu et al. 2020) would have it, a little too low: a privacy loss
    # distribution takes a while, and for ever where epsilon is huge. Epsilon falls at least like 1/noise.
    rate = event.rate if event.sampling == "poisson" else event.batch / event.size
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
    good, bad = max(last, point), min(last, point)
    return math.exp(_last_good(excess, good, bad, 1e-5 if event.sampling == "poisson" else 1e-12))


def _noise_beside(spent: Spent, event: Event, answers: int, target: float, delta: float, least: float) -> float:
    """The least noise multiplier for `answers` events after `spent`; `least` would do if nothing had been spent."""
    before = _epsilon(_items("calibrate", spent, delta), delta)
    if before >= target:
        raise check.BudgetSpent(
            f"calibrate: epsilon {before:.6g} is spent before the first answer, and the budget is {target:.6g}. Give a "
            "larger budget, or spend less of it before"
        )

    def excess(log_noise: float) -> float:
        next_one = replace(event, noise_multiplier=math.exp(log_noise))
        together = {**spent, next_one: spent.get(next_one, 0) + answers}
        return _log_ratio(_epsilon(_items("calibrate", together, delta), delta), target)

    bad = good = math.log(least)
    while excess(good) > 0:  # ends, since without bound on the noise only `before` is left
        bad, good = good, good + 0.5
    return math.exp(_last_good(excess, good, bad, 1e-5 if event.sampling == "poisson" else 1e-12))


def _growing(excess: Callable[[float], float], start: float) -> float:
    """The last good point from `start` on, up to rounding a good one, where `excess` increases without bound."""
    good, bad = start - 1e-9, start
    while excess(bad) <= 0:
        good, bad = bad, bad + 0.5
    return _last_good(excess, good, bad, 2**-50)


def _log_ratio(value: float, target: float) -> float:
    """log(value/target), with the exact sign."""
    return math.log1p(max((value - target) / target, -1 + 1e-15))


def _last_good(excess: Callable[[float], float], good: float, bad: float, tolerance: float) -> float:
    """A point with excess <= 0, within `tolerance` of one with excess > 0.

    The ITP method (Oliveira & Takahashi 2020): regula falsi held close enough to bisection to keep its worst case.
    Unlike root finders it returns the safe end of the bracket. `good` may lie on either side of `bad`.
    """
    f_good, f_bad = excess(good), excess(bad)
    if f_bad <= 0:
        return bad
    first = abs(bad - good)
    reach = tolerance * 2.0 ** math.ceil(math.log2(max(first / tolerance, 1)))
    while abs(bad - good) > tolerance:
        middle = point = (good + bad) / 2
        if middle in (good, bad):
            break
        if math.isfinite(f_good) and math.isfinite(f_bad):
            line = (f_bad * good - f_good * bad) / (f_bad - f_good)
            inwards = math.copysign(1.0, middle - line)
            point = line + inwards * min(0.2 * (bad - good) ** 2 / first, abs(middle - line))
            radius = max(reach - abs(bad - good) / 2, 0.0)
            if abs(point - middle) > radius:
                point = middle - inwards * radius
        reach /= 2
        value = excess(point)
        if value <= 0:
            good, f_good = point, value
        else:
            bad, f_bad = point, value
    return good

"""Every bound that is proven for some events, and the smallest of them."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache

from sottovoce.core import check
from sottovoce.privacy.accounting.composition import PURE, Composition, Items, Spent, compose, is_sampled, squared_mu
from sottovoce.privacy.accounting.gaussian import gaussian_epsilon
from sottovoce.privacy.accounting.losses import losses_epsilon
from sottovoce.privacy.accounting.renyi import renyi_epsilon, zcdp_epsilon
from sottovoce.privacy.events import Event, GridEvent

_UP = 1 + 1e-11  # more than rounding takes from a curve of Rényi divergences
_Bound = tuple[str, Callable[[float], float]]
"""What to call a proof, and delta -> epsilon."""


def epsilon(spent: Spent, delta: float) -> float:
    """The smallest epsilon that is proven for all events of `spent` together; 0 for none.

    `delta` may be 0 if every event is pure (Laplace, randomised response).
    """
    return cost(compose("epsilon", spent, delta), delta)


def accountant_name(spent: Spent, delta: float | None = None) -> str:
    """What to call the proof: for a given `delta` the one that gives `epsilon`, else the one meant for such events."""
    items = compose("accountant_name", spent, delta).items
    if not items:
        return "nothing spent"
    bounds = _bounds(items)
    name, _ = bounds[-1] if delta is None else min(reversed(bounds), key=lambda bound: bound[1](delta))
    on_grid = any(isinstance(event, GridEvent) and count for event, count in spent.items())
    return f"{name}, discrete noise by Theorem 2" if on_grid else name


def table(event: Event, delta: float, rounds: Sequence[int]) -> list[tuple[int, float]]:
    """(number of answers, epsilon) for each entry of `rounds`."""
    for n in rounds:
        check.whole("table", 0, rounds=n)
    one = compose("table", {event: 1}, delta)  # other rules hold for any number of such answers
    (plain, _), slack = one.items[0], one.slack
    return [(n, cost(Composition(((plain, n),) if n else (), n * slack), delta)) for n in rounds]


def cost(composition: Composition, delta: float, cheaply: bool = False) -> float:
    """The epsilon of a composition; `cheaply` leaves out privacy loss distributions, which take a while."""
    slack = composition.slack
    return 2 * slack + _epsilon(composition.items, delta * math.exp(-slack), cheaply)


@lru_cache(maxsize=4096)  # clients of one run have the same history
def _epsilon(items: Items, delta: float, cheaply: bool = False) -> float:
    return min((bound(delta) for _, bound in _bounds(items, cheaply)), default=0.0)


def _bounds(items: Items, cheaply: bool = False) -> list[_Bound]:
    """Every valid bound, the one meant for such events last."""
    if not items:
        return []
    pure = tuple((event, count) for event, count in items if event.mechanism in PURE)
    rest = tuple((event, count) for event, count in items if event.mechanism not in PURE)
    added = _rounded_up(sum((count / Fraction(float(event.noise_multiplier)) for event, count in pure), Fraction(0)))
    gaussian = all(event.mechanism == "gaussian" for event, _ in items)
    sampled = [event for event, _ in items if is_sampled(event)]
    precision = squared_mu(items)  # = 2 rho, for pure events too
    bounds: list[_Bound] = []

    if pure and rest:
        together: Callable[[float], float] = lambda delta: added + _epsilon(rest, delta, cheaply)  # noqa: E731
        bounds.append(("pure DP added to the rest", lambda delta: math.nextafter(together(delta), math.inf)))
    ignored = " (sampling ignored)" if sampled else ""
    if gaussian:
        name = f"exact Gaussian trade-off{ignored}"
        bounds.append((name, lambda delta: gaussian_epsilon(math.sqrt(precision), delta)))
    else:
        bounds.append((f"zCDP{ignored}", lambda delta: zcdp_epsilon(precision / 2 * (1 + 2**-50), delta)))
    if not rest:
        bounds.append(("pure DP", lambda delta: added))
    if sampled:
        poisson = sampled[0].sampling == "poisson"  # never both: their relations differ
        how = "(Poisson sampling, add/remove)" if poisson else "(fixed-size sampling, replace-one)"
        bounds.append((f"RDP {how}", lambda delta: _UP * renyi_epsilon(items, delta)))
        if poisson and gaussian and not cheaply:
            bounds.append((f"PLD {how}", lambda delta: losses_epsilon(items, delta)))
    return bounds


def _rounded_up(exact: Fraction) -> float:
    """The smallest number that is not less."""
    try:
        near = float(exact)
    except OverflowError:
        return math.inf
    return near if near >= exact else math.nextafter(near, math.inf)

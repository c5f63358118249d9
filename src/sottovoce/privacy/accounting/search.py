"""Root finding that ends on the safe side of the root."""

import math
from collections.abc import Callable


def last_good(excess: Callable[[float], float], good: float, bad: float, tolerance: float) -> float:
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


def last_good_from(start: float, excess: Callable[[float], float]) -> float:
    """The last good point from `start` on, where `excess` increases without bound; `start` is good up to rounding."""
    good, bad = start - 1e-9, start
    while excess(bad) <= 0:
        good, bad = bad, bad + 0.5
    return last_good(excess, good, bad, 2**-50)


def log_ratio(value: float, target: float) -> float:
    """log(value/target), with the exact sign."""
    return math.log1p(max((value - target) / target, -1 + 1e-15))

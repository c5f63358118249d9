"""What several losses share."""

from collections.abc import Callable

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import Floats, Numbers
from sottovoce.core.loss import Loss as Loss
from sottovoce.core.loss import margins as margins

EPS = float(np.finfo(np.float64).eps)


def softplus(t: Floats) -> Floats:
    """log(1 + e^t), with all its digits where it is tiny. For many numbers `np.logaddexp` takes far longer.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce.problems.losses.base import softplus
    >>> softplus(np.array([-np.inf, -50.0, 0.0, np.inf]))
    array([0.00000000e+00, 1.92874985e-22, 6.93147181e-01,            inf])
    """
    return np.maximum(t, 0.0) + np.log1p(np.exp(-np.abs(t)))


def newton_prox(loss: Loss, v: Floats, y: Floats, rho: Numbers) -> Floats:
    """The prox of a loss with one output, convex or not, for which no formula is known.

    `loss.strong` is its smallest second derivative, negative if it is not convex; rho must exceed its size, so that
    what is minimised is strongly convex. Then the minimiser is at most |slope(v)| / (rho + strong) away from v.

    Examples
    --------
    >>> import numpy as np
    >>> from sottovoce.problems.losses import Squared, newton_prox
    >>> newton_prox(Squared(), np.array([2.0]), np.array([0.0]), 1.0)
    array([1.])
    """
    who = type(loss).__name__
    rho = check.positive_array(who, "rho", rho)
    check.require(bool(np.all(rho + loss.strong > 0.0)), who, f"rho must exceed {-loss.strong:g}", float(rho.min()))
    v, y, rho = np.broadcast_arrays(np.asarray(v, dtype=np.float64), y, rho)
    reach = -loss.slope(v, y) / (rho + min(loss.strong, 0.0))

    def equation(t: Floats) -> tuple[Floats, Floats]:
        return rho * (t - v) + loss.slope(t, y), rho + loss.second(t, y)

    return bracketed_root(equation, np.minimum(v, v + reach), np.maximum(v, v + reach), v, v)


def bracketed_root(
    equation: Callable[[Floats], tuple[Floats, Floats]], low: Floats, high: Floats, start: Floats, near: Floats
) -> Floats:
    """The root of a rising function between `low` and `high`, by Newton's method, with bisection when it leaves them.

    `equation` gives the function and its derivative. Digits count relative to the sizes of the root and of `near`.
    """
    t = start
    for _ in range(100):
        excess, rise = equation(t)
        low, high = np.where(excess < 0.0, t, low), np.where(excess > 0.0, t, high)
        new = t - excess / rise
        new = np.where((new >= low) & (new <= high), new, 0.5 * (low + high))
        moved, t = np.abs(new - t), new
        if not np.any(moved > 4.0 * EPS * (np.abs(t) + np.abs(near))):
            break
    return t

"""How much more likely is what was seen under one data set than under its neighbour?

Everything an observer sees is a value that is fixed by the past, plus fresh noise of known law. So the likelihood
ratio of a transcript is the product, value by value, of two noise densities: those around what the algorithm would
have said on the one data set and on the other, *both given the past that was seen*. Two runs of the true code give
them: one on the first data set, and one on the second with the same values forced on it.

Where the distance between the two does not depend on the past (a canary of linear loss), nothing needs sampling:
Gaussian values add up to one Gaussian of mu² = Σ |shift|²/scale², Laplace ones to epsilon = Σ |shift|_1/scale.
"""

import math
from collections.abc import Sequence

import numpy as np

from sottovoce.auditing.tape import Made
from sottovoce.privacy.accounting import gaussian_epsilon

CONSTANT = 1e-6  # relative: shifts that differ by less from run to run count as the same


def log_ratio(seen: np.ndarray, here: Made, there: Made) -> np.ndarray:
    """log density of `seen` (runs, 1, dim) under `here` minus that under `there`, (runs,).

    A scale of 0 is a point: what lies on it is infinitely likelier there than anywhere with noise.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        own, other = (_log_density(seen, made) for made in (here, there))
        return np.where(own == other, 0.0, own - other)  # two points at the same place: no difference


def _log_density(seen: np.ndarray, made: Made) -> np.ndarray:
    away = np.abs(seen - made.exact)
    scaled = np.where(away > 0, away / made.scale, 0.0)
    cost = scaled if made.kind == "laplace" else scaled**2 / 2
    return -(cost + np.log(made.scale)).sum(axis=(-2, -1))


def shifts(here: Sequence[Made], there: Sequence[Made]) -> np.ndarray | None:
    """How far apart the two stand at each value, in units of its noise; None if that depends on the past.

    The L2 norm of the shift for Gaussian noise, its L1 norm for Laplace. Infinite where one side has no noise and
    the other stands elsewhere or has some.
    """
    sizes = []
    for one, other in zip(here, there, strict=True):
        if one.kind != other.kind:
            return None
        if np.any((one.scale == 0) != (other.scale == 0)):
            sizes.append(math.inf)
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            moved = one.exact - other.exact
            shift = np.where(moved != 0, moved / one.scale, 0.0)
            alike = np.allclose(one.scale, other.scale, rtol=CONSTANT, atol=0)
            alike = alike and np.allclose(one.scale, one.scale[:1], rtol=CONSTANT, atol=0)
            size = float(np.linalg.norm(shift[0].ravel(), ord=1 if one.kind == "laplace" else 2))
        if not (alike and np.allclose(shift, shift[:1], rtol=0, atol=CONSTANT * max(size, CONSTANT))):
            return None
        sizes.append(size)
    return np.array(sizes)


def exact_epsilon(kind: str, sizes: np.ndarray, delta: float) -> float | None:
    """The epsilon at `delta` of values that stand so far apart, all of this kind; None where there is no formula."""
    if np.isinf(sizes).any():
        return math.inf
    if kind == "laplace":
        return float(sizes.sum()) if delta == 0 else None
    if delta == 0:
        return math.inf if sizes.any() else 0.0
    mu = float(np.linalg.norm(sizes))
    return gaussian_epsilon(mu, delta) if mu > 0 else 0.0


def noise_is_as_stated(seen: Sequence[np.ndarray], made: Sequence[Made]) -> bool:
    """Whether the noise that was added has the stated size and is fresh each time, as far as these runs can tell.

    A ratio computed from densities trusts them. Noise that is drawn once and used twice, or of another size, would
    be missed; so it is looked at first, with a false alarm in about one of a million audits.
    """
    pairs = zip(seen, made, strict=True)
    noise = [((x - m.exact) / m.scale).reshape(len(x), -1) for x, m in pairs if np.all(m.scale > 0)]
    if not noise or len(noise[0]) < 16:
        return True
    drawn = np.concatenate(noise, axis=1)
    laplace = any(m.kind == "laplace" for m in made)
    spread = np.abs(drawn).mean() if laplace else np.square(drawn).mean()  # both 1; deviation of one term: 1 or sqrt 2
    if abs(spread - 1) > 6 * math.sqrt((1 if laplace else 2) / drawn.size):
        return False
    for low in range(0, drawn.shape[1], 2000):  # twice the same number: equal to the last digit or nearly so
        some = drawn[:, low : low + 2000]
        related = np.abs(np.corrcoef(some, rowvar=False)) if some.shape[1] > 1 else np.eye(1)
        if np.any(related - np.eye(len(related)) > 0.99):
            return False
    return True

"""Epsilon computed a second time, by other means than `privacy/accounting/`: what `sottovoce verify` compares with.

Nothing of `privacy/accounting/` is used here. Where that one has a closed form or a sum of its own, this one asks
dp-accounting; where that one asks dp-accounting (Poisson batches), this one composes privacy losses itself.

| events | first | second |
|---|---|---|
| Gaussian, full batch | trade-off in closed form | dp-accounting, privacy loss distribution |
| Gaussian, Poisson batch | dp-accounting, privacy loss distribution | `compose_losses`, below |
| Gaussian, fixed-size batch | Rényi moments as integrals | `_by_printed_theorem`, below; dp-accounting, Rényi |
| discrete Gaussian on a known grid | Theorem 2 of `accounting/discrete.py` | the same, `_as_continuous` below |
| other discrete Gaussian, Gaussian chain | zCDP in closed form | dp-accounting, Rényi orders around the best one |
| Laplace, randomised response | sum, or zCDP | sum, or dp-accounting's zCDP |

Both take the least of the bounds that apply. Of one kind of answer the two numbers differ by rounding and grids alone:
by at most `TOLERANCE`, or `SAMPLED_TOLERANCE` where batches are drawn. What may differ more is said at `agree`.
"""

import math
from collections.abc import Iterator, Mapping
from decimal import Decimal, localcontext
from functools import lru_cache

import dp_accounting
import numpy as np
from dp_accounting import NeighboringRelation, rdp
from dp_accounting.pld import privacy_loss_distribution
from scipy.optimize import root_scalar
from scipy.special import gammaln, logsumexp, ndtr

from sottovoce.privacy.events import Event, GridEvent

TOLERANCE, SAMPLED_TOLERANCE = 1e-5, 1e-2  # relative
_MOST = 256  # order of a Rényi divergence
_CANCELS_FROM = 20.0  # noise multipliers from which differences of large numbers cancel in dp-accounting
_Items = tuple[tuple[Event, int], ...]
_PURE = ("laplace", "randomized-response")


def second_epsilon(spent: Mapping[Event, int], delta: float) -> float:
    """The epsilon of all these charges together at `delta`."""
    slack, kinds = 0.0, list[tuple[Event, int]]()
    for event, count in spent.items():
        if count and isinstance(event, GridEvent):
            continuous, slack_of_one = _as_continuous(event)
            kinds.append((continuous, count))
            slack += count * slack_of_one
        elif count:
            kinds.append((event, count))
    return 2 * slack + _epsilon(tuple(sorted(kinds, key=repr)), delta * math.exp(-slack)) if kinds else 0.0


def tolerance(spent: Mapping[Event, int]) -> float:
    """How far the two accountants may be apart, relative to epsilon."""
    return SAMPLED_TOLERANCE if any(_share(event) < 1 for event in spent) else TOLERANCE


def agree(first: float, second: float, spent: Mapping[Event, int]) -> bool:
    """Whether both numbers can be of these charges: the second not above the first, nor far below it.

    Where batches are drawn both are upper bounds on grids of their own. The first bounds several kinds of batches by
    Rényi divergences, the second by their exact losses, so it may be a quarter below. Beyond epsilon = 20, which
    protects nobody, grids are coarse.
    """
    apart = tolerance(spent)
    above, below, least = apart, apart, 1e-9
    if apart > TOLERANCE:
        above = apart if first <= 20 else 0.5
        below, least = (0.25 if len(spent) > 1 else apart), 1e-3
    return first * (1 - below) - least <= second <= first * (1 + above) + 1e-9


@lru_cache(maxsize=1024)
def _epsilon(items: _Items, delta: float) -> float:
    return min(_bounds(items, delta))


def _bounds(items: _Items, delta: float) -> Iterator[float]:
    """Every bound that applies."""
    pure = tuple((event, count) for event, count in items if event.mechanism in _PURE)
    rest = tuple((event, count) for event, count in items if event.mechanism not in _PURE)
    if pure:
        added = math.fsum(count / event.noise_multiplier for event, count in pure)
        yield added + _epsilon(rest, delta) if rest else added
    if delta == 0:
        return
    precision = math.fsum(count / event.noise_multiplier / event.noise_multiplier for event, count in items)
    gaussian = all(event.mechanism == "gaussian" for event, _ in items)
    sampled = {event.sampling for event, _ in items if _share(event) < 1}
    # A batch that nobody knows is never worse than all records: so its chance may be left out.
    yield _by_losses_of_one_gaussian(math.sqrt(precision), delta) if gaussian else _by_zcdp(precision / 2, delta)
    if sampled == {"poisson"} and gaussian:
        yield compose_losses([(event.rate, event.noise_multiplier, count) for event, count in items], delta)
    elif sampled:
        if sampled == {"fixed-size"}:
            yield _by_printed_theorem(items, delta)
        if max(event.noise_multiplier for event, _ in items) < _CANCELS_FROM:
            yield _by_renyi(items, delta)


@lru_cache(maxsize=1024)
def _as_continuous(event: GridEvent) -> tuple[Event, float]:
    """Theorem 2 with 50 digits: the Gaussian answer with 64 grid steps² less variance, and the slack of one answer.

    Of the two parts of the slack, b(64) and a sum of h − 1 numbers b(σ² k/(k+1)), each of the latter is at most
    b(σ²/2); and b = log((1 + θ)/(1 − θ)) <= 3 θ, θ <= 3 exp(−2π² v), as v >= 32.
    """
    with localcontext() as context:
        context.prec = 50
        # `scale` is rounded: this is the float that noise is drawn with.
        variance = Decimal(event.scale) ** 2
        lost = Decimal(64)
        deviation = (variance * event.contributors - lost).sqrt()
        pi_squared = Decimal("9.8696044010893586188344909998761511353136994072407")
        close = [9 * (-2 * pi_squared * v).exp() for v in (variance / 2, lost)]
        slack = event.coordinates * ((event.contributors - 1) * close[0] + close[1])
        multiplier = float(deviation / Decimal(event.sensitivity))
    batches = {"rate": event.rate, "batch": event.batch, "size": event.size}
    return Event("gaussian", multiplier, event.sampling, event.relation, **batches), float(slack)


def _share(event: Event) -> float:
    if event.sampling == "poisson":
        return event.rate
    return event.batch / event.size if event.sampling == "fixed-size" else 1.0


# -------------------------------------------------------------------------------------------------------- dp-accounting


def _by_losses_of_one_gaussian(mu: float, delta: float) -> float:
    step = (mu * mu / 2 + 10 * mu) / 10_000
    of_one = privacy_loss_distribution.from_gaussian_mechanism(1 / mu, value_discretization_interval=step)
    return float(of_one.get_epsilon_for_delta(delta))


def _by_zcdp(rho: float, delta: float) -> float:
    best = math.sqrt(math.log(1 / delta) / rho)
    return _renyi_accountant(1 + best * np.geomspace(0.05, 20, 2001), (dp_accounting.ZCDpEvent(rho), 1), delta=delta)


def _by_renyi(items: _Items, delta: float) -> float:
    fixed = any(event.sampling == "fixed-size" for event, _ in items)
    # Between whole orders dp-accounting's series for Poisson batches does not always converge.
    orders = [*np.arange(11, 110) / 10, *range(11, 65), 128, 256] if fixed else [*range(2, 129), 256]
    composed = ((_dp_event(event), count) for event, count in items)
    return _renyi_accountant(np.array(orders), *composed, delta=delta, replace=fixed)


def _renyi_accountant(
    orders: np.ndarray, *composed: tuple[dp_accounting.DpEvent, int], delta: float, replace: bool = False
) -> float:
    relation = NeighboringRelation.REPLACE_ONE if replace else NeighboringRelation.ADD_OR_REMOVE_ONE
    accountant = rdp.RdpAccountant(orders.tolist(), relation)
    for event, count in composed:
        accountant.compose(event, count)
    return float(accountant.get_epsilon(delta))


def _dp_event(event: Event) -> dp_accounting.DpEvent:
    """In dp-accounting's words. Noise is over the sensitivity of the event's own relation, which its Rényi accountant
    takes as it is; zCDP means the same under every relation."""
    if event.mechanism != "gaussian":
        return dp_accounting.ZCDpEvent(0.5 / event.noise_multiplier**2)
    noise = dp_accounting.GaussianDpEvent(event.noise_multiplier)
    if _share(event) == 1:
        return noise
    if event.sampling == "poisson":
        return dp_accounting.PoissonSampledDpEvent(event.rate, noise)
    return dp_accounting.SampledWithoutReplacementDpEvent(event.size, event.batch, noise)


# ------------------------------------------------------------------------------------- batches of fixed size, in digits


def _by_printed_theorem(items: _Items, delta: float) -> float:
    """Epsilon by Rényi divergences up to order 255: those of batches of fixed size as they were printed.

    They are printed for whole orders. (order - 1) times a divergence is convex in the order and 0 at order 1, so a
    chord between two whole orders is an upper bound.
    """
    whole = np.arange(1, _MOST)
    orders = np.concatenate([np.linspace(1.01, 16, 1500), np.linspace(16, _MOST - 1, 2000)])
    total = np.zeros(len(orders))
    for event, count in items:
        full = orders / (2 * event.noise_multiplier**2)
        if _share(event) < 1:
            printed = np.concatenate([[0.0], _of_fixed_size(event.noise_multiplier, _share(event))])
            full = np.minimum(full, np.interp(orders, whole, (whole - 1) * printed) / (orders - 1))
        total += count * full
    slack = np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    return max(float((total + slack).min()), 0.0)


@lru_cache(maxsize=64)
def _of_fixed_size(multiplier: float, rate: float) -> np.ndarray:
    """Theorem 27 of Wang, Balle & Kasiviswanathan 2019 as it is printed, with 150 digits, at orders 2 to 255.

    dp-accounting has it too, in floating point, where its differences of large numbers cancel from multipliers of
    about 30 on.
    """
    with localcontext() as context:
        context.prec = 150
        unit = 1 / (2 * Decimal(multiplier) ** 2)
        powers = [(j * (j - 1) * unit).exp() for j in range(_MOST + 1)]  # e^((j - 1) epsilon(j)) of a full batch
        even = [  # the forward differences of order 0, 2, 4, ...
            abs(sum(((-1) ** i * math.comb(order, i) * powers[i] for i in range(order + 1)), Decimal(0)))
            for order in range(0, _MOST + 1, 2)
        ]
        terms = [
            float(min(4 * (even[j // 2] * even[(j + 1) // 2]).sqrt(), 2 * powers[j]).ln()) for j in range(2, _MOST)
        ]
    j = np.arange(2, _MOST)
    log_terms, divergences = np.array(terms) + j * math.log(rate), np.empty(_MOST - 2)
    for order in range(2, _MOST):
        some = j[: order - 1]
        chosen = gammaln(order + 1) - gammaln(some + 1) - gammaln(order - some + 1)
        divergences[order - 2] = np.logaddexp(0.0, logsumexp(chosen + log_terms[: order - 1])) / (order - 1)
    return divergences


# ----------------------------------------------------------------------------------------- privacy losses, by ourselves


def compose_losses(answers: list[tuple[float, float, int]], delta: float) -> float:
    """Epsilon of Gaussian answers over Poisson batches, (rate, noise multiplier, how often), for a record that is there
    or not: the worse of the two directions.

    The privacy loss of one answer is put on a grid as Doroshenko, Ghazi, Kamath, Kumar & Manurangsi (2022) do: what
    lies between two points goes to both, so that the chance under either neighbour stays what it is. That can only
    make the pair easier to tell apart. Sums are a product of Fourier transforms.
    """
    return max(_directed(answers, delta, there) for there in (True, False))


def _directed(answers: list[tuple[float, float, int]], delta: float, there: bool) -> float:
    spreads = [rate * math.sqrt(math.expm1(min(noise**-2, 500))) for rate, noise, _ in answers]
    farthest = [float(_loss(1 + 10 * noise, rate, noise)) for rate, noise, _ in answers]
    deviation = math.sqrt(sum(count * spread**2 for (_, _, count), spread in zip(answers, spreads, strict=True)))
    certain = sum(count * one for (_, _, count), one in zip(answers, farthest, strict=True))  # no sum is beyond it
    reach = 2 * max(farthest) + min(15 * deviation + deviation**2, certain)
    size = 2 ** max(12, min(20, math.ceil(math.log2(2 * reach / min(*spreads, 0.08) * 8))))
    step = 2 * reach / size
    transform = np.ones(size // 2 + 1, dtype=complex)
    infinite = 0.0
    for rate, noise, count in answers:
        chances, beyond = _on_grid(rate, noise, step, size, there)
        transform = transform * np.fft.rfft(chances) ** count
        infinite += count * beyond
    chances = np.maximum(np.roll(np.fft.irfft(transform, size), size // 2), 0.0)
    losses = step * np.arange(-size // 2, size // 2)
    above = losses > 0
    return _epsilon_of_losses(losses[above], chances[above], delta - infinite)


def _loss(x: float | np.ndarray, rate: float, noise: float) -> np.ndarray:
    """log of the two densities' ratio where an answer came out as `x`, in units of one record's reach."""
    return np.logaddexp(math.log1p(-rate) if rate < 1 else -math.inf, math.log(rate) + (x - 0.5) / noise**2)


def _on_grid(rate: float, noise: float, step: float, size: int, there: bool) -> tuple[np.ndarray, float]:
    """Chances of the loss of one answer at the multiples of `step` (negative ones at the end), and of a loss beyond."""
    low, high = -10 * noise, 1 + 10 * noise
    first, last = math.floor(float(_loss(low, rate, noise)) / step), math.ceil(float(_loss(high, rate, noise)) / step)
    edges = step * np.arange(first, last + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(np.expm1(edges) / rate + 1) if rate < 1 else edges
        x = np.where(np.isfinite(ratio), ratio * noise**2 + 0.5, -np.inf)
    blank = np.diff(ndtr(x / noise))  # chance of each stretch without the record
    present = (1 - rate) * blank + rate * np.diff(ndtr((x - 1) / noise))
    chance, chance_elsewhere = (present, blank) if there else (blank, present)
    # On a stretch [a, b] of the loss log(chance/chance_elsewhere) there are two unknowns: what goes to a and to b.
    left, right = (edges[:-1], edges[1:]) if there else (-edges[1:], -edges[:-1])
    to_left = np.clip((chance_elsewhere - chance * np.exp(-right)) / (np.exp(-left) - np.exp(-right)), 0.0, chance)
    chances = np.zeros(size)
    places = np.rint(np.stack([left, right]) / step).astype(np.int64) % size
    np.add.at(chances, places[0], to_left)
    np.add.at(chances, places[1], chance - to_left)
    return chances, max(0.0, 1.0 - float(chances.sum()))


def _epsilon_of_losses(losses: np.ndarray, chances: np.ndarray, delta: float) -> float:
    """The least epsilon >= 0 at which the mean of (1 - exp(epsilon - loss))+ is at most `delta`."""
    if delta <= 0:
        return math.inf

    def excess(epsilon: float) -> float:
        return float(-(chances * np.expm1(np.minimum(epsilon - losses, 0.0))).sum()) - delta

    return 0.0 if excess(0.0) <= 0 else float(root_scalar(excess, bracket=(0.0, float(losses[-1]))).root)

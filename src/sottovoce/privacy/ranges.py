"""Private ranges of features: where records lie, asked of every owner by noisy counts.

Scaling by the true extremes (or the mean and deviation) of private rows gives away the record that attains them. Here
every owner answers two questions, out of the budget that pays for training: how many of its records lie in which cell
of a public grid, feature by feature. First cells of doubling size |x| in (2^(k-1), 2^k], then equal cells of the range
that the first answers showed. Each owner adds its own noise, so nobody has to trust whoever collects the counts.

Why it is private. For each feature a record lies in exactly one cell, so over d features replacing a record moves at
most 2d counts by one each: by √(2d) in L2 and 2d in L1. A record that is there or blank moves d counts: √d and d. The
first grid depends on no data, the second only on answers already given, so the two compose adaptively, and the ranges
are post-processing. Each owner's records enter its own counts alone: one event a question, at every owner.
"""

import math
from dataclasses import replace

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import Floats, Integers
from sottovoce.core.random.streams import Purpose
from sottovoce.privacy import accounting, discrete_noise
from sottovoce.privacy.doors.proven import Ledger
from sottovoce.privacy.events import LEAST_SCALE, Event, GridEvent
from sottovoce.privacy.modes import Proven
from sottovoce.privacy.noise_key import NoiseKey, Occasion

ANSWERS = 2
SIZES = 2.0 ** np.arange(-20, 41)  # below 2^-20 a value counts as 0, above 2^40 as 2^40
CELLS = 16
MOST_NOISE = 10.0  # times what training would have if ranges were free; beyond, there is no budget left to speak of
# A count is believed if it is this many deviations of the noise above 0. Of 1000 cells that hold nothing but noise,
# one is believed with a probability of 3e-4 (Gaussian); a wrong one only makes a range wider.
_STANDS_OUT = {"gaussian": 5.0, "discrete-gaussian": 5.0, "laplace": 10.0}


def plan_counts(epsilon: float, delta: float, privacy: Proven, features: int) -> Event:
    """The event that one answer is, both together costing (`epsilon`, `delta`); pure if `delta` is 0.

    Secure noise is accounted by Theorem 2 where that takes less noise than zCDP; `features`: their number.
    """
    rule = f"its ranges are private for one record, and the unit is a whole {privacy.unit}"
    hint = "State ranges instead, PublicScaler(ranges)"
    check.require(privacy.unit == "record", "PrivateScaler", rule, hint=hint, error=check.NoGuarantee)
    pure = delta == 0 or privacy.delta > 0
    check.require(pure, "PrivateScaler", "delta must be 0 where the whole budget has none", delta)
    secure = "discrete-gaussian" if privacy.noise == "secure" else "gaussian"
    kind = Event("laplace" if delta == 0 else secure, 1.0, relation=privacy.relation)
    kinds = [kind]
    if kind.mechanism == "discrete-gaussian":
        moved, counts = sensitivity(kind, features), features * max(len(SIZES) + 1, CELLS)
        any_noise = 2 * LEAST_SCALE
        kinds.append(
            GridEvent(kind.mechanism, any_noise, relation=kind.relation, sensitivity=moved, coordinates=counts)
        )
    planned = (accounting.with_least_noise(each, epsilon, delta, ANSWERS) for each in kinds)
    return min(planned, key=lambda event: event.noise_multiplier)


def must_leave_enough(event: Event, privacy: Proven) -> None:
    """Refuse ranges that cost so much of the whole budget that training would be little more than noise."""
    if _noise_of_one_answer(privacy, event) > MOST_NOISE * _noise_of_one_answer(privacy):
        raise check.InvalidInput(
            f"PrivateScaler: ranges would take nearly all of epsilon = {privacy.epsilon:g}, and training would have "
            f"more than {MOST_NOISE:g} times the noise. Give ranges a part of it, such as PrivateScaler(epsilon="
            f"{privacy.epsilon / 4:g}), make the whole larger, or state ranges (PublicScaler)"
        )


def left_for_training(event: Event, privacy: Proven) -> float:
    """The epsilon whose noise training will have, once ranges are paid for."""
    noise = _noise_of_one_answer(privacy, event)
    return accounting.epsilon({replace(_answer(privacy), noise_multiplier=noise): 1}, privacy.delta)


def _noise_of_one_answer(privacy: Proven, ranges: Event | None = None) -> float:
    """The noise multiplier if training were one answer; with `ranges`, out of what these leave of the budget."""
    spent = {} if ranges is None else {ranges: ANSWERS}
    try:
        return accounting.with_least_noise(_answer(privacy), privacy.epsilon, privacy.delta, 1, spent).noise_multiplier
    except check.BudgetSpent:
        return math.inf


def _answer(privacy: Proven) -> Event:
    """What an answer of training is, except for its noise."""
    secure = privacy.noise == "secure" and privacy.mechanism == "gaussian"
    return Event("discrete-gaussian" if secure else privacy.mechanism, 1.0, relation=privacy.relation)


def find_ranges(
    X: np.ndarray, offsets: np.ndarray, event: Event, delta: float, ledger: Ledger, key: NoiseKey | None
) -> np.ndarray:
    """Lower and upper end of each feature, (features, 2): few records lie beyond, or too few to see through noise.

    `key`: of seeded noise; None for noise from the operating system.

    Refuses before anything is asked if the noise would be larger than the counts: sizes and noise are public.
    """
    if key is None:
        discrete_noise.sampler()  # refuses a name that it does not know
    clients, features = len(offsets) - 1, X.shape[1]
    spread = math.sqrt(2) if event.mechanism == "laplace" else 1.0  # deviation of noise of scale 1
    believed = _STANDS_OUT[event.mechanism] * spread * math.sqrt(clients) * noise_scale(event, features)
    if believed > len(X) / 4:
        less_noise = Event(event.mechanism, event.noise_multiplier * len(X) / (4 * believed), relation=event.relation)
        enough = _up(accounting.epsilon({less_noise: ANSWERS}, delta))
        raise check.InvalidInput(
            f"PrivateScaler: noise would drown the counts: {features} features, {clients} owners with {len(X)} records "
            f"together, and only cells of more than about {believed:.0f} would stand out. Give it "
            f"epsilon = {enough:g}, scale fewer features, or state ranges (PublicScaler)"
        )
    fits = bool(ledger.afford(event, ANSWERS, np.arange(clients), 0).all())
    rule = "its two answers do not fit into what is left of every owner's budget. Nothing was asked"
    hint = "Give it a smaller epsilon, or the whole a larger one"
    check.require(fits, "PrivateScaler", rule, hint=hint, error=check.BudgetSpent)

    def seen(values: np.ndarray, edges: np.ndarray, question: int) -> np.ndarray:
        return noisy_counts(values, offsets, edges, question, event, ledger, key).sum(axis=0) > believed

    largest = SIZES[np.minimum(_last(seen(np.abs(X), np.tile(SIZES, (features, 1)), 0)), len(SIZES) - 1)]
    ends = largest[:, None] * np.linspace(-1.0, 1.0, CELLS + 1)
    where = seen(X, ends[:, 1:-1], 1)
    where[~where.any(axis=1)] = True  # too few records in each cell: keep the whole range
    return np.take_along_axis(ends, np.stack([np.argmax(where, axis=1), _last(where) + 1], axis=1), axis=1)


def noisy_counts(
    values: Floats, offsets: Integers, edges: Floats, question: int, event: Event, ledger: Ledger, key: NoiseKey | None
) -> Floats:
    """How many records of each owner lie in each cell of each feature, with noise: (clients, features, cells).

    `edges` are (features, cells - 1); a value on an edge belongs to the cell below. Charged before it is given.
    """
    clients, features, cells = len(offsets) - 1, len(edges), edges.shape[1] + 1
    everyone, scale = np.arange(clients), noise_scale(event, features)
    owner = np.repeat(everyone, np.diff(offsets)) * cells
    cell_of = [np.searchsorted(edges[feature], values[:, feature]) for feature in range(features)]
    counts = [np.bincount(owner + cell, minlength=clients * cells) for cell in cell_of]
    exact = np.stack(counts).reshape(features, clients, cells).swapaxes(0, 1)
    ledger.charge(event, everyone, np.ones(clients, dtype=bool), 0, question)
    if key is None:
        return discrete_noise.noised("laplace" if event.mechanism == "laplace" else "gaussian", scale, exact)
    flat = exact.reshape(clients, -1).astype(np.float64)
    asked = (edges.reshape(1, -1), np.full((1, 1), scale))
    noise = key.noise(event.mechanism, Occasion(everyone, everyone, 0, Purpose.NOISE, question), flat, asked)
    return exact + scale * noise.reshape(exact.shape)


def noise_scale(event: Event, features: int) -> float:
    """Deviation of the noise on a count (Laplace: its scale)."""
    return event.noise_multiplier * sensitivity(event, features)


def sensitivity(event: Event, features: int) -> float:
    """How far one record moves the counts of one owner, in the norm of the event's noise."""
    moved = features * (2 if event.relation == "replace-one" else 1)
    return float(moved) if event.mechanism == "laplace" else math.sqrt(moved)


def _up(value: float) -> float:
    """Rounded up to two digits, a little more so that rounding errors do not matter: it must be enough."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(1.001 * value / unit) * unit:.3g}")


def _last(seen: np.ndarray) -> np.ndarray:
    """The last True of each row (0 if there is none)."""
    return np.where(seen.any(axis=1), seen.shape[1] - 1 - np.argmax(seen[:, ::-1], axis=1), 0)

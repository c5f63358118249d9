"""What an answer should have been: its exact part and its sensitivity, computed by the audit itself.

Computed from the question, the rows and the promise. From the code under audit, only the formulas of the loss and of
the penalty's prox are used.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.auditing import promise
from sottovoce.auditing.game import Game, Promise, relation_of
from sottovoce.auditing.neighbours import Linear
from sottovoce.auditing.tape import MODEL, RELEASE, Answer
from sottovoce.core.arrays import Numbers
from sottovoce.core.contract import Asks, Part
from sottovoce.privacy.modes import Proven, ProvenColumns
from sottovoce.problems.federation import FederatedData
from sottovoce.problems.objective import Objective
from sottovoce.problems.vertical import Matrix, VerticalFederation

LEAST = 1e-200  # a grid is made for no smaller change


@dataclass(frozen=True)
class Expected:
    """An answer should be `public` + `exact` + noise of scale multiplier · `sensitivity`, (runs?, clients, 1).

    In published mode `sensitivity` is the noise scale of the paper, and the multiplier is 1. All of it is in the `unit`
    of each coordinate.
    """

    public: Numbers
    exact: np.ndarray
    sensitivity: np.ndarray
    kind: str = "gaussian"
    unit: Numbers = 1.0
    cut: Numbers = 1.0  # the length that is divided into steps of a grid, where noise is secure

    def given(self, answer: Answer) -> np.ndarray:
        """The part of the answer that should be `exact` and noise."""
        return (answer.given - self.public) / self.unit


@dataclass(frozen=True)
class World:
    """The data and the promise that answers are compared with."""

    federation: FederatedData
    objective: Objective
    privacy: Promise
    asks: Asks
    promises: tuple[promise.Promised, ...] = ()  # one for each part of `asks`; none in published mode

    @classmethod
    def of(cls, game: Game, side: int = 0) -> "World":
        privacy, federation = game.privacy, game.neighbours.side(side)
        loss, promises = game.objective.loss, ()
        if privacy.budget is not None:
            split = game.algorithm.layout == "columns"
            columns = max(federation.widths) if split else game.width // loss.outputs
            shape = (game.width, columns, loss.slope_at_zero)
            promises = promise.promised(cast(Proven | ProvenColumns, privacy), game.asks, game.rounds, *shape)
        return cls(federation, game.objective, privacy, game.asks, promises)

    def expect(self, answer: Answer) -> Expected | None:
        """None for answers without noise, and where noise cannot be separated from the rest."""
        compute = _EXPECTED[self.privacy.promise].get(answer.kind)
        wanted = None if compute is None else compute(self, answer)
        # A term of a sum is without what is public.
        return replace(wanted, public=0.0) if wanted is not None and self.privacy.sums else wanted

    def part_of(self, answer: Answer) -> Part:
        """The part of the plan that this answer belongs to."""
        return self.asks.at(answer.k) or self.asks.parts[-1]

    def number_of(self, answer: Answer) -> int:
        """Which of `promises` is about this answer."""
        return self.asks.parts.index(self.part_of(answer)) if len(self.promises) > 1 else 0

    def multiplier(self, answer: Answer) -> float | None:
        """The promised noise, divided by the sensitivity; None if only the accountant can tell."""
        if not self.promises:
            return 1.0
        promised = self.promises[self.number_of(answer)]
        whole = promised.multiplier
        return None if whole is None else whole / math.sqrt(promised.contributors)  # each adds a share

    @property
    def norm(self) -> int:
        """In which norm gradients are clipped."""
        return 1 if getattr(self.privacy, "mechanism", "gaussian") == "laplace" else 2

    @property
    def kind(self) -> str:
        return "laplace" if self.norm == 1 else "gaussian"

    @property
    def row_bounds(self) -> list[float]:
        """For each promise, the longest row for which the sensitivity holds; 0 where it holds for all rows."""
        bound = float(self.federation.row_bound or 0.0) if self.privacy.promise == "record" else 0.0
        parts = self.asks.parts[: len(self.promises)]
        return [bound if part.kind in ("prox-steps", "descent") else 0.0 for part in parts]

    @property
    def proven(self) -> Proven:
        """The promise, where rows are split and it has a budget."""
        return cast(Proven, self.privacy)

    def weight(self, local: np.ndarray) -> np.ndarray:
        """The weight of one record of each client."""
        sizes, scale = self.federation.sizes[local][:, None], self.objective.scale
        return 1.0 / sizes if scale == "mean" else np.full(sizes.shape, 1.0 if scale == "sum" else scale)

    def common(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers of clients (n, 1) that grids and noise are made for: where sums are seen, the largest of all."""
        return np.full_like(numbers, numbers.max()) if self.privacy.sums else numbers

    def rate(self, local: np.ndarray, batch: float) -> np.ndarray:
        """The share of its records that each client draws."""
        if not batch:
            return np.ones((len(local), 1))
        fixed = relation_of(self.privacy) == "replace-one"
        return promise.batch_rates(batch, self.federation.sizes[local], fixed)[:, None]

    def one_gradient(self, answer: Answer) -> np.ndarray:
        """How far one record moves a gradient."""
        rate = self.rate(answer.local, self.part_of(answer).batch)
        return self.common(promise.gradient_sensitivity(self.proven, self.weight(answer.local), rate))

    def in_steps(self, answer: Answer, moved: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How far one record moves an answer of which only the difference is bounded, and the length of GRID steps."""
        moved = np.maximum(moved, LEAST) if self.privacy.on_grid else moved
        steps = self.promises[self.number_of(answer)].steps
        if not steps and self.privacy.on_grid:  # Laplace noise: the norm is that of sums
            steps = promise.GRID + 2 * answer.given.shape[-1]
        return (moved * steps / promise.GRID if steps else moved), moved

    def smoothness(self, local: np.ndarray) -> np.ndarray:
        """A bound on how steep gradients are, from the promised bound on rows."""
        longest = np.inf if self.federation.row_bound is None else self.federation.row_bound
        return self.objective.loss.curvature * longest**2 * self.weight(local) * self.federation.sizes[local][:, None]

    def clipped_gradient(self, w: ArrayLike, local: np.ndarray, cap_rows: bool = False) -> np.ndarray:
        """The weight times the sum of the gradients of all records, each cut to the clip norm.

        `cap_rows`: rows are shortened instead, so that no slope makes a gradient longer than the clip norm.
        """
        loss, clip = self.objective.loss, self.proven.clip
        points, parts = np.asarray(w, dtype=np.float64), []
        for place, client in enumerate(local):
            X, y = self.federation.data()[client]
            X, y = np.asarray(X, dtype=np.float64), loss.check_labels(y)
            lengths = np.abs(X).sum(axis=1) if self.norm == 1 else np.sqrt(np.square(X).sum(axis=1))
            if cap_rows:
                X = X * _shortening(lengths, clip / loss.lipschitz)[:, None]
            point = points[..., place if points.shape[-2] > 1 else 0, :]
            slopes = loss.slope(point @ X.T, y)
            if not cap_rows:
                slopes = slopes * _shortening(np.abs(slopes) * lengths, clip)
            parts.append(slopes @ X)
        return np.stack(parts, axis=-2) * self.weight(local)


def shortened(vectors: np.ndarray, bound: float) -> np.ndarray:
    """Vectors that are longer than the bound, cut to it."""
    return vectors * _shortening(np.sqrt(np.square(vectors).sum(axis=-1, keepdims=True)), bound)


def _shortening(lengths: np.ndarray, bound: float) -> np.ndarray:
    """The factor that cuts these lengths to the bound."""
    return np.where(lengths > bound, bound / np.where(lengths > 0, lengths, 1.0), 1.0)


def _as_stated(
    answer: Answer, public: Numbers, sensitivity: np.ndarray, kind: str = "gaussian", cut: Numbers = 1.0
) -> Expected | None:
    """Where the audit cannot compute the exact part (drawn records are secret), the door's own value is taken."""
    return None if answer.made is None else Expected(public, answer.made.exact, sensitivity, kind, cut=cut)


# ---------------------------------------------------------------------------------------------------------------- rows


def _gradient(world: World, answer: Answer) -> Expected | None:
    one, local = world.one_gradient(answer), answer.local
    rate = world.rate(local, world.part_of(answer).batch)
    cut = world.common(world.proven.clip * world.weight(local) / rate)
    if (rate < 1).any() or world.objective.loss.outputs > 1:
        return _as_stated(answer, 0.0, one, world.kind, cut)
    return Expected(0.0, world.clipped_gradient(answer.asked["w"], local), one, world.kind, cut=cut)


def _argmin(world: World, answer: Answer) -> Expected | None:
    asked = answer.asked
    rho, ridge = np.asarray(asked["rho"], dtype=np.float64), asked["ridge"]
    moved, grid = world.in_steps(answer, promise.argmin_sensitivity(world.one_gradient(answer), rho, ridge))
    if not isinstance(world.objective.loss, Linear):
        return _as_stated(answer, 0.0, moved, cut=grid)
    slope = world.clipped_gradient(asked["centre"], answer.local, cap_rows=True)  # the same at every point
    exact = (rho * asked["centre"] - asked["linear"] - slope) / (rho + ridge)
    return Expected(0.0, exact, moved, cut=grid)


def _prox_steps(world: World, answer: Answer) -> Expected | None:
    start, spec, local = answer.asked["start"], answer.asked["spec"], answer.local
    one, loss = world.one_gradient(answer), world.objective.loss
    kept = np.all([world.smoothness(local) <= 2 * np.asarray(keep) for keep in spec.keep], axis=0)  # for each client
    absorbed = kept & (world.norm == 2 and loss.convex and loss.outputs == 1) | (not spec.fresh)
    most = 2 * world.proven.clip * world.weight(local) * world.federation.sizes[local][:, None]
    moved, grid = world.in_steps(answer, promise.prox_sensitivity(spec, one, np.where(absorbed, one, most)))
    if world.part_of(answer).batch or loss.outputs > 1:
        return _as_stated(answer, spec.centre, moved, world.kind, grid)
    x, ends = start - spec.centre, []
    fixed = None if spec.fresh else world.clipped_gradient(start if spec.at is None else spec.at, local)
    for keep, total in zip(spec.keep, spec.total, strict=True):
        slope = world.clipped_gradient(spec.centre + x, local) if fixed is None else fixed
        x = spec.h.prox((keep * x + spec.push - slope) / total, 1.0 / np.asarray(total))
        ends.append(x)
    exact = np.mean(ends, axis=0) if spec.average else x
    return Expected(spec.centre, exact, moved, world.kind, cut=grid)


def _descent(world: World, answer: Answer) -> Expected | None:
    start, spec, local = answer.asked["start"], answer.asked["spec"], answer.local
    if not isinstance(world.objective.loss, Linear):
        return None  # the curvature of later steps changes the noise of a step
    x = start
    for _ in range(spec.count):
        slope = world.clipped_gradient(x, local)
        x = x - spec.step * (slope + spec.ridge * x + spec.pull * (x - spec.centre))
    return Expected(0.0, x, promise.chain_deviation(spec, world.one_gradient(answer), world.smoothness(local)))


def _moments(world: World, answer: Answer) -> Expected:
    """First and second moments of rows that are divided by a bound. The answer is multiplied by it again."""
    kappa, loss, weight = answer.asked["kappa"], world.objective.loss, world.weight(answer.local)
    slope = min(answer.asked["slope_bound"], loss.slope_at_zero)
    bound, sums, first = world.proven.clip / slope, [], 0
    for client in answer.local:
        X, y = world.federation.data()[client]
        x = shortened(np.asarray(X, dtype=np.float64) / bound, 1.0)
        at_zero = np.zeros((len(x), loss.outputs) if loss.outputs > 1 else len(x))
        s = shortened(-loss.slope(at_zero, loss.check_labels(y)).reshape(len(x), -1), slope)
        gram, first = x.T @ x, loss.outputs * x.shape[1]
        above = np.sqrt(2) * gram[np.triu_indices(len(gram), 1)]
        sums.append(np.concatenate([(s.T @ x).ravel(), kappa * np.diagonal(gram), kappa * above]))
    exact, cut = weight * np.stack(sums), world.common(np.hypot(slope, kappa) * weight)
    one = promise.moments_sensitivity(world.proven, kappa, slope) * weight
    if steps := world.promises[world.number_of(answer)].steps:
        one = steps * cut / promise.GRID
    # The terms of a sum are of rows that were divided by the bound.
    unit = 1.0 if world.privacy.sums else np.where(np.arange(exact.shape[-1]) < first, bound, bound**2)
    return Expected(0.0, exact, one, unit=unit, cut=cut)


def _upload(world: World, answer: Answer) -> Expected:
    u, centre, clip = answer.asked["u"], answer.asked["centre"], world.proven.clip
    return Expected(centre, shortened(u - centre, clip), np.full((1, 1), 2 * clip), cut=clip)


def _published(world: World, answer: Answer) -> Expected | None:
    noise = answer.asked.get("noise")
    if noise is None:
        return None
    scale = np.broadcast_to(noise.scale, (*answer.given.shape[:-1], 1))
    return Expected(0.0, np.asarray(answer.asked["u"]), scale, noise.kind) if np.all(scale > 0) else None


# ------------------------------------------------------------------------------------------------------------- columns


def _columns(world: World, answer: Answer) -> Expected:
    """The scores of a party's ridge fit, or its model."""
    privacy, parts = cast(ProvenColumns, world.privacy), cast(VerticalFederation, world.federation).parts
    model, asked = answer.kind == MODEL, answer.asked
    target, rho = (asked["kept"].target, asked["kept"].rho) if model else (asked["target"], np.atleast_2d(asked["rho"]))
    bound = cast(float, privacy.bound)  # which a promise about scores has
    u = shortened(target, bound) if privacy.variant == "ridge" else target
    mu = world.objective.penalty.strong / rho
    exact = np.zeros((*u.shape[:-1], max(world.federation.widths) if model else u.shape[-1]))
    for place, party in enumerate(answer.local):
        left, lengths, right = np.linalg.svd(_bounded(parts[party], privacy), full_matrices=False)
        along = u[..., place, :] @ left
        ridge = mu[..., place if mu.shape[-2] > 1 else 0, :]
        if model:
            fitted = (along * lengths / (lengths**2 + ridge)) @ right
            exact[..., place, : fitted.shape[-1]] = fitted
        else:
            exact[..., place, :] = (along * lengths**2 / (lengths**2 + ridge)) @ left.T
    cut = float(privacy.model_bound or 0) if model else bound
    if privacy.variant == "clip":
        exact = shortened(exact, cut)
    elif privacy.unit == "record" and not model:
        exact = np.clip(exact, -float(privacy.score_bound or 0), float(privacy.score_bound or 0))
    moved = (promise.model_sensitivity if model else promise.scores_sensitivity)(privacy, u, mu)
    if privacy.variant == "ridge":
        moved, cut = world.in_steps(answer, moved)
    return Expected(0.0, exact, moved, cut=cut)


def _bounded(part: Matrix, privacy: ProvenColumns) -> np.ndarray:
    """The columns of a party, with columns or rows cut to the promised bounds."""
    if privacy.column_bound is not None:
        return shortened(np.asarray(part).T, privacy.column_bound).T
    return np.asarray(part) if privacy.row_bound is None else shortened(np.asarray(part), privacy.row_bound)


_EXPECTED: dict[str, dict[str, Callable[[World, Answer], Expected | None]]] = {  # by promise, and by kind of answer
    "record": {
        "gradient": _gradient,
        "argmin": _argmin,
        "prox-steps": _prox_steps,
        "descent": _descent,
        "moments": _moments,
    },
    "published": {RELEASE: _published},
    "client": {RELEASE: _upload},
    "columns": {"fit": _columns, MODEL: _columns},
}

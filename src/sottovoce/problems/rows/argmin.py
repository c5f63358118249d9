"""The arg-mins of many clients: all at once where that is fast, one after the other where it is not."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.core.arrays import Booleans, Floats, Integers, Numbers
from sottovoce.core.check import SottovoceError, non_negative, require
from sottovoce.problems.rows.active import ActiveClients
from sottovoce.problems.rows.stored import StoredRows, in_float64
from sottovoce.problems.rows.subproblem import Subproblem, minimise, surely_minimise

STIFF = 12.0  # root of the condition number: up to here arg-mins are computed for all clients at once
MOST_PASSES = 500  # over the rows, for that: 25 digits at the stiffest
_DIVERGED = "The algorithm that asks may have diverged"

Gradient = Callable[[Floats, Integers], Floats]  # of all f_i, at one point for each of these clients


@dataclass(frozen=True)
class Subproblems:
    """One subproblem for each run and client, made when its turn comes."""

    rows: StoredRows
    gradient: Gradient
    active: ActiveClients
    shift: Floats
    pull: Floats

    @property
    def shape(self) -> tuple[int, ...]:
        return self.shift.shape

    def __iter__(self) -> Iterator[tuple[tuple[int, ...], int, Subproblem]]:
        rows = self.rows
        for i, client in enumerate(self.active.clients):
            of_client = slice(self.active.starts[i], self.active.starts[i] + self.active.sizes[i])
            X, y = in_float64(rows.X[of_client]), rows.y[of_client]
            for run in np.ndindex(self.shape[:-2]):
                place = (*run, i)
                weight, pull = float(rows.weights[client, 0]), float(self.pull[place][0])
                yield place, int(client), Subproblem(X, y, rows.loss, weight, self.shift[place], pull)

    def descend(self, first: Floats, tol: Numbers) -> tuple[Floats, Booleans]:
        """All at once, by Nesterov's method: the answers, and for which of them the gradient is well within `tol`.

        Made for pulls that are not small compared with the curvature, as in ADMM. The others, and quadratics, which
        Newton's method solves in one step, stay at `first`. A client's answer depends on nobody else's rows.
        """
        rows, clients, loss = self.rows, self.active.clients, self.rows.loss
        squares = np.add.reduceat(np.square(rows.l2_norms), rows.offsets[:-1])[clients, None]
        steep = loss.curvature * squares * rows.weights[clients] + self.pull  # a trace is above every eigenvalue
        root = np.sqrt(self.pull / steep)
        answer, arrived = first.copy(), np.zeros(self.shape[:-1], dtype=bool)
        left = (root[..., 0] > 1 / STIFF) & (loss.strong < loss.curvature)
        momentum, w, v = (1 - root) / (1 + root), first, first
        for _ in range(MOST_PASSES):
            if not left.any():
                break
            slope = self.gradient(v, clients) + self.shift + self.pull * v
            there = left & (np.linalg.norm(slope, axis=-1) <= 0.9 * tol)
            answer[there], arrived[there], left[there] = v[there], True, False
            after = v - slope / steep
            w, v = after, after + momentum * (after - w)
        answer[left] = w[left]
        return answer, arrived

    def solve(self, start: Floats, tol: Numbers, last_steps: int | None) -> Floats:
        """The answers of all runs and clients; see `Rows.argmin`."""
        first = np.broadcast_to(np.asarray(start, dtype=np.float64), self.shape)
        tols = np.broadcast_to(np.asarray(tol, dtype=np.float64), self.shape[:-1])
        with np.errstate(all=None if last_steps is None else "ignore"):
            answer, arrived = self.descend(first, tols)
            for place, client, problem in self:
                if arrived[place]:
                    continue
                if last_steps is not None:
                    answer[place] = surely_minimise(problem, answer[place], float(tols[place]), last_steps)
                    continue
                answer[place], size = minimise(problem, answer[place], float(tols[place]))
                if not size <= tols[place]:  # the size itself is a number about private rows
                    raise SottovoceError(
                        f"Rows.argmin: client {client} stopped at a gradient longer than tol = {tols[place]:g}. "
                        "Bring the features to one scale by ranges that are known, or raise tol"
                    )
        return answer


def subproblems(
    rows: StoredRows,
    gradient: Gradient,
    centre: ArrayLike,
    rho: ArrayLike,
    linear: ArrayLike,
    ridge: float,
    clients: ArrayLike | None,
) -> Subproblems:
    """Minimise f_i(w) + <linear, w> + ridge/2 |w|^2 + rho/2 |w - centre|^2, for each of these clients i: checked."""
    active = rows.active(clients)
    non_negative("Rows.argmin", ridge=ridge)
    centre, rho, linear = (np.asarray(part, dtype=np.float64) for part in (centre, rho, linear))
    n, dim = len(active.sizes), rows.dim
    try:
        shape = np.broadcast_shapes(centre.shape, linear.shape, np.broadcast_shapes(rho.shape, (1, 1)), (n, dim))
    except ValueError:
        shape = ()
    require(
        len(shape) in (2, 3) and shape[-2:] == (n, dim) and (rho.ndim == 0 or rho.shape[-1] == 1),
        "Rows.argmin",
        f"centre and linear must broadcast to ([runs,] {n}, {dim}) and rho to ([runs,] {n}, 1)",
        (centre.shape, linear.shape, rho.shape),
    )
    good = (rho >= 0.0) & np.isfinite(rho)
    require(bool(good.all()), "Rows.argmin", "rho must be finite and >= 0")
    pull = np.broadcast_to(ridge + rho, (*shape[:-1], 1))
    if not np.all(pull > 0.0):
        convex = bool(np.all(pull + rows.strong_convexity(clients) > 0.0))
        hint = "Without either the minimiser may not exist or not be unique"
        require(convex, "Rows.argmin", "ridge + rho must be > 0 for this loss and these rows", hint=hint)
    shift = np.broadcast_to(linear - rho * centre, shape)
    require(bool(np.isfinite(shift).all()), "Rows.argmin", "centre and linear must be finite", hint=_DIVERGED)
    return Subproblems(rows, gradient, active, shift, pull)

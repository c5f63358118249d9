"""The exact oracle of a linear model whose rows belong to many clients.

Nothing here adds noise or asks whether an answer may be given: that is the business of the door that wraps it.

All rows stand in one array, client i owning rows offsets[i] to offsets[i+1], so unequal clients cost nothing. Arrays of
points and gradients end in (clients, coordinates); one more axis in front holds independent runs on the same data.
What a client gets never depends on who else is asked, not in the last bit, so that a simulation of all clients and one
client on its own machine give the same numbers.
"""

import itertools
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.core import clipping
from sottovoce.core.check import SottovoceError, finite_array, non_negative, one_of, positive, require
from sottovoce.core.contract import Layout
from sottovoce.problems.losses import Loss
from sottovoce.problems.subproblem import Subproblem, margins, minimise, surely_minimise

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from sottovoce.problems.kernels import Plan

KERNEL_PAYS_FROM = 2_000_000  # rows x parameters: below it NumPy is fast enough and nobody waits for a compiler
BLOCK = 2**18  # numbers in a temporary array of the NumPy engine (2 MB, to stay in cache)
STIFF = 12.0  # root of the condition number: up to here arg-mins are found for all clients at once
MOST_PASSES = 500  # over the rows, to find them: 25 digits at the stiffest
SPARE = 2**25  # numbers in the kernel's partial sums beyond the answer itself; more runs than that go in turns
_DIVERGED = "The algorithm that asks may have diverged"
_lock = threading.Lock()  # one of Numba's threading layers aborts the process on concurrent use


class Rows:
    """f_i(w) = weight_i * sum over the rows j of client i of loss(<x_j, w>, y_j), for all clients i at once.

    Parameters
    ----------
    X, y
        Features (rows, features) and labels (rows,), sorted by client. Kept without a copy if `X` is a C-contiguous
        float64 or float32 array already. Float32 halves the memory and what a pass has to read; all that is computed
        from it, and the norms that clipping relies on, is float64.
    offsets
        Client i owns rows offsets[i]:offsets[i+1]; every client has at least one.
    loss
        A loss of ``losses.py``. With p outputs a parameter is the flat form of a (p, features) array.
    scale
        "mean": weight_i = 1 / (number of rows of i); "sum": weight_i = 1.
    engine
        "numpy", "kernel" (compiled) or "auto", which decides once by the size of the data. The engines agree to
        rounding only, so the choice never depends on a later question.
    """

    layout: ClassVar[Layout] = "rows"

    def __init__(
        self, X: ArrayLike, y: ArrayLike, offsets: ArrayLike, loss: Loss, scale: str = "mean", engine: str = "auto"
    ) -> None:
        self.loss = loss
        stored = np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64
        self.X = np.ascontiguousarray(finite_array("Rows", "X", X, 2, stored))
        require(self.X.shape[1] > 0, "Rows", "X must have at least one column", self.X.shape)
        self.y = np.ascontiguousarray(loss.check_labels(y))
        require(len(self.y) == len(self.X), "Rows", f"y must have a label for each of {len(self.X)} rows", len(self.y))
        self.offsets = _checked_offsets(offsets, len(self.X))
        self.sizes = np.diff(self.offsets)
        self.n_clients = len(self.sizes)
        self.features = self.X.shape[1]
        self.dim = self.features * loss.outputs
        self.scale = one_of("Rows", "scale", scale, ("mean", "sum"))
        self.weights = (1.0 / self.sizes if scale == "mean" else np.ones(self.n_clients))[:, None]
        self.engine = engine_for(engine, len(self.X), self.dim)
        everyone = np.arange(self.n_clients)
        self._everyone = _Active(
            everyone, self.offsets[:-1], self.sizes, max(1, BLOCK // self.features), contiguous=True
        )
        self._last_asked = self._everyone  # local steps ask the same clients again and again
        self._eigenvalues = np.full((self.n_clients, 2), np.nan)
        self._last_capped: tuple[float, Rows] | None = None
        self._last_clipping: tuple[tuple[float, int], _Clipping] | None = None

    def __repr__(self) -> str:
        rows, features = self.X.shape
        return f"Rows({self.n_clients} clients, {rows} x {features}, {self.loss!r}, engine={self.engine!r})"

    def gradient(
        self,
        w: np.ndarray,
        clients: ArrayLike | None = None,
        clip: float | None = None,
        norm: int = 2,
        keep: np.ndarray | None = None,
    ) -> np.ndarray:
        """Gradient of f_i at each client's point, (..., clients, dim).

        Parameters
        ----------
        w
            Points (..., clients, dim), or (..., 1, dim) if all stand at the same.
        clients
            Which clients, in any order, and the order of the answer; all by default.
        clip
            Each row's gradient is scaled down to this norm first: its slope is held within a bound that follows from
            the row's length alone. So the bound holds at any `w`, exactly, whatever error the margin has.
        norm
            Which norm is clipped, 1 or 2.
        keep
            Booleans (..., rows of these clients, one after the other): only these rows enter the sum. The weight stays.
        """
        active = self._active(clients)
        points = self._points(w, active)
        sample = _checked_keep(keep, active, len(points))
        bound = self._clipping(clip, norm)
        compute = self._gradient_by_kernel if self.engine == "kernel" else self._gradient_by_numpy
        with np.errstate(over="ignore", invalid="ignore"):  # the kernel does not warn either
            answer = compute(active, points, bound, sample)
        answer = answer.reshape(len(answer), len(active.sizes), self.dim)
        return answer if np.ndim(w) == 3 or (keep is not None and np.ndim(keep) == 2) else answer[0]

    def value(self, w: np.ndarray, clients: ArrayLike | None = None) -> np.ndarray:
        """f_i at each client's point, (..., clients); `w` as in `gradient`."""
        active = self._active(clients)
        points = self._points(w, active)
        values = np.zeros((len(points), len(active.sizes)))
        for block in active.blocks:
            X, y = _wide(self.X[block.rows]), self.y[block.rows]
            for run, point in enumerate(points):
                losses = self.loss.value(self._margins(X, point, block), y)
                values[run, block.low : block.high] = np.add.reduceat(losses, block.bounds[:-1])
        values *= self.weights[active.clients, 0]
        return values if np.ndim(w) == 3 else values[0]

    def smoothness(self, clients: ArrayLike | None = None) -> np.ndarray:
        """Lipschitz constant of the gradient of f_i, (clients, 1): exact up to the loss's own largest curvature."""
        chosen = self._active(clients).clients
        return self.loss.curvature * self._spectrum(chosen)[:, 1:] * self.weights[chosen]

    def strong_convexity(self, clients: ArrayLike | None = None) -> np.ndarray:
        """Strong convexity of f_i without any ridge, (clients, 1): 0 unless the loss has some of its own."""
        chosen = self._active(clients).clients
        if self.loss.strong == 0.0:
            return np.zeros((len(chosen), 1))
        return self.loss.strong * self._spectrum(chosen)[:, :1] * self.weights[chosen]

    def argmin(
        self,
        centre: np.ndarray,
        rho: ArrayLike,
        linear: ArrayLike = 0.0,
        ridge: float = 0.0,
        clients: ArrayLike | None = None,
        start: np.ndarray | None = None,
        tol: float | np.ndarray = 1e-9,
        row_cap: float | None = None,
        last_steps: int | None = None,
    ) -> np.ndarray:
        """Minimiser of f_i(w) + <linear, w> + ridge/2 |w|^2 + rho/2 |w - centre|^2, (..., clients, dim).

        The Euclidean norm of the gradient is at most `tol` at every answer (`certificate` computes it), or this raises;
        with `last_steps` it never does, see there.

        Parameters
        ----------
        centre, linear, start
            Broadcast against (..., clients, dim); the search starts at `centre` unless told otherwise.
        rho
            A number, or one for each client, (..., clients, 1).
        row_cap
            Rows longer than this are scaled down to it, which bounds each row's gradient by row_cap * loss.lipschitz.
        tol
            A number, or one for each client, (..., clients).
        last_steps
            For doors, at which an error would tell something of the rows. Where other solvers miss `tol`, take up to
            so many steps of gradient descent, which reach it under a public condition (`surely_minimise`), and
            return the best point in any case.
        """
        require(bool(np.all(np.asarray(tol) > 0.0)), "Rows.argmin", "tol must be > 0", tol)
        problems = self._subproblems(centre, rho, linear, ridge, clients, row_cap)
        first = np.broadcast_to(np.asarray(centre if start is None else start, dtype=np.float64), problems.shape)
        tols = np.broadcast_to(np.asarray(tol, dtype=np.float64), problems.shape[:-1])
        with np.errstate(all=None if last_steps is None else "ignore"):
            answer, arrived = problems.descend(first, tols)
            for place, client, problem in problems:
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

    def certificate(
        self,
        w: np.ndarray,
        centre: np.ndarray,
        rho: ArrayLike,
        linear: ArrayLike = 0.0,
        ridge: float = 0.0,
        clients: ArrayLike | None = None,
        row_cap: float | None = None,
    ) -> np.ndarray:
        """Euclidean norm of the gradient of `argmin`'s objective at `w`, (..., clients)."""
        problems = self._subproblems(centre, rho, linear, ridge, clients, row_cap)
        w = np.broadcast_to(np.asarray(w, dtype=np.float64), problems.shape)
        sizes = np.empty(problems.shape[:-1])
        for place, _, problem in problems:
            sizes[place] = np.linalg.norm(problem.gradient(w[place]))
        return sizes

    def clipped_examples(self, w: np.ndarray, client: int, clip: float, norm: int = 2) -> np.ndarray:
        """Gradient of each row of one client, clipped as in `gradient` but neither summed nor weighted: (rows, dim)."""
        rows = slice(self.offsets[client], self.offsets[client + 1])
        X, outputs = _wide(self.X[rows]), self.loss.outputs
        with np.errstate(over="ignore", invalid="ignore"):
            slopes = self.loss.slope(margins(X, w, outputs), self.y[rows]).reshape(len(X), outputs)
        slopes = self._clipping(clip, norm).apply(slopes, rows)
        return (slopes[:, :, None] * X[:, None, :]).reshape(len(X), self.dim)

    def longest_row(self, clients: ArrayLike | None = None) -> np.ndarray:
        """The largest Euclidean norm of a row of each client, (clients, 1)."""
        longest = np.maximum.reduceat(self._l2_norms, self.offsets[:-1])[:, None]
        return longest if clients is None else longest[np.asarray(clients)]

    def _active(self, clients: ArrayLike | None) -> "_Active":
        if clients is None:
            return self._everyone
        chosen = np.asarray(clients)
        numbers = chosen.ndim == 1 and (np.issubdtype(chosen.dtype, np.integer) or chosen.size == 0)
        require(numbers, "Rows", "clients must be a list of client numbers", clients)
        last = self._last_asked
        if np.array_equal(chosen, last.clients):
            return last
        chosen = chosen.astype(np.int64)  # a copy: the caller may change its own
        bad = chosen[(chosen < 0) | (chosen >= self.n_clients)]
        require(not bad.size, "Rows", f"clients must be numbers 0..{self.n_clients - 1}, got {bad[:1].tolist()}")
        new = _Active(chosen, self.offsets[chosen], self.sizes[chosen], last.rows_per_block, contiguous=False)
        self._last_asked = new
        return new

    def _points(self, w: np.ndarray, active: "_Active") -> np.ndarray:
        """`w` as (runs, clients or 1, outputs, features)."""
        w = np.ascontiguousarray(w, dtype=np.float64)
        n = len(active.sizes)
        fits = w.ndim in (2, 3) and w.shape[-1] == self.dim and w.shape[-2] in (1, n)
        require(fits, "Rows", f"w must have shape ([runs,] {n} or 1, {self.dim})", w.shape)
        return w.reshape(*(w.shape[:-1] if w.ndim == 3 else (1, *w.shape[:-1])), self.loss.outputs, self.features)

    def _margins(self, X: np.ndarray, point: np.ndarray, block: "_Block") -> np.ndarray:
        """Margins of a block's rows, each at its owner's point: (rows,), or (rows, outputs) if there are several."""
        margins = np.empty((len(X), self.loss.outputs))
        for c in range(self.loss.outputs):
            if len(point) == 1:
                own = np.broadcast_to(point[0, c], X.shape)
            else:
                own = np.repeat(point[block.low : block.high, c], np.diff(block.bounds), axis=0)
            np.einsum("ij,ij->i", X, own, out=margins[:, c])
        return margins if self.loss.outputs > 1 else margins[:, 0]

    def _gradient_by_numpy(
        self, active: "_Active", points: np.ndarray, bound: "_Clipping", keep: np.ndarray
    ) -> np.ndarray:
        runs = max(len(points), len(keep))
        answer = np.empty((runs, len(active.sizes), self.loss.outputs, self.features))
        for block in active.blocks:
            X, y = _wide(self.X[block.rows]), self.y[block.rows]
            for run in range(runs):
                margins = self._margins(X, points[run if len(points) > 1 else 0], block)
                slopes = bound.apply(self.loss.slope(margins, y).reshape(len(X), -1), block.rows)
                if len(keep):
                    kept = keep[run if len(keep) > 1 else 0, block.first : block.first + len(X)]
                    slopes = np.where(kept[:, None], slopes, 0.0)
                for c, slope in enumerate(np.ascontiguousarray(slopes.T)):
                    answer[run, block.low : block.high, c] = block.sum(slope, X)
        answer *= self.weights[active.clients, :, None]
        return answer

    def _gradient_by_kernel(
        self, active: "_Active", points: np.ndarray, bound: "_Clipping", keep: np.ndarray
    ) -> np.ndarray:
        from sottovoce.problems import kernels

        n, runs = len(active.sizes), max(len(points), len(keep))
        shape = (runs, n, self.loss.outputs, self.features)
        if n == 0:
            return np.empty(shape)
        plan, weights = active.plan, self.weights[active.clients, 0]
        at_once = max(1, SPARE // max(1, (plan.places - n) * self.dim))
        answers = []
        for low in range(0, runs, at_once):
            turn = slice(low, low + at_once)
            sums = np.zeros((min(at_once, runs - low), plan.places, *shape[2:]))
            with _lock:
                kernels.gradients(self.X.dtype.name)(
                    *(self.X, self.y, bound.caps),
                    *(self.loss.code, self.loss.parameter, bound.norm, clipping.room(self.loss.outputs), weights),
                    *(points[turn] if len(points) > 1 else points, keep[turn] if len(keep) > 1 else keep),
                    *(plan.chunks, plan.tasks, plan.folds, sums),
                )
            answers.append(np.ascontiguousarray(sums[:, :n]))
        return answers[0] if len(answers) == 1 else np.concatenate(answers)

    @property
    def roundings(self) -> np.ndarray:
        """How many roundings a row's share of a client's gradient can go through, (clients, 1).

        One for the product of slope and coordinate, one for the weight, and one for each addition: at most as many as
        there are rows; with the kernel as many as there are in a chunk, and then as there are chunks.
        """
        rows = self.sizes
        if self.engine == "kernel":
            from sottovoce.problems.kernels import ROWS_PER_CHUNK

            rows = np.minimum(rows, ROWS_PER_CHUNK) + -(-rows // ROWS_PER_CHUNK)
        return rows[:, None] + 2

    def _clipping(self, clip: float | None, norm: int) -> "_Clipping":
        require(norm in (1, 2), "Rows", "norm must be 1 or 2", norm)
        if clip is None:
            return _Clipping(np.inf, norm, np.empty(0))
        positive("Rows", clip=clip)
        asked = (float(clip), norm)
        if self._last_clipping is None or self._last_clipping[0] != asked:  # a run has one
            norms = self._l1_norms if norm == 1 else self._l2_norms
            caps = clipping.slope_caps(norms, float(clip), self.features)
            self._last_clipping = asked, _Clipping(float(clip), norm, caps)
        return self._last_clipping[1]

    @cached_property
    def _l1_norms(self) -> np.ndarray:
        with np.errstate(over="ignore"):
            return np.concatenate([np.abs(X).sum(axis=1) for X in self._slabs()])

    @cached_property
    def _l2_norms(self) -> np.ndarray:
        """Computed relative to each row's largest entry, so that no tiny row passes for an empty one."""
        norms = []
        for X in self._slabs():
            top = np.abs(X).max(axis=1, keepdims=True)
            with np.errstate(over="ignore", under="ignore"):
                norms.append(top[:, 0] * np.sqrt(np.square(X / np.where(top > 0.0, top, 1.0)).sum(axis=1)))
        return np.concatenate(norms)

    def _slabs(self) -> Iterator[np.ndarray]:
        step = max(1, BLOCK // self.features)
        return (_wide(self.X[low : low + step]) for low in range(0, len(self.X), step))

    def _spectrum(self, clients: np.ndarray) -> np.ndarray:
        """Smallest and largest eigenvalue of X_i' X_i, (clients, 2); computed once for each client."""
        missing = np.unique(clients[np.isnan(self._eigenvalues[clients, 0])])
        for size in np.unique(self.sizes[missing]):
            alike = missing[self.sizes[missing] == size]
            step = max(1, 16 * BLOCK // (int(size) * self.features))
            for low in range(0, len(alike), step):
                some = alike[low : low + step]
                X = _wide(self.X[self.offsets[some][:, None] + np.arange(size)])
                gram = X.mT @ X if size >= self.features else X @ X.mT
                eigenvalues = np.linalg.eigvalsh(gram)[:, [0, -1]]
                if size < self.features:
                    eigenvalues[:, 0] = 0.0
                self._eigenvalues[some] = np.maximum(eigenvalues, 0.0)
        return self._eigenvalues[clients]

    def _subproblems(
        self,
        centre: np.ndarray,
        rho: ArrayLike,
        linear: ArrayLike,
        ridge: float,
        clients: ArrayLike | None,
        row_cap: float | None,
    ) -> "_Subproblems":
        active = self._active(clients)
        non_negative("Rows.argmin", ridge=ridge)
        centre, rho, linear = (np.asarray(part, dtype=np.float64) for part in (centre, rho, linear))
        own = (len(active.sizes), self.dim)
        try:
            shape = np.broadcast_shapes(centre.shape, linear.shape, np.broadcast_shapes(rho.shape, (1, 1)), own)
        except ValueError:
            shape = ()
        require(
            len(shape) in (2, 3) and shape[-2:] == own and (rho.ndim == 0 or rho.shape[-1] == 1),
            "Rows.argmin",
            f"centre and linear must broadcast to ([runs,] {own[0]}, {own[1]}) and rho to ([runs,] {own[0]}, 1)",
            (centre.shape, linear.shape, rho.shape),
        )
        good = (rho >= 0.0) & np.isfinite(rho)
        require(bool(good.all()), "Rows.argmin", "rho must be finite and >= 0")
        pull = np.broadcast_to(ridge + rho, (*shape[:-1], 1))
        if not np.all(pull > 0.0):
            convex = bool(np.all(pull + self.strong_convexity(clients) > 0.0))
            hint = "Without either the minimiser may not exist or not be unique"
            require(convex, "Rows.argmin", "ridge + rho must be > 0 for this loss and these rows", hint=hint)
        shift = np.broadcast_to(linear - rho * centre, shape)
        require(bool(np.isfinite(shift).all()), "Rows.argmin", "centre and linear must be finite", hint=_DIVERGED)
        if row_cap is not None:
            positive("Rows.argmin", row_cap=row_cap)
        return _Subproblems(self if row_cap is None else self._capped(row_cap), active, shift, pull)

    def _capped(self, cap: float) -> "Rows":
        """These rows, those longer than `cap` scaled down to it."""
        if self._l2_norms.max() <= cap * (1.0 - 2.0 * clipping.room(self.features)):
            return self
        if self._last_capped is None or self._last_capped[0] != cap:
            X = np.concatenate([clipping.clip_rows(X, cap) for X in self._slabs()])
            self._last_capped = cap, Rows(X, self.y, self.offsets, self.loss, self.scale, self.engine)
        return self._last_capped[1]


def engine_for(engine: str, rows: int, dim: int) -> str:
    """The engine; "auto" is decided by the number of rows of all clients and of parameters.

    Engines agree to rounding only. So this is decided once, by whoever has all clients in view, and clients on machines
    of their own are told.
    """
    if one_of("Rows", "engine", engine, ("auto", "numpy", "kernel")) != "auto":
        return engine
    return "kernel" if rows * dim >= KERNEL_PAYS_FROM else "numpy"


@dataclass(frozen=True)
class _Block:
    """Clients low:high of those asked, and their rows."""

    low: int
    high: int
    rows: slice | np.ndarray  # where they stand in X
    first: int  # how many rows of those asked come before
    bounds: np.ndarray  # client low+j owns rows bounds[j]:bounds[j+1] of the block

    @cached_property
    def _owners(self) -> "csr_array":
        """The sparse (clients, rows) matrix of who owns what."""
        from scipy.sparse import csr_array

        rows = np.arange(self.bounds[-1])
        return csr_array((np.ones(len(rows)), rows, self.bounds), shape=(self.high - self.low, len(rows)))

    def sum(self, slope: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Each client's sum of slope x row: a sparse product, which adds row after row and knows no other client."""
        with _lock:
            self._owners.data = slope
            return self._owners @ X


@dataclass(frozen=True)
class _Active:
    """The clients of one question, in its order."""

    clients: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    rows_per_block: int
    contiguous: bool

    @cached_property
    def bounds(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @cached_property
    def plan(self) -> "Plan":
        from sottovoce.problems import kernels

        return kernels.plan(self.starts, self.sizes)

    @cached_property
    def blocks(self) -> list[_Block]:
        """Whole clients, about `rows_per_block` rows at a time."""
        lows = np.unique(self.bounds[:-1] // self.rows_per_block, return_index=True)[1].tolist()
        blocks = []
        for low, high in itertools.pairwise([*lows, len(self.sizes)]):
            first, end = int(self.bounds[low]), int(self.bounds[high])
            rows: slice | np.ndarray = slice(first, end)
            if not self.contiguous:
                jumps = self.starts[low:high] - self.bounds[low:high]
                rows = np.repeat(jumps, self.sizes[low:high]) + np.arange(first, end)
            blocks.append(_Block(low, high, rows, first, self.bounds[low : high + 1] - first))
        return blocks


@dataclass(frozen=True)
class _Clipping:
    bound: float
    norm: int
    caps: np.ndarray  # the largest slope of each row; empty if nothing is clipped

    def apply(self, slopes: np.ndarray, rows: slice | np.ndarray) -> np.ndarray:
        """Slopes (rows, outputs) such that slope x row has at most the norm `bound`; 0 where it is no number."""
        return clipping.clamp(slopes, self.caps[rows][:, None], self.norm) if len(self.caps) else slopes


@dataclass(frozen=True)
class _Subproblems:
    """One subproblem for each run and client, made when its turn comes."""

    rows: Rows
    active: _Active
    shift: np.ndarray
    pull: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.shift.shape

    def __iter__(self) -> Iterator[tuple[tuple[int, ...], int, Subproblem]]:
        rows = self.rows
        for i, client in enumerate(self.active.clients):
            own = slice(self.active.starts[i], self.active.starts[i] + self.active.sizes[i])
            X = _wide(rows.X[own])
            for run in np.ndindex(self.shape[:-2]):
                place = (*run, i)
                weight, pull = float(rows.weights[client, 0]), float(self.pull[place][0])
                yield place, int(client), Subproblem(X, rows.y[own], rows.loss, weight, self.shift[place], pull)

    def descend(self, first: np.ndarray, tol: float | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All at once, by Nesterov's method: the answers, and for which of them the gradient is well within `tol`.

        Made for pulls that are not small next to the curvature, as in ADMM: the others, and quadratics, which Newton
        solves in one step, stay at `first`. What a client gets depends on nobody else's rows.
        """
        rows, clients, loss = self.rows, self.active.clients, self.rows.loss
        squares = np.add.reduceat(np.square(rows._l2_norms), rows.offsets[:-1])[clients, None]
        steep = loss.curvature * squares * rows.weights[clients] + self.pull  # a trace is above every eigenvalue
        root = np.sqrt(self.pull / steep)
        answer, arrived = first.copy(), np.zeros(self.shape[:-1], dtype=bool)
        left = (root[..., 0] > 1 / STIFF) & (loss.strong < loss.curvature)
        momentum, w, v = (1 - root) / (1 + root), first, first
        for _ in range(MOST_PASSES):
            if not left.any():
                break
            slope = rows.gradient(v, clients) + self.shift + self.pull * v
            there = left & (np.linalg.norm(slope, axis=-1) <= 0.9 * tol)
            answer[there], arrived[there], left[there] = v[there], True, False
            after = v - slope / steep
            w, v = after, after + momentum * (after - w)
        answer[left] = w[left]
        return answer, arrived


def _wide(X: np.ndarray) -> np.ndarray:
    """These rows as float64; a copy only where they are stored as float32."""
    return X.astype(np.float64, copy=False)


def _checked_offsets(offsets: ArrayLike, rows: int) -> np.ndarray:
    array = np.asarray(offsets)
    whole = array.ndim == 1 and len(array) >= 2 and np.issubdtype(array.dtype, np.integer)
    require(whole, "Rows", "offsets must be a list of at least two whole numbers", offsets)
    ends = (int(array[0]), int(array[-1]))
    require(ends == (0, rows), "Rows", f"offsets must go from 0 to the number of rows, {rows}", ends)
    empty = np.flatnonzero(np.diff(array) <= 0)
    rule = f"every client must have at least one row, and client {empty[0]} has none" if empty.size else ""
    require(not empty.size, "Rows", rule, hint="Leave it out")
    return array.astype(np.int64)


def _checked_keep(keep: np.ndarray | None, active: _Active, runs: int) -> np.ndarray:
    """`keep` as (runs or 1, rows), or an empty array if all rows are kept."""
    if keep is None:
        return np.empty((0, 0), dtype=np.bool_)
    keep = np.ascontiguousarray(keep)
    require(keep.dtype == np.bool_, "Rows", "keep must be booleans", keep.dtype)
    rows = int(active.bounds[-1])
    fits = keep.ndim in (1, 2) and keep.shape[-1] == rows
    fits = fits and (keep.ndim == 1 or runs == 1 or len(keep) in (1, runs))
    require(fits, "Rows", f"keep must have shape ([runs,] {rows}) with the runs of w", keep.shape)
    return keep if keep.ndim == 2 else keep[None]

"""The exact oracle of a linear model whose rows belong to many clients.

It adds no noise and does not ask whether an answer may be given: that is done by the door that wraps it
(`privacy/doors`).

All rows stand in one array, client i owning rows offsets[i] to offsets[i+1], so unequal clients cost nothing. Arrays of
points and gradients end in (clients, coordinates); one more axis in front holds independent runs on the same data.
A client's answer never depends on who else is asked, not even in the last bit, so that a simulation of all clients and
one client on its own machine give the same numbers.
"""

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.core import clipping
from sottovoce.core.arrays import Booleans, Floats, Integers, Numbers
from sottovoce.core.check import one_of, positive, require
from sottovoce.problems.losses import Loss
from sottovoce.problems.losses.base import margins
from sottovoce.problems.rows import moments
from sottovoce.problems.rows.active import ActiveClients, checked_keep
from sottovoce.problems.rows.argmin import subproblems
from sottovoce.problems.rows.gradients import SlopeBound, by_kernel, by_numpy, margins_by_kernel, on_grid
from sottovoce.problems.rows.stored import Scale, StoredRows, in_float64

KERNEL_PAYS_FROM = 2_000_000  # rows x parameters: below it NumPy is fast enough and nobody waits for a compiler
LOSSES_AT_ONCE = 2**14  # they, and what is needed to compute them, stay in a near cache


class Rows(StoredRows):
    """f_i(w) = weight_i * sum over the rows j of client i of loss(<x_j, w>, y_j), for all clients i at once.

    Parameters
    ----------
    X, y
        Features (rows, features) and labels (rows,), sorted by client. Kept without a copy if `X` is a C-contiguous
        float64 or float32 array already. Float32 halves the memory and the time to read it; the norms that clipping
        relies on, and a client's sums, are float64.
    offsets
        Client i owns rows offsets[i]:offsets[i+1]; every client has at least one.
    loss
        One of `problems/losses`. With p outputs a parameter is the flat form of a (p, features) array.
    scale
        "mean": weight_i = 1 / (number of rows of i); "sum": weight_i = 1; a number: weight_i is that number.
    engine
        "numpy", "kernel" (compiled) or "auto", which decides once by the size of the data. The engines agree up to
        rounding only, so the choice never depends on a later question.

    Attributes
    ----------
    arithmetic
        Names the engine and the formulas it rounds by: gradients of two that differ here may differ in the last bits.
        What a solver finds, an arg-min, depends on SciPy and on values of the loss too, which are not named.
    """

    def __init__(
        self, X: ArrayLike, y: ArrayLike, offsets: ArrayLike, loss: Loss, scale: Scale = "mean", engine: str = "auto"
    ) -> None:
        super().__init__(X, y, offsets, loss, scale)
        self.engine = engine_for(engine, len(self.X), self.dim) if loss.code >= 0 else "numpy"
        self.point_shape: tuple[int, ...] = (loss.outputs, self.features)  # of one model
        self._last_capped: tuple[float, Rows] | None = None
        self._last_bound: tuple[tuple[float, int, bool], SlopeBound] | None = None

    @property
    def arithmetic(self) -> str:
        if self.engine != "kernel":
            return self.engine
        if self.stored == "float64":
            return "kernel, whole vectors"
        return "kernel, whole vectors, float32 slopes" + (", fused" if self.features in (2, 3) else "")

    def __repr__(self) -> str:
        rows, features = self.X.shape
        return f"Rows({self.n_clients} clients, {rows} x {features}, {self.loss!r}, engine={self.engine!r})"

    def gradient(
        self,
        w: Floats,
        clients: ArrayLike | None = None,
        clip: float | None = None,
        norm: int = 2,
        keep: Booleans | None = None,
        quick: bool = False,
    ) -> Floats:
        """Gradient of f_i at each client's point, (..., clients, dim).

        Parameters
        ----------
        w
            Points (..., clients, dim), or (..., 1, dim) if all stand at the same.
        clients
            Which clients, in any order, which is the order of the answer; all by default.
        clip
            Each row's gradient is scaled down to this norm first: its slope is held within a bound that follows from
            the row's length alone. So the bound holds at any `w`, exactly, whatever error the margin has.
        norm
            Which norm is clipped, 1 or 2.
        keep
            Booleans (..., rows of these clients, one after the other): only these rows enter the sum. The weight stays.
        quick
            The kernel may compute margins, slopes and terms of float32 rows in float32: the sums of a client are
            float64 all the same. With a `clip`, one row moves them by no more than it says
            (`clipping.caps_in_float32`); without one, a term that is too large for float32 is infinite. But the
            gradient is then a Lipschitz function of `w` up to such errors only, so this is not for an answer whose
            sensitivity rests on several steps contracting, nor for an arg-min.
        """
        active = self.active(clients)
        points = self._points(w, active)
        sample = checked_keep(keep, active, len(points))
        bound = self._slope_bound(clip, norm, quick)
        answer = self._gradients(active, points, bound, sample)
        answer = answer.reshape(len(answer), len(active.sizes), self.dim)
        return answer if np.ndim(w) == 3 or (keep is not None and np.ndim(keep) == 2) else answer[0]

    def value(self, w: Floats, clients: ArrayLike | None = None) -> Floats:
        """f_i at each client's point, (..., clients); `w` as in `gradient`."""
        active = self.active(clients)
        points = self._points(w, active)
        values = np.zeros((len(points), len(active.sizes)))
        if self.engine == "kernel" and self.loss.outputs == 1 and len(active.sizes) > 0:
            for first, low, high, margins_of_runs in margins_by_kernel(self, active, points):
                y, starts = self.y[active.rows_of(low, high)], active.bounds[low:high] - active.bounds[low]
                for run, losses in enumerate(margins_of_runs, start=first):
                    for place in range(0, len(y), LOSSES_AT_ONCE):
                        some = slice(place, place + LOSSES_AT_ONCE)
                        losses[some] = self.loss.value(losses[some], y[some])  # in place of the margins
                    values[run, low:high] = np.add.reduceat(losses, starts)
        else:
            for block in active.blocks:
                X, y = in_float64(self.X[block.rows]), self.y[block.rows]
                for run, point in enumerate(points):
                    losses = self.loss.value(self.margins_at(X, point, block), y)
                    values[run, block.low : block.high] = np.add.reduceat(losses, block.bounds[:-1])
        values *= self.weights[active.clients, 0]
        return values if np.ndim(w) == 3 else values[0]

    def argmin(
        self,
        centre: Floats,
        rho: ArrayLike,
        linear: ArrayLike = 0.0,
        ridge: float = 0.0,
        clients: ArrayLike | None = None,
        start: Floats | None = None,
        tol: Numbers = 1e-9,
        row_cap: float | None = None,
        last_steps: int | None = None,
    ) -> Floats:
        """Minimiser of f_i(w) + <linear, w> + ridge/2 |w|^2 + rho/2 |w - centre|^2, (..., clients, dim).

        The Euclidean norm of the gradient is at most `tol` at every answer, or this raises an error. With
        `last_steps` it never raises.

        Parameters
        ----------
        centre, linear, start
            Broadcast against (..., clients, dim); the search starts at `centre` if no `start` is given.
        rho
            A number, or one for each client, (..., clients, 1).
        row_cap
            Rows longer than this are scaled down to it, which bounds each row's gradient by row_cap * loss.lipschitz.
        tol
            A number, or one for each client, (..., clients).
        last_steps
            For doors, where an error would reveal something about the rows. If other solvers miss `tol`, take up to
            this many steps of gradient descent, which reach it under a public condition (`surely_minimise`), and
            return the best point in any case.
        """
        require(bool(np.all(np.asarray(tol) > 0.0)), "Rows.argmin", "tol must be > 0", tol)
        rows = self if row_cap is None else self._capped(row_cap)
        problems = subproblems(rows, rows.gradient, centre, rho, linear, ridge, clients)
        return problems.solve(centre if start is None else start, tol, last_steps)

    def clipped_examples(self, w: Floats, client: int, clip: float, norm: int = 2, some: slice = slice(None)) -> Floats:
        """Gradient of each row of one client, clipped as in `gradient` but neither summed nor weighted: (rows, dim).

        `some`: which of the client's rows are asked for, neighbours; all by default.
        """
        rows = self._rows_of(client, some)
        X, outputs = in_float64(self.X[rows]), self.loss.outputs
        with np.errstate(over="ignore", invalid="ignore"):
            slopes = self.loss.slope(margins(X, w, outputs), self.y[rows]).reshape(len(X), outputs)
        slopes = self._slope_bound(clip, norm).apply(slopes, rows)
        return (slopes[:, :, None] * X[:, None, :]).reshape(len(X), self.dim)

    def truncated_sums(
        self,
        points: Floats,
        clients: Integers,
        clip: float,
        norm: int,
        factors: Floats,
        most: float,
        keep: Booleans | None,
    ) -> Integers | None:
        """Sums of `clipped_examples` at points (runs?, clients, dim), each times its client's factor and truncated.

        None where this is not compiled: with NumPy's engine, and for losses of several outputs. A row whose norm (L1,
        or squared L2) would exceed `most` adds nothing; `keep` as in `gradient`.
        """
        if self.engine != "kernel" or self.loss.outputs > 1 or len(clients) == 0:
            return None
        active = self.active(clients)
        sample = checked_keep(keep, active, 1 if points.ndim == 2 else len(points))
        at, bound = self._points(points, active)[:, :, 0], self._slope_bound(clip, norm)
        sums = on_grid(self, active, at, bound, sample, factors, most)
        return sums.astype(np.int64).reshape(points.shape)

    def moments(self, clients: Integers, kappa: float, row_bound: float, slope_bound: float) -> Floats:
        """First and second moments of each client's records, weighted (see `moments.py`): (clients, width)."""
        sums = [moments.of_client(self, int(client), kappa, row_bound, slope_bound) for client in clients]
        return self.weights[clients] * np.stack(sums)

    def whole_moments(self, clients: Integers, row_bound: float, slope_bound: float) -> Integers:
        """The same of rows and slopes made whole numbers, neither weighted nor weighed by kappa, (clients, width).

        They are exact, whatever the engine.
        """
        return np.stack([moments.whole(self, int(client), row_bound, slope_bound) for client in clients])

    @property
    def roundings(self) -> Integers:
        """How many roundings a row's share of a client's gradient can go through, (clients, 1).

        One for the product of slope and coordinate, one for the weight, and one for each addition: at most as many as
        there are rows; with the kernel as many as there are in a chunk, and then as there are chunks.
        """
        rows = self.sizes
        if self.engine == "kernel":
            from sottovoce.problems.kernels import ROWS_PER_CHUNK

            rows = np.minimum(rows, ROWS_PER_CHUNK) + -(-rows // ROWS_PER_CHUNK)
        return rows[:, None] + 2

    def _rows_of(self, client: int, some: slice) -> slice:
        """Where these rows of a client stand in X."""
        rows = range(int(self.offsets[client]), int(self.offsets[client + 1]))[some]
        return slice(rows.start, rows.stop)

    def _points(self, w: Floats, active: ActiveClients) -> Floats:
        """`w` as (runs, clients or 1, *point_shape): of a linear model, outputs and features."""
        w = np.ascontiguousarray(w, dtype=np.float64)
        n = len(active.sizes)
        if not (w.ndim in (2, 3) and w.shape[-1] == self.dim and w.shape[-2] in (1, n)):
            require(False, "Rows", f"w must have shape ([runs,] {n} or 1, {self.dim})", w.shape)
        return w.reshape(*(w.shape[:-1] if w.ndim == 3 else (1, *w.shape[:-1])), *self.point_shape)

    def _gradients(self, active: ActiveClients, points: Floats, bound: SlopeBound, keep: Booleans) -> Floats:
        compute = by_kernel if self.engine == "kernel" else by_numpy
        return compute(self, active, points, bound, keep)

    def _slope_bound(self, clip: float | None, norm: int, quick: bool = False) -> SlopeBound:
        quick = quick and self.stored == "float32" and self.loss.outputs == 1 and self.engine == "kernel"
        last = self._last_bound  # looked at once: another thread may ask with another clip
        if last is not None and last[0] == (clip, norm, quick):  # a run has one
            return last[1]
        require(norm in (1, 2), "Rows", "norm must be 1 or 2", norm)
        if clip is None:
            return SlopeBound(np.inf, norm, np.empty(0), "float32" if quick else "float64")
        bound = self._new_slope_bound(clip, norm, quick)
        self._last_bound = (clip, norm, quick), bound
        return bound

    def _new_slope_bound(self, clip: float, norm: int, quick: bool) -> SlopeBound:
        positive("Rows", clip=clip)
        quick = quick and clipping.LEAST_IN_FLOAT32 <= clip <= clipping.MOST_IN_FLOAT32
        # In float32, a thread may take denormal numbers for 0 where another does not.
        tiny = self.features ** (1 / norm) * float(np.finfo(np.float32).tiny) if self.stored == "float32" else 0.0
        all_caps, end = np.empty(len(self.X)), 0
        for norms in self.norms(norm):  # some at a time: each step of it is one array more
            caps = clipping.slope_caps(norms + tiny, float(clip), self.features)
            all_caps[end : end + len(caps)] = clipping.caps_in_float32(caps) if quick else caps
            end += len(caps)
        return SlopeBound(float(clip), norm, all_caps, "float32" if quick else "float64")

    def _capped(self, cap: float) -> "Rows":
        """These rows, those longer than `cap` scaled down to it."""
        positive("Rows.argmin", row_cap=cap)
        if self.l2_norms.max() <= cap * (1.0 - 2.0 * clipping.room(self.features)):
            return self
        if self._last_capped is None or self._last_capped[0] != cap:
            X = np.concatenate([clipping.clip_rows(X, cap) for X in self.slabs()])
            self._last_capped = cap, Rows(X, self.y, self.offsets, self.loss, self.scale, self.engine)
        return self._last_capped[1]


def engine_for(engine: str, rows: int, dim: int) -> str:
    """The engine; "auto" is decided by the number of rows of all clients and of parameters.

    Engines agree up to rounding only. So this is decided once, by whoever knows all clients, and clients on machines
    of their own are told.
    """
    if one_of("Rows", "engine", engine, ("auto", "numpy", "kernel")) != "auto":
        return engine
    return "kernel" if rows * dim >= KERNEL_PAYS_FROM else "numpy"

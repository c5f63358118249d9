"""The rows of all clients in one array, and what is computed about them once: lengths, eigenvalues, constants."""

from collections.abc import Iterator
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from sottovoce.core.arrays import AnyArray, Floats, Integers, everyone, same_clients
from sottovoce.core.check import finite_array, one_of, require
from sottovoce.core.contract import Layout
from sottovoce.problems.losses import Loss
from sottovoce.problems.rows.active import ActiveClients, Block, checked_offsets

Scale = str | float  # "mean", "sum", or the weight of one record
BLOCK = 2**18  # numbers in a temporary array of the NumPy engine (2 MB, to stay in cache)


class StoredRows:
    """Rows X and labels y, sorted by client: client i owns rows offsets[i] to offsets[i+1]. See `Rows`."""

    layout: ClassVar[Layout] = "rows"

    def __init__(self, X: ArrayLike, y: ArrayLike, offsets: ArrayLike, loss: Loss, scale: Scale) -> None:
        self.loss = loss
        stored = np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64
        self.X: AnyArray = np.ascontiguousarray(finite_array("Rows", "X", X, 2, stored))
        self.stored: str = self.X.dtype.name  # "float64" or "float32"
        require(len(self.X) < 2**32, "Rows", "one process can have at most 2^32 - 1 rows", len(self.X))
        require(self.X.shape[1] > 0, "Rows", "X must have at least one column", self.X.shape)
        self.y: Floats = np.ascontiguousarray(loss.check_labels(y))
        require(len(self.y) == len(self.X), "Rows", f"y must have a label for each of {len(self.X)} rows", len(self.y))
        self.offsets = checked_offsets(offsets, len(self.X))
        self.sizes: Integers = np.diff(self.offsets)
        self.n_clients = len(self.sizes)
        self.features = self.X.shape[1]
        self.dim = loss.model_size(self.features)
        self.scale = one_of("Rows", "scale", scale, ("mean", "sum")) if isinstance(scale, str) else float(scale)
        weight = 1.0 if isinstance(scale, str) else float(scale)
        self.weights: Floats = (1.0 / self.sizes if scale == "mean" else np.full(self.n_clients, weight))[:, None]
        who, rows_per_block = everyone(self.n_clients), max(1, BLOCK // self.features)
        self._everyone = ActiveClients(who, self.offsets[:-1], self.sizes, rows_per_block, contiguous=True)
        self._last_asked = self._everyone  # local steps ask the same clients again and again
        self._eigenvalues = np.full((self.n_clients, 2), np.nan)

    def active(self, clients: ArrayLike | None) -> ActiveClients:
        """These clients, in this order; all by default."""
        if clients is None or clients is self._everyone.clients:
            return self._everyone
        chosen = np.asarray(clients)
        numbers = chosen.ndim == 1 and (np.issubdtype(chosen.dtype, np.integer) or chosen.size == 0)
        require(numbers, "Rows", "clients must be a list of client numbers", clients)
        last = self._last_asked
        if same_clients(chosen, last.clients):
            return last
        chosen = chosen.astype(np.int64)  # a copy: the caller may change its own
        bad = chosen[(chosen < 0) | (chosen >= self.n_clients)]
        require(not bad.size, "Rows", f"clients must be numbers 0..{self.n_clients - 1}, got {bad[:1].tolist()}")
        new = ActiveClients(chosen, self.offsets[chosen], self.sizes[chosen], last.rows_per_block, contiguous=False)
        self._last_asked = new
        return new

    def smoothness(self, clients: ArrayLike | None = None) -> Floats:
        """Lipschitz constant of the gradient of f_i, (clients, 1): exact up to the loss's own largest curvature."""
        chosen = self.active(clients).clients
        return self.loss.curvature * self._spectrum(chosen)[:, 1:] * self.weights[chosen]

    def strong_convexity(self, clients: ArrayLike | None = None) -> Floats:
        """Strong convexity of f_i without any ridge, (clients, 1): 0 unless the loss has some of its own."""
        chosen = self.active(clients).clients
        if self.loss.strong == 0.0:
            return np.zeros((len(chosen), 1))
        return self.loss.strong * self._spectrum(chosen)[:, :1] * self.weights[chosen]

    def longest_row(self, clients: ArrayLike | None = None) -> Floats:
        """The largest Euclidean norm of a row of each client, (clients, 1)."""
        longest = np.maximum.reduceat(self.l2_norms, self.offsets[:-1])[:, None]
        return longest if clients is None else longest[np.asarray(clients)]

    def margins_at(self, X: Floats, point: Floats, block: Block) -> Floats:
        """Margins of a block's rows X, each at its owner's point: (rows,), or (rows, outputs) if there are several."""
        margins = np.empty((len(X), self.loss.outputs))
        for c in range(self.loss.outputs):
            if len(point) == 1:
                np.einsum("ij,j->i", X, point[0, c], out=margins[:, c])
            else:
                margins[:, c] = block.margins(X, point[block.low : block.high, c])
        return margins if self.loss.outputs > 1 else margins[:, 0]

    @cached_property
    def l2_norms(self) -> Floats:
        """The Euclidean norm of each row."""
        return np.concatenate(list(self.norms(2)))

    def norms(self, norm: int) -> Iterator[Floats]:
        """The l1 or the Euclidean norm of all rows, some at a time; the latter is computed relative to a row's largest
        entry, so that no tiny row becomes 0."""
        return (_lengths(X, norm) for X in self.slabs())

    def slabs(self) -> Iterator[Floats]:
        """All rows as float64, some at a time."""
        step = max(1, BLOCK // self.features)
        return (in_float64(self.X[low : low + step]) for low in range(0, len(self.X), step))

    def _spectrum(self, clients: Integers) -> Floats:
        """Smallest and largest eigenvalue of X_i' X_i, (clients, 2); computed once for each client."""
        missing = np.unique(clients[np.isnan(self._eigenvalues[clients, 0])])
        for size in np.unique(self.sizes[missing]):
            alike = missing[self.sizes[missing] == size]
            step = max(1, 16 * BLOCK // (int(size) * self.features))
            for low in range(0, len(alike), step):
                some = alike[low : low + step]
                X = in_float64(self.X[self.offsets[some][:, None] + np.arange(size)])
                gram = X.mT @ X if size >= self.features else X @ X.mT
                eigenvalues = np.linalg.eigvalsh(gram)[:, [0, -1]]
                if size < self.features:
                    eigenvalues[:, 0] = 0.0
                self._eigenvalues[some] = np.maximum(eigenvalues, 0.0)
        return self._eigenvalues[clients]


def _lengths(X: Floats, norm: int) -> Floats:
    with np.errstate(over="ignore", under="ignore"):
        if norm == 1:
            return np.abs(X).sum(axis=1)
        top = np.abs(X).max(axis=1, keepdims=True)
        return top[:, 0] * np.sqrt(np.square(X / np.where(top > 0.0, top, 1.0)).sum(axis=1))


def in_float64(X: AnyArray) -> Floats:
    """These rows as float64; a copy only if they are stored as float32."""
    return X.astype(np.float64, copy=False)

"""The exact oracle of a linear model whose columns belong to different parties.

Nothing here adds noise or asks whether an answer may be given: that is the business of the door that wraps it.

Party m has D_m, one row per sample. A model x_m stands in the first d_m places of a row as long as the widest party.
What a party gets never depends on who else is asked, not in the last bit: parties (and runs) are served one by one.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import Matrix
from sottovoce.core.check import InvalidInput, SottovoceError
from sottovoce.core.contract import Layout
from sottovoce.problems.penalties import Penalty

MOST = 12_000  # of the smaller of samples and columns of a party: the matrix that is factorised takes its square
TOLERANCE = 1e-12  # of a solver's certificate, relative to the data
_MOST_STEPS = 100_000
_STEPS_BETWEEN = 5  # gradient steps between two guesses of the coordinates that do not sit at a kink


class Columns:
    """All parties on this machine.

    Parameters
    ----------
    parts
        D_m of each party: dense or CSR.
    penalty
        The public r(x), a sum over coordinates (so that each party has its own share of it).
    """

    layout: ClassVar[Layout] = "columns"

    def __init__(self, parts: Sequence[Matrix], penalty: Penalty) -> None:
        check.require(
            penalty.separable,
            "Columns",
            "penalty must be a sum over coordinates, so that each party has its own share",
            penalty,
            "Use L2, L1, ElasticNet or Box",
        )
        self.parties = [Party(part, penalty) for part in parts]
        self.penalty = penalty
        self.samples = self.dim = int(parts[0].shape[0])
        self.widths = np.array([party.width for party in self.parties])
        self.widest = int(self.widths.max())

    def fit(self, target: np.ndarray, rho: np.ndarray, clients: np.ndarray, certified: bool = True) -> np.ndarray:
        """x_m = argmin_x r(x) + rho/2 |D_m x − target_m|², (runs?, parties, widest).

        Where no certificate is reached this raises. With `certified` False no party's numbers make it raise, since that
        would tell something of them: the last step has to do, and zeros where there is none or it is not finite.
        """

        def fitted(party: "Party", v: np.ndarray, weight: np.ndarray) -> np.ndarray:
            if certified:
                return party.fit(v, float(weight[0]))
            with np.errstate(all="ignore"), suppress(Exception):
                x = party.fit(v, float(weight[0]), certified)
                if np.isfinite(x).all():
                    return x
            return np.zeros(party.width)

        return self._each(clients, fitted, self.widest, target, rho)

    def check_sizes(self, clients: np.ndarray) -> None:
        """Refuse parties that are too large to fit, by their shapes."""
        for client in clients:
            self.parties[client].check_size()

    def predict(self, x: np.ndarray, clients: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """D_m x_m, (runs?, parties, samples): of all samples, or of those numbered `rows`, (runs?, 1, count)."""
        if rows is None:
            return self._each(clients, lambda party, own: party.scores(own), self.samples, x)
        return self._each(clients, lambda party, own, at: party.scores(own, at), rows.shape[-1], x, rows)

    def adjoint(self, v: np.ndarray, clients: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        """D_m' v_m, (runs?, parties, widest); with `rows`, v has one coordinate for each of them."""
        if rows is None:
            return self._each(clients, lambda party, own: party.adjoint(own), self.widest, v)
        return self._each(clients, lambda party, own, at: party.adjoint(own, at), self.widest, v, rows)

    def spread(self, normal: np.ndarray, clients: np.ndarray) -> np.ndarray:
        """Vectors of law N(0, (D_m'D_m)^-1) from standard normal ones, (runs?, parties, widest)."""
        return self._each(clients, lambda party, own: party.spread(own), self.widest, normal)

    def _each(self, clients: np.ndarray, work: Any, size: int, *arrays: np.ndarray) -> np.ndarray:
        """`work` of one party and one run after the other; answers are padded with zeros to `size`."""
        lead = np.broadcast_shapes(*(np.shape(array)[:-1] for array in arrays), (len(clients),))
        own = [np.broadcast_to(array, (*lead, np.shape(array)[-1])) for array in arrays]
        answer = np.zeros((*lead, size))
        for place in np.ndindex(lead):
            one = work(self.parties[clients[place[-1]]], *(array[place] for array in own))
            answer[place][: len(one)] = one
        return answer


class Party:
    """One party's columns D, and all that is worked out about them once."""

    def __init__(self, D: Matrix, penalty: Penalty) -> None:
        self.D, self.penalty = D, penalty
        self.samples, self.width = (int(length) for length in D.shape)
        self.sparse = hasattr(D, "tocsr")
        self.tall = self.width <= self.samples
        self._factors: dict[float, Any] = {}
        self._last: tuple[Any, np.ndarray] | None = None

    def scores(self, x: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        return self._rows(rows) @ np.ascontiguousarray(x[: self.width])

    def adjoint(self, v: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        return self._rows(rows).T @ np.ascontiguousarray(v)

    def fit(self, v: np.ndarray, rho: float, certified: bool = True) -> np.ndarray:
        """argmin_x r(x) + rho/2 |D x − v|². The last answer is kept: a party's model is asked for again."""
        check.positive("Columns.fit", rho=rho)
        asked = (rho, v.tobytes(), certified)
        if self._last is None or self._last[0] != asked:
            ridge = self.penalty.smooth and self.penalty.curvature == self.penalty.strong
            x = self._ridge(v, self.penalty.strong / rho) if ridge else self._by_steps(v, rho, certified)
            self._last = (asked, x)
        return self._last[1]

    def spread(self, normal: np.ndarray) -> np.ndarray:
        """With D = U S V' (zeros of S left out): V S^-1 times as many of the normal numbers."""
        values, vectors = self._spectrum
        scaled = normal[: len(values)] / (np.sqrt(values) if self.tall else values)
        return vectors @ scaled if self.tall else self.D.T @ (vectors @ scaled)

    def _rows(self, rows: np.ndarray | None) -> Matrix:
        return self.D if rows is None else self.D[rows.astype(np.int64)]

    # The quadratic case: one factorisation, then two products with D and two triangular solutions for each answer.

    def _ridge(self, v: np.ndarray, mu: float) -> np.ndarray:
        """(D'D + mu)^-1 D'v = D'(DD' + mu)^-1 v, whichever is smaller; for mu = 0 the solution of least norm."""
        solve = self._factor(mu)
        return solve(self.adjoint(v)) if self.tall else self.adjoint(solve(v))

    def _factor(self, mu: float) -> Any:
        if mu not in self._factors:
            if len(self._factors) >= 2:  # rho may move: keep the last two
                self._factors.pop(next(iter(self._factors)))
            self._factors[mu] = self._factorised(mu)
        return self._factors[mu]

    def _factorised(self, mu: float) -> Any:
        from scipy.linalg import get_lapack_funcs

        if mu > 0:
            shifted = np.array(self.gram, order="F")
            factorise, solve = get_lapack_funcs(("potrf", "potrs"), (shifted,))
            shifted[np.diag_indices_from(shifted)] += mu
            factor, failed = factorise(shifted, lower=1, overwrite_a=1)
            if not failed:
                return lambda b: solve(factor, b, lower=1)[0]
            # mu is lost in rounding next to D'D: what is singular counts as zero
        values, vectors = self._spectrum
        return lambda b: vectors @ ((vectors.T @ b) / (values + mu))

    def check_size(self) -> None:
        if min(self.width, self.samples) > MOST:
            raise InvalidInput(
                f"Columns: a party has {self.samples} samples and {self.width} columns; the smaller of the two must be "
                f"at most {MOST}. Split its columns over several parties, or use fdml"
            )

    @cached_property
    def gram(self) -> np.ndarray:
        """D'D, or DD' if that is smaller."""
        self.check_size()
        product = self.D.T @ self.D if self.tall else self.D @ self.D.T
        return product.toarray() if self.sparse else product

    @cached_property
    def _spectrum(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues and vectors of `gram`, those that are zero but for rounding left out."""
        from scipy.linalg import eigh

        values, vectors = eigh(self.gram)
        keep = values > len(values) * np.finfo(np.float64).eps * max(values[-1], 0.0)
        return values[keep], np.ascontiguousarray(vectors[:, keep])

    # The other penalties: accelerated proximal gradients, and Newton steps on the coordinates that sit at no kink.

    def _by_steps(self, v: np.ndarray, rho: float, certified: bool) -> np.ndarray:
        correlation = self.adjoint(v)
        top = self.steepest
        x = self.penalty.prox(np.zeros(self.width), 1.0 / rho)
        if top == 0.0:
            return x
        scale = max(float(np.linalg.norm(correlation)), top * float(np.linalg.norm(x)), np.finfo(np.float64).tiny)
        ahead, momentum = x, 1.0
        for done in range(_MOST_STEPS):
            new = self._step(ahead, correlation, rho)
            if np.dot(ahead - new, new - x) > 0:  # it overshot: start the momentum anew (O'Donoghue and Candès)
                momentum, new = 1.0, self._step(x, correlation, rho)
            faster = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            ahead, x, momentum = new + (momentum - 1) / faster * (new - x), new, faster
            if done % _STEPS_BETWEEN == _STEPS_BETWEEN - 1:
                better, error = self._polished(x, correlation, rho)
                if error <= TOLERANCE * scale:
                    return better
                if better is not x:
                    ahead, x, momentum = better, better, 1.0
        if not certified:
            return x
        raise SottovoceError(
            f"Columns.fit: a party with {self.width} columns did not reach its certificate ({TOLERANCE:g} of the data) "
            f"in {_MOST_STEPS} steps. Standardise its columns, or add an l2 penalty"
        )

    def _slope(self, x: np.ndarray, correlation: np.ndarray) -> np.ndarray:
        """D'(D x − v)."""
        return (self.gram @ x if self.tall else self.adjoint(self.scores(x))) - correlation

    def _step(self, x: np.ndarray, correlation: np.ndarray, rho: float) -> np.ndarray:
        return self.penalty.prox(x - self._slope(x, correlation) / self.steepest, 1.0 / (rho * self.steepest))

    def _error(self, x: np.ndarray, correlation: np.ndarray, rho: float) -> float:
        """Norm of the generalised gradient: 0 at the minimiser and nowhere else."""
        return self.steepest * float(np.linalg.norm(x - self._step(x, correlation, rho)))

    def _polished(self, x: np.ndarray, correlation: np.ndarray, rho: float) -> tuple[np.ndarray, float]:
        """`x`, or the minimiser over its free coordinates if that is nearer to the minimiser over all."""
        best, error = x, self._error(x, correlation, rho)
        free = self.penalty.smooth_at(x)
        if 0 < free.sum() <= min(self.samples, MOST):
            part = self.gram[np.ix_(free, free)] if self.tall else self._free_gram(free)
            part = part + self.penalty.strong / rho * np.eye(len(part))
            slope = self._slope(x, correlation) + self.penalty.subgradient(x) / rho
            moved = x.copy()
            moved[free] -= np.linalg.lstsq(part, slope[free], rcond=None)[0]
            moved = self.penalty.prox(moved, 1e-300)  # back into a box, if there is one
            other = self._error(moved, correlation, rho)
            if other < error:
                best, error = moved, other
        return best, error

    def _free_gram(self, free: np.ndarray) -> np.ndarray:
        own = self.D[:, free]
        product = own.T @ own
        return product.toarray() if self.sparse else product

    @cached_property
    def steepest(self) -> float:
        """Largest eigenvalue of D'D, rounded up."""
        from scipy.linalg import eigvalsh

        last = len(self.gram) - 1
        return float(eigvalsh(self.gram, subset_by_index=(last, last))[0]) * (1 + 1e-10)

"""The exact oracle of a linear model whose columns belong to different parties.

It adds no noise and does not ask whether an answer may be given: that is done by the door that wraps it
(`privacy/doors`).

Party m has D_m, one row per sample. A model x_m stands in the first d_m places of a row as long as the widest party.
A party's answer never depends on who else is asked, not even in the last bit: parties (and runs) are served one by one.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, cached_property, lru_cache
from importlib import import_module

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import AnyArray, Floats, Integers, Matrix, is_sparse
from sottovoce.problems.penalties import Penalty

MOST = 12_000  # samples or columns of a party, whichever is smaller: the factorised matrix has the square of it
TOLERANCE = 1e-12  # of a solver's certificate, relative to the data
_MOST_STEPS = 100_000
_STEPS_BETWEEN = 5  # gradient steps between two guesses of the coordinates that are not at a kink

Solver = Callable[[Floats], Floats]


class Columns:
    """All parties on this machine.

    Parameters
    ----------
    parts
        D_m of each party: dense or CSR.
    penalty
        The public r(x), a sum over coordinates (so that each party has its own share of it).
    shares
        Computes what each party here contributes to the products of all columns, (parties, numbers) of 64 bits; see
        `core/products.py`. None where nobody asks for them.
    """

    layout = "columns"

    def __init__(self, parts: Sequence[Matrix], penalty: Penalty, shares: Callable[[], Integers] | None = None) -> None:
        rule = "penalty must be a sum over coordinates, so that each party has its own share"
        check.require(penalty.separable, "Columns", rule, penalty, "Use L2, L1, ElasticNet or Box")
        self.parties = [Party(part, penalty) for part in parts]
        self.penalty = penalty
        self.samples = self.dim = int(parts[0].shape[0])
        self.widths: Integers = np.array([party.width for party in self.parties])
        self.widest = int(self.widths.max())
        self._products = None if shares is None else cache(shares)

    def products(self, clients: Integers) -> Integers:
        """The parties' contributions to the products of all columns, as 64-bit numbers: exact, and computed once."""
        assert self._products is not None
        return self._products()[clients]

    def fit(self, target: Floats, rho: Floats, clients: Integers, certified: bool = True) -> Floats:
        """x_m = argmin_x r(x) + rho/2 |D_m x − target_m|², (runs?, parties, widest).

        If no certificate is reached, this raises an error. With `certified` False it never does, since an error would
        tell something about a party's numbers: then the last step is the answer, or zeros if it is not finite.
        """

        def fitted(party: "Party", v: Floats, weight: Floats) -> Floats:
            if certified:
                return party.fit(v, float(weight[0]))
            with np.errstate(all="ignore"), suppress(Exception):
                x = party.fit(v, float(weight[0]), certified)
                if np.isfinite(x).all():
                    return x
            return np.zeros(party.width)

        return self._each(clients, fitted, self.widest, target, rho)

    def check_sizes(self, clients: Integers) -> None:
        """Refuse parties that are too large to fit, by their shapes."""
        for client in clients:
            self.parties[int(client)].check_size()

    def predict(self, x: Floats, clients: Integers, rows: Integers | None = None) -> Floats:
        """D_m x_m, (runs?, parties, samples): of all samples, or of those numbered `rows`, (runs?, 1, count)."""
        size, some = (self.samples, []) if rows is None else (rows.shape[-1], [rows])
        return self._each(clients, Party.scores, size, x, *some)

    def adjoint(self, v: Floats, clients: Integers, rows: Integers | None = None) -> Floats:
        """D_m' v_m, (runs?, parties, widest); with `rows`, v has one coordinate for each of them."""
        return self._each(clients, Party.adjoint, self.widest, v, *([] if rows is None else [rows]))

    def spread(self, normal: Floats, clients: Integers) -> Floats:
        """Vectors of law N(0, (D_m'D_m)^-1) from standard normal ones, (runs?, parties, widest)."""
        return self._each(clients, Party.spread, self.widest, normal)

    def _each(self, clients: Integers, work: Callable[..., Floats], size: int, *arrays: AnyArray) -> Floats:
        """`work` of one party and one run after the other; answers are padded with zeros to `size`."""
        lead = np.broadcast_shapes(*(np.shape(array)[:-1] for array in arrays), (len(clients),))
        whole = [np.broadcast_to(array, (*lead, np.shape(array)[-1])) for array in arrays]
        answer = np.zeros((*lead, size))
        for place in np.ndindex(lead):
            numbers = work(self.parties[clients[place[-1]]], *(array[place] for array in whole))
            answer[place][: len(numbers)] = numbers
        return answer


class Party:
    """One party's columns D, and what is computed about them once."""

    def __init__(self, D: Matrix, penalty: Penalty) -> None:
        self.D, self.penalty = D, penalty
        self.samples, self.width = (int(length) for length in D.shape)
        self.tall = self.width <= self.samples
        self._solver = lru_cache(maxsize=2)(self._factorised)  # of the last two mu, since rho may change
        self._last: tuple[tuple[float, bytes, bool], Floats] | None = None

    def scores(self, x: Floats, rows: Integers | None = None) -> Floats:
        return self._rows(rows) @ np.ascontiguousarray(x[: self.width])

    def adjoint(self, v: Floats, rows: Integers | None = None) -> Floats:
        return self._rows(rows).T @ np.ascontiguousarray(v)

    def fit(self, v: Floats, rho: float, certified: bool = True) -> Floats:
        """argmin_x r(x) + rho/2 |D x − v|². The last answer is cached, because a party's model is asked for again."""
        check.positive("Columns.fit", rho=rho)
        asked = (rho, v.tobytes(), certified)
        if self._last is None or self._last[0] != asked:
            x = self._ridge(v, self.penalty.strong / rho) if self.penalty.ridge else self._by_steps(v, rho, certified)
            self._last = (asked, x)
        return self._last[1]

    def spread(self, normal: Floats) -> Floats:
        """V S^-1 times as many of the normal numbers as S has non-zero entries, for D = U S V'."""
        values, vectors = self._spectrum
        scaled = normal[: len(values)] / (np.sqrt(values) if self.tall else values)
        return vectors @ scaled if self.tall else self.D.T @ (vectors @ scaled)

    def _rows(self, rows: Integers | None) -> Matrix:
        return self.D if rows is None else self.D[rows.astype(np.int64)]

    # The quadratic case: one factorisation, then two products with D and two triangular solutions for each answer.

    def _ridge(self, v: Floats, mu: float) -> Floats:
        """(D'D + mu)^-1 D'v = D'(DD' + mu)^-1 v, whichever is smaller; for mu = 0 the solution of least norm."""
        solve = self._solver(mu)
        return solve(self.adjoint(v)) if self.tall else self.adjoint(solve(v))

    def _factorised(self, mu: float) -> Solver:
        """The inverse of `gram` + mu as a function."""
        if mu > 0:
            shifted = np.array(self.gram, order="F")
            factorise, solve = import_module("scipy.linalg").get_lapack_funcs(("potrf", "potrs"), (shifted,))
            shifted[np.diag_indices_from(shifted)] += mu
            factor, failed = factorise(shifted, lower=1, overwrite_a=1)
            if not failed:
                return lambda b: solve(factor, b, lower=1)[0]
            # mu is lost in rounding next to D'D: eigenvalues that are zero up to rounding are left out
        values, vectors = self._spectrum
        return lambda b: vectors @ ((vectors.T @ b) / (values + mu))

    def check_size(self) -> None:
        rule = f"a party has {self.samples} samples and {self.width} columns; the smaller must be at most {MOST}"
        hint = "Split its columns over several parties, or use fdml"
        check.require(min(self.width, self.samples) <= MOST, "Columns", rule, hint=hint)

    @cached_property
    def gram(self) -> Floats:
        """D'D, or DD' if that is smaller."""
        self.check_size()
        return _gram(self.D if self.tall else self.D.T)

    @cached_property
    def _spectrum(self) -> tuple[Floats, Floats]:
        """Eigenvalues and vectors of `gram`, without those that are zero up to rounding."""
        values, vectors = import_module("scipy.linalg").eigh(self.gram)
        keep = values > len(values) * np.finfo(np.float64).eps * max(values[-1], 0.0)
        return values[keep], np.ascontiguousarray(vectors[:, keep])

    # The other penalties: accelerated proximal gradients, and Newton steps on the coordinates that are at no kink.

    def _by_steps(self, v: Floats, rho: float, certified: bool) -> Floats:
        correlation = self.adjoint(v)
        top = self.steepest
        x = self.penalty.prox(np.zeros(self.width), 1.0 / rho)
        if top == 0.0:
            return x
        scale = max(float(np.linalg.norm(correlation)), top * float(np.linalg.norm(x)), np.finfo(np.float64).tiny)
        ahead, momentum = x, 1.0
        for done in range(_MOST_STEPS):
            new = self._step(ahead, correlation, rho)
            if np.dot(ahead - new, new - x) > 0:  # it overshot: reset the momentum (O'Donoghue and Candès)
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
        raise check.SottovoceError(
            f"Columns.fit: a party with {self.width} columns did not reach its certificate ({TOLERANCE:g} of the data) "
            f"in {_MOST_STEPS} steps. Standardise its columns, or add an l2 penalty"
        )

    def _slope(self, x: Floats, correlation: Floats) -> Floats:
        """D'(D x − v)."""
        return (self.gram @ x if self.tall else self.adjoint(self.scores(x))) - correlation

    def _step(self, x: Floats, correlation: Floats, rho: float) -> Floats:
        return self.penalty.prox(x - self._slope(x, correlation) / self.steepest, 1.0 / (rho * self.steepest))

    def _error(self, x: Floats, correlation: Floats, rho: float) -> float:
        """Norm of the generalised gradient: 0 at the minimiser and nowhere else."""
        return self.steepest * float(np.linalg.norm(x - self._step(x, correlation, rho)))

    def _polished(self, x: Floats, correlation: Floats, rho: float) -> tuple[Floats, float]:
        """`x`, or the minimiser over its free coordinates if that is nearer to the minimiser over all."""
        best, error = x, self._error(x, correlation, rho)
        free = self.penalty.smooth_at(x)
        if 0 < free.sum() <= min(self.samples, MOST):
            part = self.gram[np.ix_(free, free)] if self.tall else _gram(self.D[:, free])
            part = part + self.penalty.strong / rho * np.eye(len(part))
            slope = self._slope(x, correlation) + self.penalty.subgradient(x) / rho
            moved = x.copy()
            moved[free] -= np.linalg.lstsq(part, slope[free], rcond=None)[0]
            moved = self.penalty.prox(moved, 1e-300)  # back into a box, if there is one
            other = self._error(moved, correlation, rho)
            if other < error:
                best, error = moved, other
        return best, error

    @cached_property
    def steepest(self) -> float:
        """Largest eigenvalue of D'D, rounded up."""
        last = len(self.gram) - 1
        return float(import_module("scipy.linalg").eigvalsh(self.gram, subset_by_index=(last, last))[0]) * (1 + 1e-10)


def _gram(D: Matrix) -> Floats:
    """D'D, dense."""
    return (D.T @ D).toarray() if is_sparse(D) else D.T @ D

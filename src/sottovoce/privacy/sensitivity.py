"""How far an answer can move when private data change: the noise of proven doors is proportional to it.

Every function takes public numbers only, so the size of the noise gives nothing away. Every bound is about the answer
in *floating point*: u = 2^-53 below is the relative error of one operation, and sums and products are assumed to be
computed term by term, in any order, with or without fused multiply-adds (not by Strassen's method).

Ridge fits (`ProvenColumns`). A party with columns D (samples x d) answers a public target u by
x = argmin lam/2 |x|² + rho/2 |D x − u|² and the scores D x. With mu = lam/rho,

    x = (D'D + mu)^-1 D'u,      D x = H u,   H = D (D'D + mu)^-1 D' = I − mu (DD' + mu)^-1,   0 <= H <= I.

So in exact arithmetic |D x − u/2| <= |u|/2 and |x| <= |u|/(2 sqrt(mu)). A solver may miss both by far (nearly parallel
long columns, small mu), so a door moves what was computed into those balls (`core.clipping`) and may always rely on
their diameters. The finer formulas are algebra about the exact solution; they are used only where public numbers prove
that rounding is small (`solve_error`). `tests/privacy/test_sensitivity.py` searches for worse neighbours, and finds
none.

Functions of u have samples as its last axis and return (..., 1).
"""

from dataclasses import dataclass

import numpy as np

from sottovoce.core import check

Value = float | np.ndarray
LAST_STEPS = 10**8  # the most steps of gradient descent for one arg-min: the proof needs a bound, few runs come near
MOST_ERROR = 2.0**-10  # a relative error of solutions up to which the formulas about exact ones are used
LEAST_TARGET = 1e-150  # targets shorter than this: products with them may underflow


def sum_rounding(rows: np.ndarray, roundings: np.ndarray, reach: int) -> np.ndarray:
    """The factor by which the sensitivity of a sum of clipped rows grows because sums are rounded.

    A client's sum of n = `rows` terms, each of a norm at most C and with r = `roundings` errors on its way into the
    sum, is off by at most n C g, g = r u / (1 − r u). Two neighbours' exact sums are `reach` C apart, so the computed
    ones at most reach C (1 + 2 n g / reach); for replacing one record (reach 2) that is 2 C (1 + n g). The terms were
    shrunk by 2^-40 below C, which pays for the first 60 rows or so: the factor is 1 there. Of rows that are
    added one by one, with reach 2, it is 1 + 1.8e-11 for 400 and 1 + 1.1e-6 for 10^5; with reach 1 twice as far from 1.
    """
    error = roundings * 2.0**-53
    growth = 2.0 / reach * rows * error / (1.0 - error)
    return np.maximum(1.0, (1.0 + growth) * (1.0 - 2.0**-41))


@dataclass(frozen=True)
class ArgminTerms:
    """Public numbers about arg-mins of weight Σ loss + <shift, w> + pull/2 |w|², each (..., clients, 1).

    `rows` of a length at most `cap`, `features` numbers each; a loss of slope at most `lipschitz` and of this
    `curvature`; `shift` is the norm of that vector.
    """

    rows: np.ndarray
    features: int
    outputs: int
    weight: np.ndarray
    cap: float
    lipschitz: float
    curvature: float
    shift: np.ndarray
    pull: np.ndarray

    @property
    def steep(self) -> np.ndarray:
        """The gradient's Lipschitz constant."""
        return self.weight * self.rows * self.curvature * self.cap**2 + self.pull

    @property
    def first(self) -> np.ndarray:
        """A bound G on the gradient at 0; so the minimiser is within G / pull of it."""
        return self.weight * self.rows * self.cap * self.lipschitz + self.shift

    @property
    def rounding(self) -> np.ndarray:
        """How far a computed gradient can be from the exact one, at any point within 3 G / pull of 0.

        With kappa = steep / pull: margins are off by (d + 32) u cap |w| (what `exp` adds included), so slopes by
        `curvature` times that and (outputs + 64) u lipschitz more; the sum over the rows by their number times u of its
        terms; shift and pull by 8 u. A step of descent rounds like a gradient that is off by 4 u steep |w| more.
        """
        kappa = self.steep / self.pull
        return 2.0**-52 * self.first * (3 * kappa * (self.features + 40) + self.rows + self.outputs + 90)

    def certain(self, tol: np.ndarray) -> np.ndarray:
        """Whether a solver is sure to reach a computed gradient of norm `tol` in `LAST_STEPS` steps of descent.

        The proof is in `problems.rows.subproblem.surely_minimise`. It asks for tol >= 4 `rounding`; and rounding must
        be small beside G, so that every point with so small a computed gradient is within 3 G / pull of 0.
        """
        kappa = self.steep / self.pull
        steps = 3.2 * kappa * np.log(4 * kappa * np.square(self.first / tol) + 1) + 2
        return (tol >= 4 * self.rounding) & (self.first >= 32 * self.rounding) & (steps <= LAST_STEPS)


def sure_tolerance(terms: ArgminTerms, one: np.ndarray, least: float) -> np.ndarray:
    """To what norm of the gradient an arg-min is to be solved, small beside `one`, what one record does to it.

    `least`: no smaller tolerance is asked for. Refuses an arg-min of which public numbers do not prove that a solver
    gets there. After this nothing about it can fail, so no failure tells anything of the data.
    """
    with np.errstate(all="ignore"):  # without a pull the condition number is infinite, and is refused
        tol = np.maximum(least, 4 * terms.rounding)
        sure = terms.certain(tol) & (tol <= np.maximum(least, one / 16))  # False for what is no number
    hint = "Use a larger rho or ridge, a smaller clip, or a method that asks for gradients"
    rule = "an arg-min needs rho + ridge > 0, and a condition number and inputs small enough to be found for sure"
    check.require(bool(np.all(sure)), "Proven", rule, hint=hint)
    return tol


def norm(u: np.ndarray) -> np.ndarray:
    return np.linalg.norm(u, axis=-1, keepdims=True)


# ------------------------------------------------------------------------------------------------------ ridge: scores


def party_scores(u: np.ndarray) -> np.ndarray:
    """All of D replaced: both scores lie in a ball of radius |u|/2."""
    return norm(u)


def column_scores(u: np.ndarray, mu: Value, column_bound: float, error: Value = 0.0) -> np.ndarray:
    """One column d of D replaced, |d| <= B: kappa |u|, kappa = B²/(B² + mu), and what `error` adds.

    With A = mu + the other columns' DD', H = I − mu A^-1 + T and T = mu A^-1 dd'A^-1/(1 + s), s = d'A^-1 d. T is
    positive, and |T| = mu d'A^-2 d/(1 + s) <= s/(1 + s) <= kappa since d'A^-2 d <= s/mu and s <= B²/mu. Two positive
    matrices of norm at most kappa differ by at most kappa. Attained by a column along u against one across it.
    """
    squared = column_bound**2
    return _refined(squared / (squared + mu) * norm(u), u, error, norm(u), norm(u))


def record_scores(u: np.ndarray, mu: Value, row_bound: float, score_bound: float, error: Value = 0.0) -> np.ndarray:
    """One row d of D replaced, |d| <= B, each score clipped to [−c, c]: sqrt(4c² + 4 phi² (|u|_inf + P)²).

    Without row i, G = mu + D'D and x_0 = G^-1 D'u of the other rows; with it x = x_0 + G^-1 d (u_i − p)/(1 + h),
    h = d'G^-1 d <= B²/mu, p = d'x_0, |p| <= P = B |u|/(2 sqrt(mu)) since |x_0| <= |u|/(2 sqrt(mu)). The other scores
    move by |D G^-1 d| |u_i − p|/(1 + h) <= phi (|u|_inf + P) as |D G^-1 d|² <= h; clipping stretches nothing. From D to
    D' is that twice, by way of x_0; score i itself moves by at most 2c.

    Never more than the ball and the box allow: |u| and 2 c sqrt(samples).
    """
    exact = np.sqrt(4 * score_bound**2 + 4 * (_phi(mu, row_bound) * _reach(u, mu, row_bound)) ** 2)
    box = 2 * score_bound * np.sqrt(u.shape[-1]) * (1 + 2.0**-50)
    return _refined(exact, u, error, norm(u), np.minimum(norm(u), box))


# ------------------------------------------------------------------------------------------------------ ridge: models


def model_radius(u: np.ndarray, mu: Value) -> np.ndarray:
    """|x| <= |u| max_s s/(s² + mu) = |u|/(2 sqrt(mu))."""
    return norm(u) / (2 * np.sqrt(mu))


def party_model(u: np.ndarray, mu: Value) -> np.ndarray:
    """All of D, or one column, replaced: both models lie in a ball of that radius."""
    return 2 * model_radius(u, mu)


def record_model(u: np.ndarray, mu: Value, row_bound: float, error: Value = 0.0) -> np.ndarray:
    """One row replaced: |x − x_0| = |G^-1 d| |u_i − p|/(1 + h), and |G^-1 d|² = d'G^-2 d <= h/mu; and that twice."""
    exact = 2 * _phi(mu, row_bound) * _reach(u, mu, row_bound) / np.sqrt(mu)
    return _refined(exact, u, error, party_model(u, mu), party_model(u, mu))


# ---------------------------------------------------------------------------------------------- ridge: rounding errors


def solve_error(mu: Value, squares: Value, samples: int, width: Value) -> np.ndarray:
    """A bound on the error of answers that were computed and then moved into their balls, relative to the diameters.

    `squares` bounds the sum of squares of D: width · column_bound², or samples · row_bound². With m and M the smaller
    and the larger of samples and width, and q = squares/mu, the error is at most 2^-40 + t,

        t = 2^-50 (M + 3 m + 8) (m + q),      valid where t <= 2^-10.

    The m x m matrix A (D'D + mu or DD' + mu) has a trace of at most mu (m + q). Forming it is off by M u of that, and
    Cholesky's method solves a system that is (3 m + 1) u of it away (Higham 2002, theorems 10.3 and 10.4; it does not
    break down, since the smallest eigenvalue mu is larger): in all E <= 1.01 u (M + 3 m + 8) mu (m + q) <= mu/4. For
    m = d the right-hand side D'u is off by e <= M u sqrt(mu q) |u|, so x by A^-1 (e + E x), D x by
    |D A^-1| <= 1/(2 sqrt(mu)) times the same, and by d u sqrt(mu q) |x| of the last product, |x| <= |u|/sqrt(mu). For
    m = samples, a = A^-1 u is off by A^-1 E a, |a| <= 2 |u|/mu, x = D'a by |D'A^-1| E |a| + m u sqrt(mu q) |a|, and D x
    by |DD'A^-1| E |a| and the errors of two products. With sqrt(q) <= m + q each sum is below 4.04 u (M + 3 m + 8)
    (m + q), half of t. The exact answer lies in its ball, so moving it there shortens it by at most `clipping.room` of
    the radius, which 2^-40 and the other half of t are for.
    """
    small, large = np.minimum(samples, width), np.maximum(samples, width)
    return 2.0**-40 + 2.0**-50 * (large + 3 * small + 8) * (small + squares / np.asarray(mu))


def _refined(exact: np.ndarray, u: np.ndarray, error: Value, diameter: np.ndarray, always: np.ndarray) -> np.ndarray:
    """`always`, or where rounding is provably small the bound on exact answers and the error of both computed ones."""
    small = (np.asarray(error) <= MOST_ERROR) & (norm(u) >= LEAST_TARGET)
    return np.where(small, np.minimum(exact + 2 * error * diameter, always), always)


def _phi(mu: Value, row_bound: float) -> Value:
    """The largest sqrt(h)/(1 + h) over 0 <= h <= B²/mu."""
    h = np.minimum(row_bound**2 / np.asarray(mu), 1.0)
    return np.sqrt(h) / (1 + h)


def _reach(u: np.ndarray, mu: Value, row_bound: float) -> np.ndarray:
    """|u|_inf + P."""
    return np.abs(u).max(axis=-1, keepdims=True) + row_bound * norm(u) / (2 * np.sqrt(mu))

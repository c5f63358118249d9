"""How far a ridge fit of one party can move when its data change: what `ProvenColumns` noise is made for.

A party with columns D (samples × d) answers a public target u by x = argmin lam/2 |x|² + rho/2 |D x − u|² and the
scores D x. With mu = lam/rho,

    x = (D'D + mu)^-1 D'u,      D x = H u,   H = D (D'D + mu)^-1 D' = I − mu (DD' + mu)^-1,   0 <= H <= I.

Everything here depends on u, mu and the promised bounds alone, so noise in proportion to it gives nothing away. Each
function takes u with samples as its last axis and returns (..., 1). `tests/test_sensitivity.py` searches for worse
neighbours and finds none.
"""

import numpy as np

Value = float | np.ndarray


def norm(u: np.ndarray) -> np.ndarray:
    return np.linalg.norm(u, axis=-1, keepdims=True)


def party_scores(u: np.ndarray) -> np.ndarray:
    """All of D replaced: H and H' lie between 0 and I, so |(H − H') u| <= |u|."""
    return norm(u)


def column_scores(u: np.ndarray, mu: Value, column_bound: float) -> np.ndarray:
    """One column d of D replaced, |d| <= B: kappa |u|, kappa = B²/(B² + mu).

    With A = mu + the other columns' DD', H = I − mu A^-1 + T and T = mu A^-1 dd'A^-1/(1 + s), s = d'A^-1 d. T is
    positive, and |T| = mu d'A^-2 d/(1 + s) <= s/(1 + s) <= kappa since d'A^-2 d <= s/mu and s <= B²/mu. Two positive
    matrices of norm at most kappa differ by at most kappa. Attained by a column along u against one across it.
    """
    squared = column_bound**2
    return squared / (squared + mu) * norm(u)


def record_scores(u: np.ndarray, mu: Value, row_bound: float, score_bound: float) -> np.ndarray:
    """One row d of D replaced, |d| <= B, each score clipped to [−c, c]: sqrt(4c² + 4 phi² (|u|_inf + P)²).

    Without row i, G = mu + D'D and x_0 = G^-1 D'u of the other rows; with it x = x_0 + G^-1 d (u_i − p)/(1 + h),
    h = d'G^-1 d <= B²/mu, p = d'x_0, |p| <= P = B |u|/(2 sqrt(mu)) since |x_0| <= |u|/(2 sqrt(mu)). The other scores
    move by |D G^-1 d| |u_i − p|/(1 + h) <= phi (|u|_inf + P) as |D G^-1 d|² <= h; clipping stretches nothing. From D to
    D' is that twice, by way of x_0; score i itself moves by at most 2c.
    """
    return np.sqrt(4 * score_bound**2 + 4 * (_phi(mu, row_bound) * _reach(u, mu, row_bound)) ** 2)


def party_model(u: np.ndarray, mu: Value) -> np.ndarray:
    """All of D, or one column, replaced: |x| <= |u| max_s s/(s² + mu) = |u|/(2 sqrt(mu)); x moves by |u|/sqrt(mu)."""
    return norm(u) / np.sqrt(mu)


def record_model(u: np.ndarray, mu: Value, row_bound: float) -> np.ndarray:
    """One row replaced: |x − x_0| = |G^-1 d| |u_i − p|/(1 + h), and |G^-1 d|² = d'G^-2 d <= h/mu; and that twice."""
    return 2 * _phi(mu, row_bound) * _reach(u, mu, row_bound) / np.sqrt(mu)


def _phi(mu: Value, row_bound: float) -> Value:
    """The largest sqrt(h)/(1 + h) over 0 <= h <= B²/mu."""
    h = np.minimum(row_bound**2 / np.asarray(mu), 1.0)
    return np.sqrt(h) / (1 + h)


def _reach(u: np.ndarray, mu: Value, row_bound: float) -> np.ndarray:
    """|u|_inf + P."""
    return np.abs(u).max(axis=-1, keepdims=True) + row_bound * norm(u) / (2 * np.sqrt(mu))

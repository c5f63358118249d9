"""Optima found by other people's code: scikit-learn, SciPy and closed forms. Nothing of the library's own solvers."""

from importlib import import_module
from typing import Any

import numpy as np
from sklearn.linear_model import Lasso, LogisticRegression, Ridge

from sottovoce.problems.federation import Federation
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import WithIntercept


def optimum(federation: Federation, objective: Objective) -> np.ndarray:
    """argmin (1/n) Σ f_i + r for logistic or squared loss with l1 or l2."""
    sizes, n = federation.sizes, federation.n
    share = 1 / (n * sizes) if objective.scale == "mean" else np.full(n, 1 / n)
    weight = np.repeat(share, sizes)
    X, y, penalty = federation.X, federation.y.astype(float), objective.penalty
    if isinstance(penalty, WithIntercept):
        return _with_intercept(X, y, weight, penalty.penalty, objective.loss.name)
    lam = penalty.lam  # type: ignore[attr-defined]
    match objective.loss.name, penalty.name:
        case "logistic", "l2":
            fit = LogisticRegression(
                C=1 / lam, fit_intercept=False, tol=1e-13, max_iter=10_000, solver="newton-cholesky"
            )
            return fit.fit(X, y, sample_weight=weight).coef_[0]
        case "logistic", "l1":
            return _l1_logistic(X, y, weight, lam)
        case "squared", "l2":
            return np.linalg.solve(X.T @ (weight[:, None] * X) + lam * np.eye(X.shape[1]), X.T @ (weight * y))
        case "squared", "l1":
            # Lasso minimises |√s(y − Xw)|² / (2 Σs) + alpha |w|₁ after rescaling its weights s to mean one.
            fit = Lasso(alpha=lam / weight.sum(), fit_intercept=False, tol=1e-15, max_iter=1_000_000)
            return fit.fit(X, y, sample_weight=weight).coef_
    raise AssertionError(f"no reference for {objective}")


def in_a_box(X: np.ndarray, y: np.ndarray, low: float, high: float) -> np.ndarray:
    """argmin |Xw − y|² with low ≤ w ≤ high. Loaded by name: pyright would read all of SciPy's solver for its type."""
    return import_module("scipy.optimize").lsq_linear(X, y, (low, high), tol=1e-14).x


def _with_intercept(X: np.ndarray, y: np.ndarray, weight: np.ndarray, penalty: Any, loss: str) -> np.ndarray:
    """The coefficients, and last an intercept that no penalty counts."""
    match loss, penalty.name:
        case "logistic", "l2":
            fit: Any = LogisticRegression(C=1 / penalty.lam, tol=1e-13, max_iter=10_000, solver="newton-cholesky")
        case "squared", "l2":
            fit = Ridge(alpha=penalty.lam, solver="cholesky")
        case "squared", "l1":
            fit = Lasso(alpha=penalty.lam / weight.sum(), tol=1e-15, max_iter=1_000_000)
        case _:
            raise AssertionError(f"no reference for {loss} and {penalty}")
    fit.fit(X, y, sample_weight=weight)
    return np.append(fit.coef_, fit.intercept_)


def _l1_logistic(X: np.ndarray, y: np.ndarray, weight: np.ndarray, lam: float) -> np.ndarray:
    """liblinear finds which coefficients are zero; Newton on the others (signs fixed) takes it to machine precision."""
    fit = LogisticRegression(C=1.0, l1_ratio=1.0, fit_intercept=False, tol=1e-10, max_iter=100_000, solver="liblinear")
    w = fit.fit(X, y, sample_weight=weight / lam).coef_[0]
    free = np.abs(w) > 1e-6
    signs, A = np.sign(w[free]), X[:, free]
    w = np.where(free, w, 0.0)
    for _ in range(50):
        p = 1 / (1 + np.exp(y * (X @ w)))
        gradient = A.T @ (-weight * y * p) + lam * signs
        hessian = A.T @ ((weight * p * (1 - p))[:, None] * A)
        w[free] -= np.linalg.solve(hessian, gradient)
    slopes = X.T @ (-weight * y / (1 + np.exp(y * (X @ w))))
    assert np.abs(slopes[~free]).max(initial=0.0) < lam, "the set of zeros is wrong"
    assert (np.sign(w[free]) == signs).all()
    return w

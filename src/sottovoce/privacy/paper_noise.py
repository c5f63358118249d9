"""The formulas by which papers set their noise and count its cost, one function per equation, as they are printed.

Misprints are corrected and named. What the formulas are worth is in `privacy/claims.py`.

`m` and `q` are records of one client, `c1` bounds the gradient of one record, and neighbours differ in one record.
Sizes, step sizes and penalties may be arrays with one row per client.
"""

import math

import numpy as np

from sottovoce.core import check

Value = float | np.ndarray
FEDSPD_C0 = 3.04  # the constant of (21), as used in the experiments of FedSPD-DP; its proof does not determine it


def gaussian_factor(epsilon: float, delta: float) -> float:
    """Noise per unit of L2 sensitivity, sqrt(2 ln(1.25/delta))/epsilon: the classical mechanism, for epsilon <= 1."""
    check.positive("Published", epsilon=epsilon)
    return math.sqrt(2 * _log_gaussian(delta)) / epsilon


# DP-ADMM and its baselines.


def moments_total(rounds: int, epsilon: float, delta: float) -> float:
    """DP-ADMM Theorem 2 with the value its log-moment (51) does give: A + 2 sqrt(A ln(1/delta)).

    A = rounds epsilon^2/(4 ln(1.25/delta)), so c0 = sqrt(ln(1/delta)/ln(1.25/delta)) + sqrt(rounds) epsilon/(4
    ln(1.25/delta)): not a constant.
    """
    a = rounds * epsilon**2 / (4 * _log_gaussian(delta))
    return a + 2 * math.sqrt(a * _log_inverse(delta))


def moments_total_as_printed(rounds: int, epsilon: float, delta: float) -> float:
    """DP-ADMM (56), read as an equality as (57) does: sqrt(rounds ln(1/delta)/ln(1.25/delta)) epsilon."""
    return epsilon * math.sqrt(rounds * _log_inverse(delta) / _log_gaussian(delta))


def dp_admm_exact_mu(rounds: int, epsilon: float, delta: float) -> float:
    """The mu of `rounds` Gaussian mechanisms with the classical noise: sqrt(rounds) epsilon/sqrt(2 ln(1.25/delta))."""
    check.whole("dp_admm_exact_mu", at_least=0, rounds=rounds)
    return math.sqrt(rounds) / gaussian_factor(epsilon, delta)


def dvp_epsilon(s: float, c1: float, m: float, strong: float, beta: float, delta: float) -> float:
    """Epsilon of one dual-perturbed exact minimiser, noise N(0, s^2 I) on the dual. Our bound: the paper has none.

    Needs a linear model, `strong` = rho + lambda/n, and `beta` = the largest second derivative of the loss times the
    largest squared row norm.
    """
    check.positive("dvp_epsilon", s=s, c1=c1, m=m, strong=strong, beta=beta)
    ratio = 2 * c1 / (m * s)
    return math.log1p(beta / (m * strong)) + ratio**2 / 2 + ratio * math.sqrt(2 * _log_inverse(delta))


# FedSPD-DP.


def fedspd_sensitivity(grad_bound: float, rho: float, gamma: Value, local_steps: int) -> Value:
    """FedSPD-DP Lemma 2, (19): the claimed change of y_i in one round. Not a bound: see `CLAIMS`."""
    check.whole("fedspd_sensitivity", local_steps=local_steps)
    average = 1.0 if local_steps == 1 else local_steps / (local_steps - 1)
    return 4 * grad_bound * average / (rho + gamma)


def fedspd_sigma(grad_bound: float, rho: float, gamma: Value, local_steps: int, epsilon: float, delta: float) -> Value:
    """FedSPD-DP (20): standard deviation of the noise on y_i. Its square is what (11) prints as the scale."""
    return fedspd_sensitivity(grad_bound, rho, gamma, local_steps) * gaussian_factor(epsilon, delta)


def fedspd_data_rate(local_steps: int, batch: int, m: int, replacement: bool = False) -> float:
    """FedSPD-DP (22): the probability q that one record is drawn in a round."""
    check.whole("fedspd_data_rate", local_steps=local_steps, batch=batch, m=m)
    drawn = local_steps * batch
    if replacement:
        return -math.expm1(drawn * math.log1p(-1 / m)) if m > 1 else 1.0
    check.require(drawn <= m, "fedspd_data_rate", f"local_steps * batch must be <= m = {m}", drawn)
    return drawn / m


def fedspd_total(epsilon: float, rounds: int, data_rate: float, client_rate: float = 1.0) -> float:
    """FedSPD-DP Theorem 1, (21): c0 q epsilon sqrt(p T/(1 - q)), for q = `data_rate` < 1 and p = `client_rate`."""
    check.between("fedspd_total", 0, 1, data_rate=data_rate)
    return FEDSPD_C0 * data_rate * epsilon * math.sqrt(client_rate * rounds / (1 - data_rate))


def fedspd_epsilon(total: float, rounds: int, data_rate: float, client_rate: float = 1.0) -> float:
    """FedSPD-DP (36): the epsilon of one round from the total; (21) the other way round."""
    return total / fedspd_total(1.0, rounds, data_rate, client_rate)


# Fed-PLT. `lipschitz` is L of Assumption 3, twice the clip norm; `strong` is the modulus of strong convexity.


def fed_plt_rdp(
    order: float, lipschitz: Value, tau: Value, q: Value, strong: Value, step: Value, rounds: int, local_steps: int
) -> Value:
    """Fed-PLT Proposition 4: the claimed Rényi divergence of this order after all rounds."""
    reached = -np.expm1(-strong * step * rounds * local_steps / 2)
    return order * lipschitz**2 / (strong * tau**2 * q**2) * reached


def fed_plt_epsilon(
    lipschitz: float, tau: Value, q: Value, strong: Value, step: Value, rounds: int, local_steps: int, delta: float
) -> Value:
    """Fed-PLT Lemma 5 on Proposition 4, at the best order 1 + sqrt(ln(1/delta)/a): a + 2 sqrt(a ln(1/delta))."""
    a = fed_plt_rdp(1.0, lipschitz, tau, q, strong, step, rounds, local_steps)
    return a + 2 * np.sqrt(a * _log_inverse(delta))


def fed_plt_tau(
    epsilon: float, delta: float, lipschitz: Value, q: Value, strong: Value, step: Value, rounds: int, local_steps: int
) -> Value:
    """The tau at which `fed_plt_epsilon` is `epsilon`; each local step then adds sqrt(2 step) tau N(0, I)."""
    check.positive("fed_plt_tau", epsilon=epsilon)
    log = _log_inverse(delta)
    a = (epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))) ** 2
    return np.sqrt(fed_plt_rdp(1.0, lipschitz, 1.0, q, strong, step, rounds, local_steps) / a)


# FedEPM.


def fedepm_scale(sensitivity: Value, epsilon: float, mu: Value) -> Value:
    """FedEPM (27): Laplace scale from the L1 change (26) of the gradient. `mu` is mu_{i,k+1} of (20)."""
    check.positive("fedepm_scale", epsilon=epsilon)
    return sensitivity / (epsilon * mu)


def fedepm_practical_scale(gradient_l1: Value, epsilon: float, mu: Value) -> Value:
    """FedEPM (39), the scale of the experiments: (27) with twice the L1 norm of the client's own gradient."""
    return fedepm_scale(2 * gradient_l1, epsilon, mu)


# ADMM sharing.


def sharing_sensitivity(columns: Value, rho: Value, lam: float, c1: float, parties: Value, b1: float) -> Value:
    """ADMM sharing Lemma 1: C = 3 (lam c1 + (1 + M rho) b1)/(d_m rho). Not a bound: see `CLAIMS`."""
    return 3 / (columns * rho) * (lam * c1 + (1 + parties * rho) * b1)


def sharing_sigma(sensitivity: Value, epsilon: float, delta: float) -> Value:
    """ADMM sharing Theorem 3: the noise on x_m is N(0, sigma^2 (D'D)^-1)."""
    return sensitivity * gaussian_factor(epsilon, delta)


def sharing_total(rounds: int, epsilon: float, delta: float, extra_delta: float) -> tuple[float, float]:
    """ADMM sharing Corollary 1, (17): advanced composition, (epsilon', rounds delta + extra_delta)."""
    spread = epsilon * math.sqrt(2 * rounds * _log_inverse(extra_delta))
    growth = math.expm1(epsilon) if epsilon < 700 else math.inf
    return spread + rounds * epsilon * growth, rounds * delta + extra_delta


def _log_gaussian(delta: float) -> float:
    """ln(1.25/delta)."""
    hint = "Give Published(delta=1e-5)"
    check.require(0 < delta < 1, "Published", "Gaussian noise needs a delta in (0, 1)", delta, hint)
    return math.log(1.25 / delta)


def _log_inverse(delta: float) -> float:
    """ln(1/delta)."""
    check.between("Published", 0, 1, delta=delta)
    return -math.log(delta)

"""What each paper says its own noise promises, and what that promise is worth.

First the papers' formulas, one function per equation, as they are printed (misprints are corrected and named). They
set the noise of a `Published` run. Then `CLAIMS`: per method the statement, its assumptions, whom it is meant to
protect against, and our verdict. A verdict is "sound" only where a proof stands behind it, and then only under the
assumptions listed with it. Every number in a `because` is recomputed by `tests/privacy/test_claims.py`.

`m` and `q` are records of one client, `c1` bounds the gradient of one record, and neighbours differ in one record.
Sizes, step sizes and penalties may be arrays with one row per client.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sottovoce.core import check

Value = float | np.ndarray
Verdict = Literal["sound", "unsound", "not checkable"]
FEDSPD_C0 = 3.04  # the constant of (21), as used in the experiments of FedSPD-DP; its proof does not determine it


def gaussian_factor(epsilon: float, delta: float) -> float:
    """Noise per unit of L2 sensitivity, sqrt(2 ln(1.25/delta))/epsilon: the classical mechanism, for epsilon <= 1."""
    check.positive("published noise", epsilon=epsilon)
    return math.sqrt(2 * _log_gaussian(delta)) / epsilon


# DP-ADMM and its baselines PVP, DVP and DP-SGD.


def dp_admm_sigma(c1: float, m: Value, rho: float, eta: Value, epsilon: float, delta: float) -> Value:
    """DP-ADMM (14): standard deviation of the noise on w_i, from the sensitivity 2 c1/(m (rho + 1/eta)) of Lemma 1.

    The printed matrix normal has entries of standard deviation sigma^2; the proofs need sigma.
    """
    return 2 * c1 / (m * (rho + 1 / eta)) * gaussian_factor(epsilon, delta)


def pvp_sigma(c1: float, m: Value, rho: float, lam_over_n: float, epsilon: float, delta: float) -> Value:
    """DP-ADMM section III-A: noise on the exact minimiser, sensitivity (47); the printed root covers too much."""
    return 2 * c1 / (m * (rho + lam_over_n)) * gaussian_factor(epsilon, delta)


def dp_sgd_sigma(c1: float, m: Value, epsilon: float, delta: float) -> Value:
    """Noise on the mean gradient of all m records: what (14) amounts to before the division by rho + 1/eta."""
    return 2 * c1 / m * gaussian_factor(epsilon, delta)


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
    """The whole run is exactly this mu-Gaussian mechanism: sqrt(rounds) epsilon/sqrt(2 ln(1.25/delta))."""
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


def dvp_noise(epsilon: float, c1: float, m: float, strong: float, beta: float, delta: float) -> float:
    """The s at which `dvp_epsilon` is `epsilon`."""
    check.positive("dvp_noise", epsilon=epsilon, c1=c1, m=m, strong=strong, beta=beta)
    determinant = math.log1p(beta / (m * strong))
    check.require(
        epsilon > determinant, "dvp_noise", f"epsilon must exceed {determinant:.4g}", epsilon, "Raise rho or epsilon"
    )
    left, root = epsilon - determinant, math.sqrt(2 * _log_inverse(delta))
    return 2 * c1 / m * (root + math.sqrt(root**2 + 2 * left)) / (2 * left)


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


def fedspd_total(
    epsilon: float, rounds: int, data_rate: float, client_rate: float = 1.0, c0: float = FEDSPD_C0
) -> float:
    """FedSPD-DP Theorem 1, (21): c0 q epsilon sqrt(p T/(1 - q)), for q = `data_rate` < 1 and p = `client_rate`."""
    check.between("fedspd_total", 0, 1, data_rate=data_rate)
    return c0 * data_rate * epsilon * math.sqrt(client_rate * rounds / (1 - data_rate))


def fedspd_epsilon(
    total: float, rounds: int, data_rate: float, client_rate: float = 1.0, c0: float = FEDSPD_C0
) -> float:
    """FedSPD-DP (36): the epsilon of one round from the total; (21) the other way round."""
    return total / fedspd_total(1.0, rounds, data_rate, client_rate, c0)


# Fed-PLT. `lipschitz` is L of Assumption 3, twice the clip norm; `strong` is the modulus of strong convexity.


def fed_plt_rdp(
    order: float, lipschitz: Value, tau: Value, q: Value, strong: Value, step: Value, rounds: int, local_steps: int
) -> Value:
    """Fed-PLT Proposition 4: the claimed Rényi divergence of this order after all rounds."""
    reached = -np.expm1(-strong * step * rounds * local_steps / 2)
    return order * lipschitz**2 / (strong * tau**2 * q**2) * reached


def fed_plt_epsilon(
    lipschitz: float,
    tau: Value,
    q: Value,
    strong: Value,
    step: Value,
    rounds: int,
    local_steps: int,
    delta: float,
) -> Value:
    """Fed-PLT Lemma 5 on Proposition 4, at the best order 1 + sqrt(ln(1/delta)/a): a + 2 sqrt(a ln(1/delta))."""
    a = fed_plt_rdp(1.0, lipschitz, tau, q, strong, step, rounds, local_steps)
    return a + 2 * np.sqrt(a * _log_inverse(delta))


def fed_plt_tau(
    epsilon: float,
    delta: float,
    lipschitz: Value,
    q: Value,
    strong: Value,
    step: Value,
    rounds: int,
    local_steps: int,
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


def sharing_sensitivity(columns: int, rho: float, lam: float, c1: float, parties: int, b1: float) -> float:
    """ADMM sharing Lemma 1: C = 3 (lam c1 + (1 + M rho) b1)/(d_m rho). Not a bound: see `CLAIMS`."""
    check.whole("sharing_sensitivity", columns=columns, parties=parties)
    return 3 / (columns * rho) * (lam * c1 + (1 + parties * rho) * b1)


def sharing_sigma(sensitivity: float, epsilon: float, delta: float) -> float:
    """ADMM sharing Theorem 3: the noise on x_m is N(0, sigma^2 (D'D)^-1)."""
    return sensitivity * gaussian_factor(epsilon, delta)


def sharing_total(rounds: int, epsilon: float, delta: float, extra_delta: float) -> tuple[float, float]:
    """ADMM sharing Corollary 1, (17): advanced composition, (epsilon', rounds delta + extra_delta)."""
    spread = epsilon * math.sqrt(2 * rounds * _log_inverse(extra_delta))
    growth = math.expm1(epsilon) if epsilon < 700 else math.inf
    return spread + rounds * epsilon * growth, rounds * delta + extra_delta


# The claims.


@dataclass(frozen=True)
class Asked:
    """What a published run asked for; the two rates matter to FedSPD-DP only (p and q of (21))."""

    epsilon: float
    delta: float
    rounds: int
    data_rate: float | None = None
    client_rate: float = 1.0

    def __post_init__(self) -> None:
        check.positive("describe", epsilon=self.epsilon)
        check.require(0 <= self.delta < 1, "describe", "delta must lie in [0, 1)", self.delta)
        check.whole("describe", at_least=0, rounds=self.rounds)


def _unclaimed(_: Asked) -> None:
    return None


@dataclass(frozen=True)
class PaperClaim:
    """One paper's promise and what it is worth.

    `total` is the paper's own (epsilon, delta) for a whole run, None where it states none. `exact_mu` is set only
    where the run is provably that Gaussian mechanism under `assumptions`.
    """

    method: str
    paper: str
    statement: str
    assumptions: tuple[str, ...]
    observer: str
    verdict: Verdict
    because: str
    instead: str
    total: Callable[[Asked], tuple[float, float] | None] = _unclaimed
    without_total: str = "The paper states no total for a whole run."
    span: str = "per round"
    pure: bool = False
    exact_mu: Callable[[int, float, float], float] | None = None


_HUANG = "Huang, Hu, Guo, Chan-Tin, Gong: DP-ADMM: ADMM-based Distributed Learning with Differential Privacy"
_EVERY_MESSAGE = "an eavesdropper on every message, and the honest-but-curious server"
_CLIPPED = "the gradient of one record is bounded by c1 everywhere it is asked for: enforced by clipping, not hoped for"
_START = "initial values, c1 and every hyper-parameter are chosen without looking at private data"
_STD = "the noise has independent entries of standard deviation sigma"

CLAIMS: dict[str, PaperClaim] = {
    claim.method: claim
    for claim in (
        PaperClaim(
            method="dp-admm",
            paper=_HUANG,
            statement="Theorem 1: with noise (14) every iteration is (epsilon, delta)-DP, for epsilon <= 1. "
            "Theorem 2: t iterations are (c0 sqrt(t) epsilon, delta)-DP for some constant c0 (here: the one of (56)).",
            assumptions=(_CLIPPED, _STD, _START),
            observer=_EVERY_MESSAGE,
            verdict="sound",
            because="All state is a function of the noisy releases, so the iterations compose. But c0 is no constant: "
            "for t = 10000, epsilon = 1, delta = 1e-5, (56) gives 99 and the exact value is 300. And drawn as the "
            "printed matrix normal (entries of standard deviation sigma^2) the noise of the paper's l2 experiment "
            "gives 10.5 where sigma gives 1.45.",
            instead="Proven: the same algorithm with clipped gradients, its noise set by exact composition.",
            total=lambda a: (moments_total_as_printed(a.rounds, a.epsilon, a.delta), a.delta),
            exact_mu=dp_admm_exact_mu,
        ),
        PaperClaim(
            method="pvp",
            paper=f"{_HUANG} (Algorithm 2, after Zhang and Zhu)",
            statement="Section III-A and (47): the minimiser moves by at most 2 c1/(m (rho + lambda/n)), so Gaussian "
            "noise of that scale makes every iteration (epsilon, delta)-DP.",
            assumptions=(
                "every iteration releases the exact minimiser; one with gradient norm <= tol needs a sensitivity "
                "larger by 2 tol/(rho + lambda/n)",
                "the gradient of one record is bounded by c1 everywhere (bounded rows and loss slope; clipping "
                "inside a solver does not give this)",
                "the regulariser is 1-strongly convex (otherwise rho alone must stand for rho + lambda/n)",
                "nothing outside shows when the solver stopped",
                _STD,
                _START,
            ),
            observer=_EVERY_MESSAGE,
            verdict="sound",
            because="The local objective is (rho + lambda/n)-strongly convex and all state is built from the noisy "
            "releases, so the bound holds and composes, for exact minimisers only. The printed sigma has its square "
            "root over too much; the corrected one is used here.",
            instead="Proven dp-admm; or this method with a certified solver, composed over the run.",
            exact_mu=dp_admm_exact_mu,
        ),
        PaperClaim(
            method="dvp",
            paper=f"{_HUANG} (a baseline there, cited from Zhang and Zhu)",
            statement="Dual variable perturbation is compared at (epsilon, delta) per iteration; neither its noise "
            "nor a theorem is given.",
            assumptions=("not stated",),
            observer=_EVERY_MESSAGE,
            verdict="not checkable",
            because="There is no claim to check. `dvp_epsilon` is our own bound for one iteration: a linear model, the "
            "exact minimiser, (epsilon, delta) events to be composed. A solver that stops early voids it.",
            instead="Proven dp-admm.",
        ),
        PaperClaim(
            method="dp-sgd",
            paper=f"Abadi et al.: Deep Learning with Differential Privacy (2016), as run in {_HUANG}",
            statement="The mean gradient of all records (sampling ratio 1) plus Gaussian noise is (epsilon, delta)-DP "
            "per iteration, for epsilon <= 1; the moments accountant gives the total.",
            assumptions=(
                "every record takes part in every step; the bound for mini-batches was not checked",
                _CLIPPED,
                _STD,
                _START,
            ),
            observer=_EVERY_MESSAGE,
            verdict="sound",
            because="Everything sent is a function of clipped gradients with Gaussian noise, asked at points that "
            "depend on earlier answers only: the Gaussian mechanism, composed.",
            instead="Proven: the same, its noise set by exact composition, mini-batches included.",
            total=lambda a: (moments_total(a.rounds, a.epsilon, a.delta), a.delta),
            exact_mu=dp_admm_exact_mu,
        ),
        PaperClaim(
            method="fedspd-dp",
            paper="Li, Wang, Chang, Chi: Federated Stochastic Primal-dual Learning with Differential Privacy",
            statement="Lemma 2 and (20): every round is (epsilon, delta)-DP. Theorem 1: T rounds are c0 q epsilon "
            "sqrt(p T/(1 - q)), c0 = 3.04, with clients sampled at rate p and records at rate q (22).",
            assumptions=(
                "convex differentiable losses, bounded domain and multipliers, gradients bounded by G",
                "records are sampled in secret, and which clients take part is averaged over, as if hidden",
            ),
            observer=_EVERY_MESSAGE + ", even if they collect all intermediate results",
            verdict="unsound",
            because="The Q local steps are counted as if their effects did not add up, and the un-noised x and lambda "
            "are carried from round to round. Claimed 1 for one round, exact 7.1 (Q = 20, linear loss, b = m = 1). "
            "With the paper's constants and b = 10, claimed 1 for every upload: the 100th alone is exact 39.5, all "
            "100 together 527 where the claimed rounds compose to 12.5. The server knows who takes part, so p "
            "protects nobody from it.",
            instead="Proven: clipped noisy gradients in every local step; all that follows is post-processing.",
            total=lambda a: (
                (fedspd_total(a.epsilon, a.rounds, a.data_rate, a.client_rate), a.delta)
                if a.data_rate is not None and a.data_rate < 1
                else None
            ),
            without_total="Its total (21) needs a sampling rate of the records below 1; none was given.",
        ),
        PaperClaim(
            method="fed-plt",
            paper="Bastianello, Liu, Johansson: Enhancing Privacy in Federated Learning through Local Training",
            statement="Proposition 4 and Lemma 5: with noisy gradient descent as local solver the whole run is "
            "(epsilon, delta)-DP, with an epsilon that stays bounded however many rounds are run.",
            assumptions=(
                "strongly convex smooth costs, step < 2/(smoothness + 1/rho) (Assumption 1)",
                "one record changes a local gradient by at most L/q, by clipping if need be (Assumption 3)",
                "x_{i,0} is drawn from N(0, 2 tau^2/strong I)",
            ),
            observer="not named (the proof bounds the final local models only; the coordinator sees every z_i)",
            verdict="unsound",
            because="The proof is that of the last iterate of one noisy chain. Claimed 1 for all K: the messages of "
            "1000 rounds are exact 5.3; the last message alone is 2.9 at rho = 100, a constant the bound does not "
            "know. With the clipping the paper recommends the cost is no longer strongly convex, and the final model "
            "alone is 12.7 after 400 rounds. Unclipped and with only the final models seen, it is unproven.",
            instead="Proven: clipped noisy gradients, all local steps of all rounds composed.",
            total=lambda a: (a.epsilon, a.delta),
            span="for the whole run, however long",
        ),
        PaperClaim(
            method="fedepm",
            paper="Zhou, Li: Exact Penalty Method for Federated Learning",
            statement="Theorem V.1: with Laplace noise (27) every upload is epsilon-DP (delta = 0). The experiments "
            "use (39), twice the norm of the gradient, for the sensitivity.",
            assumptions=("the sensitivity (26) is taken over the neighbours of the data at hand",),
            observer="not named (the server, who sees one upload z_i after the other)",
            verdict="unsound",
            because="One record enters all k0 local steps and w_i is never reset to what was released. Claimed 0.1 "
            "with the paper's constants and k0 = 12: the first upload is exact 1.2, the tenth 12.6. Scale (39) is 0 "
            "for a zero gradient: epsilon is infinite. The scale itself depends on the data; nothing is composed.",
            instead="Proven: one clipped noisy gradient per round; the k0 steps and the upload are post-processing.",
            pure=True,
            without_total="The paper states no total; even if its rounds were private, their epsilons would add up.",
        ),
        PaperClaim(
            method="admm-sharing",
            paper="Learning Privately over Distributed Features: An ADMM Sharing Approach",
            statement="Lemma 1 and Theorem 3: noise N(0, sigma^2 (D'D)^-1) on x_m makes every iteration (epsilon, "
            "delta)-DP for one feature column. Corollary 1, (17): advanced composition (here with delta' = delta).",
            assumptions=(
                "norms of x, y, z bounded by b1, second derivative of the regulariser by c1, rows of norm 1 "
                "(Assumption 2)",
                "epsilon <= 1",
            ),
            observer="not named (the parties and the server who receive D_m x_m)",
            verdict="unsound",
            because="D_m times the noise stays in the column space of D_m, so neighbours with different column spaces "
            "are told apart by one release with certainty: delta = 1 for every epsilon. Lemma 1 fails too: with "
            "isotropic noise of its size, claimed 1, exact 6.1 for 57 columns and 1270 for 2000. And the broadcast y "
            "shows every label.",
            instead="Proven: D_m x_m clipped as one vector, isotropic noise, composed over the run. Labels are not "
            "covered: randomise them first if they are private.",
            total=lambda a: sharing_total(a.rounds, a.epsilon, a.delta, a.delta),
        ),
    )
}


def describe(
    method: str,
    epsilon: float,
    delta: float,
    rounds: int,
    data_rate: float | None = None,
    client_rate: float = 1.0,
    unmet: Sequence[str] = (),
) -> str:
    """The text a `Published` run prints: the paper's claim in numbers, then what it is worth and what to use instead.

    A method without a recorded claim is not refused: its run has ended, and must be told that nothing protects it.
    `unmet` are assumptions of the claim that this run is known to break: then no verdict but "no guarantee" is given.
    """
    asked = Asked(epsilon, delta, rounds, data_rate, client_rate)
    claim = CLAIMS.get(method)
    if claim is None:
        return f"{method}: no privacy claim is recorded for its published noise. Treat the run as not private."
    total = claim.total(asked)
    lines = [
        f"Published noise of {method}. {claim.paper}.",
        f"Paper's claim: ({epsilon:g}, {0 if claim.pure else delta:g}) {claim.span}. {claim.statement}",
        f"Meant to protect against: {claim.observer}.",
        f"Paper's total for {rounds} rounds: ({total[0]:.4g}, {total[1]:.4g})." if total else claim.without_total,
        f"Verdict: {_VERDICTS['unsound'] if unmet else _VERDICTS[claim.verdict]} {claim.because}",
        *(f"This run breaks what the claim assumes: {'; '.join(unmet)}." for _ in range(bool(unmet))),
        f"Assumes: {'; '.join(claim.assumptions)}.",
    ]
    if claim.exact_mu is not None and not unmet:
        exact = _gaussian_epsilon(claim.exact_mu(rounds, epsilon, delta), delta)
        lines.append(f"Exact for {rounds} rounds, if all of that holds: ({_up(exact)}, {delta:g}).")
        if epsilon > 1:  # the classical Gaussian mechanism is no theorem there, and false from about 8 on
            lines.append(
                f"But epsilon = {epsilon:g} > 1 per round is outside the theorem: only the exact total counts."
            )
        if total and exact > total[0]:
            lines.append("The paper's total is too small here: only the exact total counts.")
    return "\n".join([*lines, f"Use instead: {claim.instead}"])


def published_table() -> list[dict[str, str]]:
    """One row per method, as plain text: for a table on the command line."""
    shown = ("method", "paper", "statement", "observer", "verdict", "because", "instead")
    return [{name: getattr(claim, name) for name in shown} for claim in CLAIMS.values()]


_VERDICTS: dict[Verdict, str] = {
    "sound": "sound for epsilon <= 1 per round, under the assumptions below.",
    "unsound": "UNSOUND: no guarantee.",
    "not checkable": "not checkable: no guarantee.",
}


def _log_gaussian(delta: float) -> float:
    check.between("published noise", 0, 1, delta=delta)
    return math.log(1.25 / delta)


def _log_inverse(delta: float) -> float:
    check.between("published noise", 0, 1, delta=delta)
    return -math.log(delta)


def _gaussian_epsilon(mu: float, delta: float) -> float:
    from sottovoce.privacy.accounting import gaussian_epsilon

    return gaussian_epsilon(mu, delta) if mu > 0 else 0.0


def _up(epsilon: float) -> str:
    """Rounded up: a guarantee must not get better in print."""
    return f"{math.ceil(epsilon * 1e3) / 1e3:.3f}".rstrip("0").rstrip(".")

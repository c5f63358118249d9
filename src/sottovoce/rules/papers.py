"""Constants with which the methods of papers go as far as noisy gradient descent does.

All their steps together are τ long if records weigh the same (scale "records": an average client's loss then has a
curvature of up to L = cR², however many rows it has, so that constants do not depend on rows per client). Averaged over
clients, one round of each is one step of gradient descent:

    dp-sgd      step η
    FedEPM      with λ = 0, α = 1, c = 0, k_0 = 1: step 1/(η' + μ') (η', μ' are its own)
    DP-ADMM     step 1/(ρ + 1/η_k), and 1/η_k is about L for a large c_w
    FedSPD-DP   with Q = 1: step 1/(ρ + γ)
    Fed-PLT     with K local steps of length γ: 2ρ (1 − a^K)/(1 + a^K), a = 1 − γ/ρ

In the last three each client asks at a model of its own, which its own noise has moved away from the others'. For
DP-ADMM and FedSPD-DP, with local steps of length h and noise of deviation e on each of them, margins are off by
e √(2/(r(4 + r))), r = ρh: r is chosen such that this is at most 1, as far as `MOST_PLAIN_ROUNDS` allow.

Tried on Adult with 40, 400 and 4000 rows per client and on unequal clients. From ε = 0.3 on they are within a point of
noisy gradient descent with 400 rows and more. With 40 rows, where each client's own noise is ten times as large, at ε =
1: DP-ADMM 0.3 and FedSPD-DP 0.1 points below (81.1; rows with hat functions), Fed-PLT 1.6 (82.4; with waves), where it
was 3.3 with the long pull of 400 rows; at ε = 3 Fed-PLT 0.1, where it was 0.8. Going less far, so that a client's own
noise moves margins by 1 or √3 at most, costs DP-ADMM 2.0 and 0.7 points, and FedSPD-DP 1.8. These numbers for 40 rows
are of two or three runs, and Fed-PLT's of q = 0.4 and 1, where the rule takes 0.2 and 0.9.
"""

import math
from collections.abc import Callable
from dataclasses import fields, replace

from sottovoce.algorithms import ALGORITHMS, DPADMM, FedEPM, FedPLT, FedSPDDP
from sottovoce.core.contract import Method
from sottovoce.rules.numbers import LONGEST_STEP, Descent, PublicNumbers, descent

MOST_PLAIN_ROUNDS = 300  # of methods without momentum
Recipe = tuple[Method, int, Descent]


def by_step(public: PublicNumbers, method: str) -> Recipe:
    """Any other method: gradient descent, as far as its `step` (and `local_steps`) can say so; else its defaults."""
    kind = ALGORITHMS[method]
    rule = _without_momentum(public)
    constants = {"step": rule.step, "local_steps": 1}
    known = {each.name: constants[each.name] for each in fields(kind) if each.name in constants}
    return kind(**known), rule.rounds, rule


def _without_momentum(public: PublicNumbers) -> Descent:
    return replace(descent(public, MOST_PLAIN_ROUNDS), momentum=0.0)


def _fedepm(public: PublicNumbers) -> Recipe:
    rule = _without_momentum(public)
    return FedEPM(eta=0.02 / rule.step, mu=0.98 / rule.step, lam=0.0, alpha=1.0, c=0.0, k0=1), rule.rounds, rule


def _pulled(public: PublicNumbers, length: float) -> tuple[float, int, Descent]:
    """ρ, rounds and the rule for local steps of a `length`, which a pull of ρ shortens to 1/(ρ + 1/length)."""
    rule, unit = descent(public), public.step_unit
    size = length / unit
    needed = rule.time / size  # rounds without a pull
    drift = size * rule.noise**2 * public.answering * rule.time  # e² of so many rounds
    r = drift - 2 + math.sqrt((2 - drift) ** 2 + 2 * drift)  # where drift (1 + r) · 2/(r (4 + r)) = 1
    r = max(0.05, min(r, MOST_PLAIN_ROUNDS / needed - 1))
    rounds = max(1, min(MOST_PLAIN_ROUNDS, math.ceil(needed * (1 + r))))
    return r / length, rounds, replace(rule, rounds=rounds, step=length / (1 + r), momentum=0.0)


def _dp_admm(public: PublicNumbers) -> Recipe:
    length = 4 * public.step_unit * public.bend / public.loss.curvature  # 1/L
    rho, rounds, rule = _pulled(public, length)
    noise = rule.noise * math.sqrt(rounds * public.answering) * 2 * public.slope * public.row_bound
    dim = public.loss.model_size(public.columns)
    c_w = 100 * noise * math.sqrt(2 * dim * rounds) * length  # noise lengthens 1/η_k by at most a hundredth
    return DPADMM(rho=rho, c_w=c_w, penalty_at="server"), rounds, rule


def _fedspd_dp(public: PublicNumbers) -> Recipe:
    length = LONGEST_STEP * public.step_unit * public.bend / public.loss.curvature / public.spread
    rho, rounds, rule = _pulled(public, length)
    return FedSPDDP(rho=rho, gamma=1 / length, local_steps=1), rounds, rule


def _fed_plt(public: PublicNumbers) -> Recipe:
    """Two local steps and q = ρL = 5; where each client's own noise is large, s² N τ > 1/2, one local step and a pull
    as short as `MOST_PLAIN_ROUNDS` allow: such a round goes 2q/(L (1 + q))."""
    smooth, rule = public.loss.curvature * public.row_bound**2, descent(public)
    most = 2 * MOST_PLAIN_ROUNDS / smooth / public.step_unit  # what so many rounds without a pull add up to
    near = rule.noise**2 * public.answering * rule.time > 0.5 and most > 1.2 * rule.time
    q, local_steps = (max(0.2, rule.time / (most - rule.time)), 1) if near else (5.0, 2)
    rho = q / smooth
    step = 2 / (smooth * public.spread + 2 / rho)
    kept = (1 - step / rho) ** local_steps
    each = 2 * rho * (1 - kept) / (1 + kept) / public.step_unit
    rounds = max(1, min(MOST_PLAIN_ROUNDS, math.ceil(rule.time / each)))
    algorithm = FedPLT(rho=rho, step=step, local_steps=local_steps, strong=0.0, smooth=smooth * public.spread)
    return algorithm, rounds, replace(rule, rounds=rounds, step=each * public.step_unit, momentum=0.0)


RECIPES: dict[str, Callable[[PublicNumbers], Recipe]] = {
    FedEPM.name: _fedepm,
    DPADMM.name: _dp_admm,
    FedSPDDP.name: _fedspd_dp,
    FedPLT.name: _fed_plt,
}

"""What the papers' theorems on convergence bound, measured on small problems where they apply, next to the bound.

Each function returns, for some rounds and all runs, what a theorem bounds the mean of (`measured`), the `bound` with
the paper's constants, and the `share` of it that was measured. A theorem's assumptions are said where its problem is
made, and hold there. Claims and figures are in `theorems.py`; ADMM sharing is in `bounds_sharing.py`.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

import sottovoce as sv
from sottovoce import solvers
from sottovoce.algorithms import FedPLT
from sottovoce.algorithms.fed_plt_rates import Contraction, contraction, in_mean
from sottovoce.core import check
from sottovoce.core.participation import Bernoulli, KOfN
from sottovoce.core.plain import Json
from sottovoce.core.round import Checkpoint
from sottovoce.privacy import paper_noise
from sottovoce.problems.rows import Rows
from sottovoce.reproduce.experiment import Columns
from sottovoce.reproduce.trials import watch

DELTA = 1e-3
SEEDED: Json = {"seed": 0, "engine": "numpy"}  # how all are run
Weights = np.ndarray


# ---------------------------------------------------------------------------------------------- what all have in common


def some_rounds(last: int) -> list[int]:
    """About ten in each decade."""
    return sorted({round(k) for k in np.geomspace(1, last, 10 * len(str(last)))})


def columns(rounds: Sequence[int], values: ArrayLike, bounds: ArrayLike, **more: ArrayLike) -> Columns:
    """Of values (and `more` of them) of all runs in each of these rounds, and of one bound for each."""
    by_run = np.array(values, dtype=float).reshape(len(rounds), -1)
    runs = by_run.shape[1]
    measured, bound = by_run.ravel(), np.repeat(np.asarray(bounds, dtype=float), runs)
    found = {"round": np.repeat(rounds, runs), "run": np.tile(np.arange(runs), len(rounds)), "measured": measured}
    return found | {"bound": bound, "share": measured / bound} | {name: np.ravel(one) for name, one in more.items()}


def stacked(name: str, parts: Mapping[str, Columns]) -> Columns:
    """Columns of several kinds, one after the other, with the kind as a column."""
    kinds = [kind for kind, part in parts.items() for _ in part["round"]]
    names = next(iter(parts.values()))
    return {name: kinds} | {key: np.concatenate([part[key] for part in parts.values()]) for key in names}


@lru_cache(maxsize=4)
def federation(clients: int = 5, rows: int = 50, features: int = 5, length: float = 1.0) -> sv.Federation:
    """Rows of one length, whose labels follow a plane that is a little different for each client."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(clients, rows, features))
    X *= length / np.linalg.norm(X, axis=-1, keepdims=True)
    planes = (rng.normal(size=features) + 0.5 * rng.normal(size=(clients, features))) * 4 / length
    chance = 1 / (1 + np.exp(-np.einsum("cmd,cd->cm", X, planes)))
    y = np.where(rng.random((clients, rows)) < chance, 1.0, -1.0)
    groups = np.repeat(np.arange(clients), rows)
    return sv.Federation.from_arrays(X.reshape(-1, features), y.ravel(), groups, row_bound=length * (1 + 1e-12))


def as_rows(owned: sv.Federation, objective: sv.Objective) -> Rows:
    return Rows(owned.X, objective.loss.check_labels(owned.y), owned.offsets, objective.loss, objective.scale, "numpy")


def minimiser(rows: Rows, objective: sv.Objective, smooth: float) -> Weights:
    """argmin (1/n) Σ f_i + r, by accelerated proximal gradient steps; its fixed point is checked."""
    w = v = np.zeros(rows.dim)

    def step(v: Weights) -> Weights:
        slope = rows.gradient(v[None]).mean(axis=0)
        return objective.penalty.prox((v - slope / smooth)[None], 1 / smooth)[0]

    for k in range(20_000):
        new = step(v)
        v, w = new + k / (k + 3) * (new - w), new
        if k % 100 == 0 and np.linalg.norm(step(w) - w) < 1e-13:
            break
    check.require(bool(np.linalg.norm(step(w) - w) < 1e-9), "bounds", "the minimiser was not found")
    return w


# -------------------------------------------------------------------------------------------- DP-ADMM, Theorems 3 and 4


def dp_admm(theorem: Literal[3, 4], rho: float, epsilon: float, rounds: int, runs: int) -> Columns:
    """Σ f_i(w̄_i) − f_i(w*) + β|w̄_i − w̄| of (32) and (37), at the β for which the bound is tightest.

    The bound is a parabola in β and the left side a line, so that β is (ρt/n) E Σ|w̄_i − w̄|, and what is left is
    compared with the bound at β = 0. Logistic loss and rows of length 1: c_1 = 1, c_3 = 1/4. c_w = |w*|.
    """
    lam, owned = 0.01, federation()
    objective = sv.Objective(sv.Logistic(), sv.L1(lam) if theorem == 3 else sv.L2(lam))
    rows, n, d = as_rows(owned, objective), owned.n, owned.X.shape[1]
    best = minimiser(rows, objective, 0.25 + lam)
    c_w, m = float(np.linalg.norm(best)), float(owned.sizes[0])

    def f(w: Weights) -> Weights:
        return (rows.value(w) + objective.penalty.value(w)).sum(axis=-1)

    noise = 2 * paper_noise.gaussian_factor(epsilon, DELTA) / m  # on a gradient, in each coordinate
    if theorem == 3:
        m_1 = n * c_w * np.sqrt(2 * (1 + lam * np.sqrt(d)) ** 2 + 2 * d * noise**2)  # (30)
        m_2 = n * rho * c_w**2 / 2  # (31) without β
    else:
        m_1, m_2 = n * c_w * np.sqrt(2 * d) * noise, n * c_w**2 * (0.25 + lam + rho) / 2  # (35), (36) without β
    total, total_i, recorded = np.zeros(()), np.zeros(()), some_rounds(rounds)
    gaps, apart, last, farthest = [], [], np.zeros((runs, n, d)), 1.0

    def note(checkpoint: Checkpoint) -> None:
        nonlocal total, total_i, last, farthest
        w_i = checkpoint.clients["client.w"]
        total, total_i = total + checkpoint.server.w, total_i + (last if theorem == 3 else w_i)
        last = w_i
        farthest = max(farthest, float(np.sqrt(((w_i - best) ** 2).sum(axis=-1).mean()) / c_w))
        if checkpoint.k in recorded:
            mean, mean_i = total / checkpoint.k, total_i / checkpoint.k
            gaps.append(f(mean_i) - f(best[None, None]))
            apart.append(np.linalg.norm(mean_i - mean, axis=-1).sum(axis=-1))

    algorithm = sv.DPADMM(rho=rho, c_w=c_w, theorem=theorem)
    watch(algorithm, owned, objective, sv.Published(epsilon, DELTA), note, rounds=rounds, runs=runs, **SEEDED)
    t = np.array(recorded, dtype=float)
    beta = rho * t / n * np.mean(apart, axis=1)
    left = np.array(gaps) + beta[:, None] * np.array(apart) - (n * beta**2 / (2 * rho * t))[:, None]
    return columns(recorded, left, m_1 / np.sqrt(t) + m_2 / t) | {"farthest": farthest}


# ---------------------------------------------------------------------------------- FedSPD-DP, Theorem 2, (30) and (32)

RADIUS, BETA = 2.0, 1.5  # of the balls of Assumption 3: dom(R), and the dual variables


def least_rho(local_steps: int, share: float, epsilon: float, rounds: int, dim: int) -> tuple[float, float]:
    """The smallest ρ >= √γ in all rounds, as Theorem 2 asks, and C(Q, ε) of (27) at that ρ: both depend on each other.

    Rows have length 1 and steps use all of them: G = 1, φ = 0.
    """
    rho, noise = 1.0, paper_noise.gaussian_factor(epsilon, DELTA) / max(local_steps - 1, 1)
    while True:
        spread = 1 + 2 * (2 * BETA) ** 2 + 8 * rho * dim * noise**2  # (27)
        gamma = 2 * np.sqrt(local_steps * share * spread * rounds) / (2 * RADIUS)  # (26)
        if rho**2 >= gamma:
            return rho, spread
        rho = 1.01 * np.sqrt(gamma)


def fedspd_dp(
    local_steps: int,
    active: float,
    epsilon: float,
    rounds: int,
    runs: int,
    each_round: bool = False,
    rho_times: float = 1.0,
) -> Columns:
    """H of (25) with the last x_0, as printed, and with its average, as in the proof (62), against (28) and (31).
    And its term β Σ|x̄_i − x_0| (`apart`), and β N |x_0 − x*| to compare it with (`away`).

    A share p of the clients is `active`; ρ is so many times the least that is allowed. The clients' |λ_i| are checked
    to stay below β, as Assumption 3 has it: nothing in the algorithm keeps them there.
    """
    owned, objective, q, p = federation(), sv.Objective(sv.Logistic(), sv.Ball(RADIUS)), local_steps, active
    rows, n, d = as_rows(owned, objective), owned.n, owned.X.shape[1]
    best = minimiser(rows, objective, 0.25)
    least = rows.value(best[None])
    least_allowed, spread = least_rho(q, p, epsilon, rounds, d)
    rho = rho_times * least_allowed
    recorded = list(range(1, rounds + 1)) if each_round else some_rounds(rounds)
    at_zero, duals = rows.value(np.zeros((1, d))), 0.0
    lam = x_0 = x_i = total_i = total_0 = np.zeros((runs, n, d))
    values, apart, away = ({"last": [], "average": []} for _ in range(3))
    rest: list[float] = []

    def note(checkpoint: Checkpoint) -> None:
        nonlocal lam, x_0, x_i, total_i, total_0, duals
        t, before, lam = checkpoint.k, lam, checkpoint.clients["client.lam"]
        answered = (lam != before).any(axis=-1, keepdims=True)
        x_i = np.where(answered, x_0 - (lam - before) / rho, x_i)  # (13b), from line 16
        total_i, total_0 = total_i + x_i, total_0 + x_0
        duals = max(duals, float(np.linalg.norm(lam, axis=-1).max()))
        if t in recorded:
            gap = (rows.value(total_i / t) - least).sum(axis=-1)
            for name, other in (("last", x_0), ("average", total_0 / t)):
                apart[name].append(BETA * np.linalg.norm(total_i / t - other, axis=-1).sum(axis=-1))
                away[name].append(BETA * n * np.linalg.norm(other - best, axis=-1).mean(axis=-1))
                values[name].append(gap + apart[name][-1])
            moved = BETA * np.linalg.norm((x_i - x_0).mean(axis=0), axis=-1).sum()  # the λ_i of the supremum
            first = (at_zero - rows.value(x_i).mean(axis=0)).sum() + moved
            second = n * ((2 * RADIUS) ** 2 * rho * (q + 1) / q + (2 * BETA) ** 2 / rho) / 2
            rest.append((first + second) / (p * t))
        x_0 = checkpoint.server.y.mean(axis=-2, keepdims=True)

    algorithm = sv.FedSPDDP(rho=rho, local_steps=q, client_rate=p, d_x=2 * RADIUS, d_lambda=2 * BETA, phi=0.0)
    some: Json = {"rounds": rounds, "runs": runs, "participation": KOfN(round(p * n)), **SEEDED}
    watch(algorithm, owned, objective, sv.Published(epsilon, DELTA), note, **some)
    check.require(duals <= BETA, "bounds", f"|λ_i| must stay below β = {BETA:g} (Assumption 3)", duals)
    main = n * 4 * RADIUS * np.sqrt(spread / (q * p * np.array(recorded)))  # (31)
    sides = {"last model": ("last", main + rest), "average model": ("average", main + rest)}  # (28)
    sides["average model, order"] = ("average", main)
    parts = {}
    for side, (of, bound) in sides.items():
        parts[side] = columns(recorded, values[of], bound, apart=apart[of], away=away[of])
    return stacked("against", parts)


def fedspd_dp_halved(local_steps: int, epsilon: float, rounds: int, runs: int, rho_times: float = 1.0) -> Columns:
    """In which round H of (25), with averages, is at half of its first value, in each run; all clients are active.

    Infinite where it does not get there. `bound` is C(Q, ε)/Q, to which (31) makes these rounds proportional.
    """
    found = fedspd_dp(local_steps, 1.0, epsilon, rounds, runs, each_round=True, rho_times=rho_times)
    average = np.array(found["against"]) == "average model"
    values = found["measured"][average].reshape(rounds, runs)
    halved = values <= values[0] / 2
    first = np.where(halved.any(axis=0), 1 + halved.argmax(axis=0), np.inf)
    spread = least_rho(local_steps, 1.0, epsilon, rounds, federation().X.shape[1])[1]
    return {"run": np.arange(runs), "against": "halved", "measured": first, "bound": spread / local_steps}


# ------------------------------------------------------------------------- Fed-PLT, Propositions 1 to 3 and Corollary 1

TAU = 0.1  # of noise
AS_PRINTED, CORRECTED = "S as printed", "S corrected"
ONE_ONLY = (f"{AS_PRINTED}, χ corrected", f"{CORRECTED}, χ as printed")
PROPOSITIONS: Mapping[str, Json] = {  # with so few local steps that what they leave, χ, matters, and |S| < 1
    "1: gradient steps": {"steps": 2},
    "2: half of the agents": {"steps": 2, "p": 0.5},
    "3: accelerated steps": {"steps": 3, "accelerated": True},
    "Corollary 1: noise": {"steps": 30, "tau": TAU},
}


def printed(given: Contraction, rho: float, strong: float, chi: float | None = None) -> np.ndarray:
    """S as printed: 1/(λ̲ + 1/ρ) where it should be 1/(1 + ρλ̲); with another χ, if one is given."""
    return matrix(given, given.chi if chi is None else chi, 1 / (strong + 1 / rho))


def matrix(given: Contraction, chi: float, moves: float) -> np.ndarray:
    return np.array([[chi, (1 + chi) * moves], [2 * chi, given.zeta + 2 * chi * moves]])


def fed_plt(proposition: str, length: float, rounds: int, runs: int) -> Columns:
    """E|(x_k − x̄, z_k − z̄)| against σ^k times its start, plus noise, with |S| as printed and corrected."""
    setting = PROPOSITIONS[proposition]
    p, tau, ridge, steps = setting.get("p", 1.0), setting.get("tau", 0.0), 0.08 * length**2, setting["steps"]
    owned, objective = federation(length=length), sv.Objective(sv.Logistic(), sv.L2(ridge))
    rows, n, d = as_rows(owned, objective), owned.n, owned.X.shape[1]
    smooth = float(rows.smoothness().max()) + ridge
    best, rho = minimiser(rows, objective, smooth), 1 / np.sqrt(ridge * smooth)
    centre = best - rho * (rows.gradient(best[None]) + ridge * best)  # z̄
    gamma = 2 / (ridge + smooth + 2 / rho)
    exact = solvers.Accelerated(steps) if setting.get("accelerated") else solvers.Gradient(steps, gamma)
    solver = solvers.Noisy(steps, gamma, noise_std=float(np.sqrt(2 * gamma) * tau)) if tau else exact
    given = contraction(exact, rho, ridge, smooth)
    forms = {AS_PRINTED: printed(given, rho, ridge), CORRECTED: given.matrix}
    if setting.get("accelerated"):  # here χ is that of Lemma 7, which is printed wrong too
        lemma_7 = (1 + smooth / ridge) * (1 - np.sqrt(ridge / smooth)) ** steps
        forms |= {ONE_ONLY[0]: forms[AS_PRINTED], ONE_ONLY[1]: matrix(given, lemma_7, 1 / (1 + rho * ridge))}
        forms[AS_PRINTED] = printed(given, rho, ridge, lemma_7)
    norms = {form: float(np.linalg.norm(one, 2)) for form, one in forms.items()}
    check.require(max(norms.values()) < 1, "bounds", "|S| must be below 1", norms)
    recorded, distances = some_rounds(rounds), []

    def note(checkpoint: Checkpoint) -> None:
        if checkpoint.k in recorded:
            away = [checkpoint.clients["client.x"] - best, checkpoint.clients["client.z"] - centre]
            distances.append(np.sqrt(np.square(away).sum(axis=(0, -2, -1))))

    algorithm = FedPLT(rho=rho, solver=solver, strong=ridge, smooth=smooth)
    some: Json = {"rounds": rounds, "runs": runs if tau or p < 1 else 1, "participation": Bernoulli(p), **SEEDED}
    watch(algorithm, owned, objective, sv.NoPrivacy(), note, **some)
    start = np.sqrt(n * best @ best + (centre**2).sum())  # x_0 = z_0 = 0
    k, chi = np.array(recorded), given.chi ** (1 / steps)
    noise = tau * np.sqrt(10 * n * d * gamma) * (1 - given.chi) / (1 - chi)
    parts = {}
    for form, norm in norms.items():
        sigma = in_mean(norm, p)
        parts[form] = columns(recorded, distances, sigma**k * start + (1 - sigma**k) / (1 - sigma) * noise)
    return stacked("form", parts)


# ------------------------------------------------------------------------------------------------- FedEPM, Theorem VI.1

ETA, ALPHA, K0 = 0.1, 1.01, 4


def fedepm(epsilon: float, rounds: int, runs: int) -> Columns:
    """What (33) says of the Lagrangian 𝓛 (31): in a round it falls by the squares of what moved, or by more. And for
    Theorem VI.1 the value F without what (31) adds to it, the squares, and how far the model is from the optimum.
    ε = 0: no noise.

    The bound is the mean fall over runs. To its squares a run has added what its own fall is short of that: their mean
    stays that of the squares, and its error is that of the difference. A round's k_0 steps are not seen from outside;
    the sum of their squares is at least |w_i − w_i before|²/k_0. All take part (s_0 = 1), c_i = 1 and
    μ_{i,0} = r_i = 1/4, so that μ + η >= r.
    """
    owned, objective = federation(), sv.Objective(sv.Logistic(), sv.NoPenalty())
    rows, n, d, runs = as_rows(owned, objective), owned.n, owned.X.shape[1], runs if epsilon else 1
    r, best = 0.25, minimiser(rows, objective, 0.25)
    algorithm = sv.FedEPM(eta=ETA, mu=r, c=1.0, alpha=ALPHA, k0=K0, noise=27)
    lam, change = algorithm.threshold, 2 * np.sqrt(d) / float(owned.sizes[0])  # Δ_i of (26) is at most this

    def value(w: Weights, w_i: Weights) -> Weights:
        away = w_i - w
        penalty = lam * np.abs(away).sum(axis=(-2, -1)) + ETA / 2 * (away**2).sum(axis=(-2, -1))
        return rows.value(w_i).sum(axis=-1) + penalty

    def added(k: int) -> float:
        """By (31)."""
        scale = change * ALPHA ** (2 * K0) / (epsilon * r) if epsilon else 0.0
        noise = 4 * d * lam * scale / ((ALPHA - 1) * ALPHA ** (k - 1))
        noise += 8 * d * ETA * scale**2 / ((ALPHA**2 - 1) * ALPHA ** (2 * k - 2))
        return n * (r / (2 * (ALPHA - 1) * ALPHA**k) + 2 * noise)

    w = w_before = np.zeros((runs, 1, d))
    w_i, before = np.zeros((runs, n, d)), value(w, np.zeros((runs, n, d))) + added(0)
    recorded, squares, falls = some_rounds(rounds), [], []
    more: dict[str, list[Weights]] = {name: [] for name in ("moved", "distance", "value", "added")}

    def note(checkpoint: Checkpoint) -> None:
        nonlocal w, w_before, w_i, before
        k, new_i = K0 * checkpoint.k, checkpoint.clients["client.w"]
        now, moved = value(w, new_i), ((new_i - w_i) ** 2).sum(axis=(-2, -1))
        least = (r * ALPHA**k + ETA - r) / (2 * K0) * moved + n * ETA / 4 * ((w - w_before) ** 2).sum(axis=(-2, -1))
        if checkpoint.k in recorded:
            fall = before - now - added(k)
            squares.append(least - fall + fall.mean())
            falls.append(fall.mean())
            away = np.linalg.norm(checkpoint.server.w - best, axis=(-2, -1)) / np.linalg.norm(best)
            for name, one in zip(more, (moved, away, now, np.full(runs, added(k))), strict=True):
                more[name].append(one)
        w, w_before, w_i, before = checkpoint.server.w, w, new_i, now + added(k)

    privacy = sv.Published(epsilon) if epsilon else sv.NoPrivacy()
    watch(algorithm, owned, objective, privacy, note, rounds=rounds, runs=runs, **SEEDED)
    return columns(recorded, squares, falls, **more)

"""The papers' theorems on convergence: whether each holds on a problem where it applies, and how loose it is.

The measurements are in `bounds.py`, `bounds_penalty.py` and `bounds_sharing.py`. A theorem that fails is given with a
form that holds.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from sottovoce.reproduce import bounds, bounds_penalty, bounds_sharing
from sottovoce.reproduce.experiment import Claim, Experiment, Finding, Panel, Sweep, Table, every
from sottovoce.reproduce.groups import means
from sottovoce.reproduce.verdicts import Rule, bounded

_theorem = partial(Claim, kind="theorem")


def _holds(says: str, bound: str, why: str = "", robust: bool = False, each: Sequence[str] = (), **where: Any) -> Claim:
    """A theorem: what is measured is below its bound in every setting `each`."""
    return Claim(says, bound, bounded("measured", "bound", where=where, each=each), why, robust, "theorem")


def _panel(*lines: str, **options: Any) -> Panel:
    return Panel("share", "round", lines, log="xy", ylabel="share of the bound", references=_one, **options)


def _one(table: Table) -> dict[str, float]:
    return {"the bound": 1.0}


# -------------------------------------------------------------------------------------------------------------- DP-ADMM

DP_ADMM = Experiment(
    "theorems-dp-admm",
    "Theorems 3 and 4: the average over rounds against M_1/√t + M_2/t",
    Sweep(
        bounds.dp_admm,
        every(theorem=(3, 4), rho=(0.01, 1.0), epsilon=(0.01, 0.1, 1.0)),
        every(theorem=(3, 4), rho=(0.1,), epsilon=(0.1,)),
        {"rounds": 300, "runs": 50},
        {"rounds": 20, "runs": 10},
    ),
    [
        _holds(
            f"Theorem {theorem}: {what}, any t and β", formula, robust=True, each=("rho", "epsilon"), theorem=theorem
        )
        for theorem, what, formula in (
            (3, "convex, bounded gradients (l1)", "M_1/√t + M_2/t, (32)"),
            (4, "convex and smooth (l2)", "M_3/√t + M_4/t, (37)"),
        )
    ],
    [_panel("rho", "epsilon", where={"theorem": theorem}, title=f"Theorem {theorem}") for theorem in (3, 4)],
)

# ------------------------------------------------------------------------------------------------------------ FedSPD-DP


NOISY, SILENT = 10.0, 1e6  # eps: as much noise as matters, and none that does


def _halved(table: Table) -> Finding:
    """Rounds until the average is at half of its first value, for each Q, and with which power of Q they fall; and the
    same without noise, with the least ρ and with twice as much."""
    rows = table.where(against="halved")
    noisy = rows.where(epsilon=NOISY)
    rounds = means(noisy, "measured", "local_steps")
    powers = [
        _power({q: one.value for q, one in means(noisy, y, "local_steps").items()}) for y in ("measured", "bound")
    ]
    text = ", ".join(f"Q = {steps}: {count}" for steps, count in rounds.items())
    text = f"rounds until it is halved: {text}; as 1/Q^{powers[0]:.1f}, where (31) itself has 1/Q^{powers[1]:.1f}"
    for (times,), part in rows.where(epsilon=SILENT).each("rho_times"):
        counts = ", ".join(f"{one.value:g}" for one in means(part, "measured", "local_steps").values())
        text += f"; without noise{'' if times == 1 else f' and with {times:g} times ρ'}: {counts}"
    return Finding(text, bool(powers[0] >= 2.5))


def _power(values: Mapping[int, float]) -> float:
    """With which power of its key a value falls, from the first key to the last."""
    first, last = min(values), max(values)
    return float(np.log(values[first] / values[last]) / np.log(last / first))


_STEPS = Sweep(
    bounds.fedspd_dp_halved,
    [
        *every(epsilon=(NOISY,), rho_times=(1.0,), local_steps=(2, 4, 8)),
        *every(epsilon=(SILENT,), rho_times=(1.0, 2.0), local_steps=(2, 4, 8)),
    ],
    every(epsilon=(NOISY,), rho_times=(1.0,), local_steps=(2, 8)),
    {"rounds": 1200, "runs": 10},
    {"rounds": 30, "runs": 2},
)
_ENVELOPES = Sweep(
    bounds.fedspd_dp,
    every(local_steps=(2, 4, 8), active=(0.4, 1.0)),
    every(local_steps=(2, 4), active=(1.0,)),
    {"epsilon": 30.0, "rounds": 700, "runs": 10},
    {"rounds": 30, "runs": 4},
)
RIGHT_SIDE = "the right side of (28)"
_AGAINST = {  # what is measured -> what is said of it, and its bound
    "last model": ("Theorem 2 as printed: Σ F_i(x̄_i) − F_i(x*) + β|x̄_i − x_0|, x_0 the last model", RIGHT_SIDE),
    "average model": ("Theorem 2 with the average of x_0 over the rounds, as in its proof (62)", RIGHT_SIDE),
    "average model, order": ("(30), (31): the term of order 1/√(pTQ) alone, for the average", "2 N d_X √C/√(pTQ)"),
}
FEDSPD_DP = Experiment(
    "theorems-fedspd-dp",
    "Theorem 2, (30) and (32): the average over rounds against the right side of (28)",
    lambda quick: [*_ENVELOPES(quick), *_STEPS(quick)],
    [
        *(
            _holds(*words, robust=against == "average model", each=("local_steps", "active"), against=against)
            for against, words in _AGAINST.items()
        ),
        _theorem("(32): rounds fall as 1/Q³", "1/Q³; a power of at least 2.5, as we read it", _halved),
    ],
    [
        _panel("local_steps", "active", where={"against": f"{kind} model"}, title=f"x_0: {kind} model")
        for kind in ("last", "average")
    ],
)

# -------------------------------------------------------------------------------------------------------------- Fed-PLT

FED_PLT = Experiment(
    "theorems-fed-plt",
    "Propositions 1 to 3 and Corollary 1: distance from the fixed point against |S|^k and noise",
    Sweep(
        bounds.fed_plt,
        every(proposition=bounds.PROPOSITIONS),
        sizes={"length": 10.0, "rounds": 12, "runs": 400},
        quick_sizes={"rounds": 3, "runs": 10},
    ),
    [
        _holds(
            f"{'' if name[0] == 'C' else 'Proposition '}{name}, {form}",
            "σ^k |start|" + (" + noise/(1 − σ)" if name[0] == "C" else ""),
            proposition=name,
            form=form,
        )
        for name in bounds.PROPOSITIONS
        for form in (bounds.AS_PRINTED, *(bounds.ONE_ONLY if "accelerated" in name else ()), bounds.CORRECTED)
    ],
    [_panel("proposition", where={"form": form}, title=form) for form in (bounds.AS_PRINTED, bounds.CORRECTED)],
)

# --------------------------------------------------------------------------------------------------------------- FedEPM


def _with_noise(table: Table) -> Table:
    """With the noise in words: the eps of 0 stands for none."""
    return Table.of({**table.columns, "noise": [f"eps = {eps:g}" if eps else NO_NOISE for eps in table["epsilon"]]})


NO_NOISE = "no noise"


SMALL = 1e-3


def _one_limit(table: Table) -> Finding:
    """How far 𝓛 is above the mean of F at the end, and by how much that changed in the last fifth of the rounds."""
    told, far = [], 0.0
    for (noise,), rows in _with_noise(table).each("noise"):
        last, earlier = rows.at_end(), rows.rows(rows["round"] <= 0.8 * rows["round"].max()).at_end()
        end = float(np.mean(last["value"]))
        above, changed = float(np.mean(last["added"])) / end, abs(end - float(np.mean(earlier["value"]))) / end
        told.append(f"{noise}: {above:.1g} above {end:.4g}, which changed by {changed:.1g}")
        far = max(far, above, changed)
    return Finding("; ".join(told) + " (shares of it)", far < SMALL)


def _stands_still(table: Table) -> Finding:
    last = {name: means(table.at_end(), name, "epsilon") for name in ("moved", "distance")}
    moves = ", ".join(f"{one.value:.1g}" for one in last["moved"].values())
    away = ", ".join(f"{one.value:.2g}" for one in last["distance"].values())
    still = max(one.value for one in last["moved"].values()) < 1e-6
    return Finding(f"squares {moves} at the end, where the model is {away} of |w*| from the optimum", still)


FEDEPM = Experiment(
    "theorems-fedepm",
    "Lemma VI.1 and Theorem VI.1: squares of what moved in a round against the fall of the Lagrangian",
    Sweep(
        bounds.fedepm,
        every(epsilon=(0.0, 0.1, 1.0, 10.0)),
        every(epsilon=(0.0, 1.0)),
        {"rounds": 500, "runs": 200},
        {"rounds": 20, "runs": 10},
    ),
    [
        _theorem(
            "(33): in every round the Lagrangian falls by the squares of what moved, or by more",
            "the fall of the Lagrangian in that round; errors are those of the difference in each run",
            bounded("measured", "bound", of=_with_noise, each=("noise",)),
            robust=True,
        ),
        _theorem(
            "Theorem VI.1 (i): 𝓛 and the mean of F converge to one limit",
            f"one limit; both shares below {SMALL:g} at the end, as we read it",
            _one_limit,
        ),
        _theorem(
            "Theorem VI.1 (ii): models come to rest",
            "limit 0; squares below 1e-6 at the end, as we read it",
            _stands_still,
        ),
    ],
    [
        _panel("epsilon", names={"0": NO_NOISE}),
        Panel("distance", "round", ("epsilon",), log="xy", ylabel="|w − w*| / |w*|", names={"0": NO_NOISE}),
    ],
)


def _stationary(table: Table) -> Finding:
    """w* meets (10) for λ >= λ*, and not below: λ* is the least."""
    misses = {times: one.value for times, one in means(table, "miss", "times").items() if times > 0}
    text = ", ".join(f"{times:g} λ*: {miss:.1g}" for times, miss in misses.items())
    met = all((miss < 1e-9) == (times >= 1) for times, miss in misses.items())
    return Finding(f"it misses (10), as a share of λ*, by: {text}", met)


def _small_problem(table: Table) -> Table:
    """Without the rows about section VII."""
    return table.rows(table["times"] >= 0)


def _at_the_optimum(table: Table) -> Finding:
    found = table.rows(table["times"] >= 1)
    text = "; ".join(
        f"α = {alpha:g}: "
        + ", ".join(f"{times:g} λ*: {one.value:.2g}" for times, one in means(rows, "distance", "times").items())
        for (alpha,), rows in _small_problem(table).each("alpha")
    )
    return Finding(f"distance, as a share of |w*|: {text}", bool(found["distance"].max() < SMALL))


def _meets_11(table: Table) -> Finding:
    found = [(m, rows["lam"][0], rows["star"]) for (m,), rows in table.rows(table["m"] > 0).each("m")]
    text = "; ".join(f"m = {m:g}: λ = {lam:.1g}, λ* from {min(star):.1g} to {max(star):.1g}" for m, lam, star in found)
    return Finding(text, all(lam >= max(star) for _, lam, star in found))


_SMALL_PROBLEM = Sweep(
    bounds_penalty.exact,
    every(times=(0.0, 0.5, 1.0, 2.0), alpha=(1.0, bounds.ALPHA)),
    every(times=(0.5, 1.0), alpha=(1.0,)),
    {"rounds": 500},
    {"rounds": 20},
)
_ADULT = Sweep(
    bounds_penalty.section_vii,
    every(m=(50, 100), share=(0.5,)),
    every(m=(50,), share=(0.5,)),
    {"partitions": 10},
    {"partitions": 2},
)
FEDEPM_PENALTY = Experiment(
    "theorems-fedepm-penalty",
    "Theorem III.1: the exact penalty, and where FedEPM ends with it",
    lambda quick: [*_SMALL_PROBLEM(quick), *_ADULT(quick)],
    [
        _theorem(
            "Theorem III.1: the optimum of (6) is a stationary point of (7) for λ >= λ*",
            "it meets (10) for λ >= λ*; with half of λ* it must not, or λ* says nothing",
            _stationary,
            robust=True,
        ),
        Claim(
            "with λ >= λ* FedEPM ends at the optimum",
            f"0; below {SMALL:g}, as we read it",
            _at_the_optimum,
            kind="ours",
        ),
        Claim("section VII meets (11)", "λ >= λ*", _meets_11, kind="ours"),
    ],
    [Panel("distance", "times", ("alpha",), xlabel="λ/λ*", ylabel="|w − w*| / |w*|", of=_small_problem)],
)

# --------------------------------------------------------------------------------------------------------- ADMM sharing

_PARALLEL = (
    "Lemma 3 has the wrong sign and Lemma 4 drops ρ/2, so Assumption 1 does not make parallel updates converge: with "
    "equal columns they diverge for L/ρ > 2/(3M − 4), here 1/4: with ρ = 5, where L/ρ is 1/5, they converge (its row)"
)


def _vanishes(case: str) -> Rule:
    """V is nothing at the end: it has the distance from the constraint in it, and how far from stationary all are."""

    def measure(table: Table) -> Finding:
        at_end = float(table.where(case=case).at_end()["last"][0])
        return Finding(f"{at_end:.1g} at round {table['round'].max():g}", at_end < 1e-6)

    return measure


SHARING = Experiment(
    "theorems-admm-sharing",
    "Theorems 1 and 2: the least Lyapunov value so far against C (L¹ − f)/T",
    Sweep(bounds_sharing.sharing, every(case=bounds_sharing.CASES), sizes={"rounds": 100}),
    [
        *(
            _theorem(
                f"Theorem 1: the limit is feasible and stationary: {case}",
                "V goes to 0; below 1e-6 at the end, as we read it",
                _vanishes(case),
                _PARALLEL,
            )
            for case in bounds_sharing.CASES
        ),
        *(
            _holds(f"Theorem 2: V falls as 1/T: {case}", "C (L¹ − f)/T, (48)", _PARALLEL, "four" not in case, case=case)
            for case in bounds_sharing.CASES
        ),
    ],
    [_panel("case")],
)

"""FedSPD-DP (Li et al. 2022), Figure 5: against DP-SGD, DP-FedAvg and DP-ADMM, and the reasons it gives.

Of its rivals the paper says: DP-SGD and DP-ADMM have the same clients in every round; DP-SGD clips gradients at the
median of their norms; DP-ADMM takes one subgradient step. All else is our reading:

* The median is that of the gradients at x = 0, where training starts; DP-SGD's step is 0.1.
* DP-ADMM has rho = 20, c_w = 1 and the step sizes of its Theorem 3.

DP-FedAvg is that of Li, Chang and Chi (2020), "Secure federated averaging algorithm with differential privacy", and
not the method of McMahan et al. that has the same name. FedSPD-DP's paper says of it: several local steps of SGD, some
of the clients a round, O(1/TQ) for strongly convex and smooth functions, mini-batches amplify its privacy, parameters
as there. `SecureFedAvg` is FedAvg with that; again, all else is our reading:

* A client takes Q steps from the model it was sent, w_i ← w_i − η_t g, each with a mini-batch of b records, and uploads
  w_i + N(0, σ²), σ = 2 Q η_t G √(2 ln(1.25/δ))/ε: a record can change each of its Q gradients by 2G (over m, for the
  mean of m records), so the model by 2 Q η_t G. The server takes the mean of the K uploads.
* η_t = 0.1/t: a rate of O(1/TQ) needs steps that fall as 1/t. It is also run with 0.1/√t, which go farther.
* The paper's l1 norm is not smooth: the server applies its prox, with the steps of the round added up.

Rivals' noise is run in three readings: divided by m, for the change of a mean over m records, as their own papers have
it; divided by b, for a batch of b records; and not divided, as FedSPD-DP's Lemma 2 does not divide. Which one the
authors used is not printed. DP-SGD uses all rows where
its noise is over m, and batches elsewhere. DP-ADMM's larger noise is made by a larger G, which its step sizes have too.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import ClassVar

import numpy as np

import sottovoce as sv
from sottovoce.algorithms import DPSGD, FedAvg
from sottovoce.algorithms.fedavg import Down, Up
from sottovoce.algorithms.published import gaussian_noise, gradient_change
from sottovoce.core.check import Positive, Whole
from sottovoce.core.contract import Method, Mode, Nothing, Site
from sottovoce.core.participation import KOfN
from sottovoce.core.plain import Json
from sottovoce.reproduce.experiment import Claim, Columns, Experiment, Finding, Panel, Sweep, Table, Value, every
from sottovoce.reproduce.fedspd_dp import (
    ACCURACY,
    BATCH,
    BOTH,
    BOUND,
    CHOSEN,
    DELTA,
    FITTED,
    FULL,
    GOAL,
    LITERAL,
    QUICK,
    SIZE,
    data,
    fedspd,
)
from sottovoce.reproduce.groups import means
from sottovoce.reproduce.trials import trained
from sottovoce.reproduce.verdicts import Rule, highest, rises

OURS, SGD, ADMM = "FedSPD-DP", "DP-SGD", "DP-ADMM"
AVERAGING = {"DP-FedAvg": 1.0, "DP-FedAvg, steps as 1/√t": 0.5}  # steps fall with this power of the round
FIRST = "DP-FedAvg"  # the other is a second reading of ours
BY_M, BY_B, UNDIVIDED = (f"rivals' noise {how}" for how in ("divided by m", "divided by b", "not divided"))
TIMES = {BY_M: 1.0, BY_B: SIZE / BATCH, UNDIVIDED: float(SIZE)}  # as multiples of that for a mean over m records
ITS_OWN = "its own noise"  # FedSPD-DP's (20): one for all readings of the rivals'
ONE_STEP, FREE_ADMM, UNCLIPPED = f"{OURS}, Q = 1", f"{ADMM}, no l1", f"{SGD}, not clipped"
STEP, SOME, MUCH = 0.1, 20, 0.02


@dataclass(frozen=True)
class SecureFedAvg(FedAvg):
    """FedAvg with shrinking steps and Gaussian noise on the local model: see the top of this file."""

    step: float = STEP
    local_steps: Whole = 5
    power: Positive = 1.0

    name: ClassVar[str] = "secure-fedavg"
    modes: ClassVar[frozenset[Mode]] = frozenset({"none", "published"})

    def client(self, state: Nothing, down: Down, site: Site) -> tuple[Nothing, Up]:
        w, step = down.w, self.step / site.k**self.power
        for _ in range(self.local_steps):
            w = w - step * self.slope(w, down.w, site)
        noise = gaussian_noise(self.local_steps * step * gradient_change(site), site)
        return state, Up(site.release(w, noise, centre=down.w))

    def length(self, k: int) -> float:
        return self.step * self.local_steps / k**self.power


def median_norm(X: np.ndarray) -> float:
    """Of the gradients of softmax with two classes at 0, where both have probability 1/2."""
    return float(np.median(np.linalg.norm(X, axis=1))) / sqrt(2)


def against(method: str, epsilon: float, reading: str, noise: str, rounds: int, trials: int) -> Columns:
    """Trials of one method at eps a round: 20 of the clients a round, or the same 20 in every round."""
    times, published = TIMES.get(noise, 1.0), sv.Published(epsilon, DELTA, assume=BOUND)
    admm, clip = replace(published, assume=BOUND * times), median_norm(data(reading)[0].X)
    clipped = sv.Published(epsilon, DELTA, clip=clip, assume=clip * times)
    gradient = DPSGD(step=STEP, batch=0 if noise == BY_M else BATCH)
    runs: dict[str, tuple[Method, sv.Published, bool]] = {  # with what noise, and whether clients take turns
        OURS: (fedspd(SOME, 5), published, True),
        ONE_STEP: (fedspd(SOME, 1), published, True),
        SGD: (gradient, clipped, False),
        UNCLIPPED: (gradient, replace(clipped, clip=None), False),
        **{name: (SecureFedAvg(batch=BATCH, power=power), admm, True) for name, power in AVERAGING.items()},
        ADMM: (sv.DPADMM(rho=20.0, c_w=1.0, theorem=3), admm, False),
        FREE_ADMM: (sv.DPADMM(rho=20.0, c_w=1.0, theorem=3), admm, False),
    }
    algorithm, privacy, turns = runs[method]
    rows = data(reading) if turns else data(reading, SOME)
    goal = replace(GOAL, penalty=sv.NoPenalty()) if method == FREE_ADMM else GOAL
    options: Json = {"participation": KOfN(SOME) if turns else sv.Everyone(), "columns": (ACCURACY,)}
    return trained(algorithm, goal, privacy, rounds, trials, data=rows, at_once=4, **options)


RIVALS = (SGD, *AVERAGING, ADMM)
METHODS = (OURS, *RIVALS)
CASES = [(reading, noise) for reading in BOTH for noise in TIMES]
EPSILONS = (0.1, 1.0)
FOR_ONE_STEP = "; without Q and Q − 1 there, as the paper prints (19), (20) and (29) for Q = 1, and (35) likewise"


def _settings(readings: Sequence[str], noises: Iterable[str], epsilons: Sequence[float]) -> list[dict[str, Value]]:
    """FedSPD-DP once in each reading of the data, its rivals with each noise."""
    ours: Json = {"reading": readings, "noise": (ITS_OWN,), "epsilon": epsilons}
    return every(**ours, method=(OURS,)) + every(**ours | {"noise": noises}, method=RIVALS)


_REASONS = [
    *every(reading=(LITERAL,), noise=(ITS_OWN,), epsilon=EPSILONS, method=(ONE_STEP,)),
    *every(reading=(LITERAL,), noise=(UNDIVIDED,), epsilon=EPSILONS, method=(FREE_ADMM, UNCLIPPED)),
]


def _much_worse(where: Json) -> Rule:
    """Clearly less accurate at the smaller eps, and by `MUCH` at least."""
    rule = rises(ACCURACY, "epsilon", where=where)

    def measure(table: Table) -> Finding:
        ends, found = means(table.where(**where).at_end(), ACCURACY, "epsilon"), rule(table)
        if ends[max(ends)].value - ends[min(ends)].value >= MUCH or found.same is None:
            return found
        return Finding(", ".join(f"{epsilon:g}: {ends[epsilon]}" for epsilon in sorted(ends)), same=False)

    return measure


def _best(reading: str, noise: str) -> list[Claim]:
    where = {"reading": reading, "noise": [noise, ITS_OWN]}
    return [
        *(
            Claim(
                f"FedSPD-DP is the most accurate at eps = {epsilon:g} a round ({reading}; {noise})",
                "FedSPD-DP highest",
                highest(ACCURACY, "method", OURS, where={**where, "epsilon": epsilon, "method": METHODS}),
                kind=CHOSEN,
            )
            for epsilon in EPSILONS
        ),
        *(
            Claim(
                f"{name} is much worse when eps is small ({reading}; {noise})",
                f"accuracy falls from eps = 1 to 0.1, considerably; by {MUCH:g} at least, as we read it",
                _much_worse({**where, "method": name}),
                kind=CHOSEN if name == FIRST else "ours",
            )
            for name in AVERAGING
        ),
    ]


def _reason(says: str, better: str, worse: str, note: str = "") -> Claim:
    """Tested where FedSPD-DP wins."""
    where = {"reading": LITERAL, "noise": [UNDIVIDED, ITS_OWN], "method": [better, worse]}
    rule = highest(ACCURACY, "method", better, where=where, each=("epsilon",))
    return Claim(says, f"{better} above {worse}{note}", rule, kind=CHOSEN)


FIGURE_5 = Experiment(
    "fedspd-dp-figure-5",
    "Figure 5: against DP-SGD, DP-FedAvg and DP-ADMM at eps = 0.1 and 1 a round",
    Sweep(
        against, _settings(BOTH, TIMES, EPSILONS) + _REASONS, _settings((FITTED,), (UNDIVIDED,), (1.0,)), FULL, QUICK
    ),
    [
        *(claim for case in CASES for claim in _best(*case)),
        _reason("reason: several local steps in a round", OURS, ONE_STEP, FOR_ONE_STEP),
        _reason("reason: DP-ADMM's subgradients of the l1 norm lose to a prox", FREE_ADMM, ADMM),
        _reason("reason: DP-SGD loses by clipping", UNCLIPPED, SGD),
    ],
    [
        Panel(
            ACCURACY,
            lines=("method",),
            where={"epsilon": epsilon, "reading": reading, "noise": [noise, ITS_OWN], "method": METHODS},
            title=f"ε = {epsilon:g} a round; {reading};\n{noise}",
            ylabel="test accuracy",
        )
        for epsilon in EPSILONS
        for reading, noise in CASES
    ],
)
EXPERIMENTS = (FIGURE_5,)

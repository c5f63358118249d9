"""What each paper says its own noise promises, and what that promise is worth.

One class per method: the statement, its assumptions, whom it is meant to protect against, and our verdict. A verdict is
"sound" only where a proof stands behind it, and then only under the assumptions listed with it. Every number in a
`because` is recomputed by `tests/privacy/test_claims.py`. The formulas are in `privacy/paper_noise.py`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from sottovoce.core import check
from sottovoce.privacy import paper_noise
from sottovoce.privacy.accounting.gaussian import gaussian_epsilon

Verdict = Literal["sound", "unsound", "not checkable"]
_VERDICTS: dict[Verdict, str] = {
    "sound": "sound for epsilon <= 1 per round, under the assumptions below.",
    "unsound": "UNSOUND: no guarantee.",
    "not checkable": "not checkable: no guarantee.",
}
_HUANG = "Huang, Hu, Guo, Chan-Tin, Gong: DP-ADMM: ADMM-based Distributed Learning with Differential Privacy"
_EVERY_MESSAGE = "an eavesdropper on every message, and the honest-but-curious server"
_CLIPPED = "the gradient of one record is bounded by c1 everywhere it is asked for: enforced by clipping, not hoped for"
_START = "initial values, c1 and every hyper-parameter are chosen without looking at private data"
_STANDARD_DEVIATION = "the noise has independent entries of standard deviation sigma"


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


class PaperClaim:
    """One paper's promise and what it is worth.

    The verdict "sound" also says that a run, under `assumptions`, is exactly the Gaussian mechanism of the noise that
    `gaussian_factor` sets, once a round.
    """

    method: ClassVar[str]
    paper: ClassVar[str]
    statement: ClassVar[str]
    assumptions: ClassVar[tuple[str, ...]]
    observer: ClassVar[str]
    verdict: ClassVar[Verdict]
    because: ClassVar[str]
    instead: ClassVar[str]
    without_total: ClassVar[str] = "The paper states no total for a whole run."
    span: ClassVar[str] = "per round"
    pure: ClassVar[bool] = False

    def total(self, asked: Asked) -> tuple[float, float] | None:
        """The paper's own (epsilon, delta) for a whole run; None where it states none."""
        return None

    def describe(self, asked: Asked, unmet: Sequence[str] = ()) -> str:
        """The claim in numbers, what it is worth, and what to use instead. See `claims.describe`."""
        epsilon, delta, rounds, total = asked.epsilon, asked.delta, asked.rounds, self.total(asked)
        lines = [
            f"Published noise of {self.method}. {self.paper}.",
            f"Paper's claim: ({epsilon:g}, {0 if self.pure else delta:g}) {self.span}. {self.statement}",
            f"Meant to protect against: {self.observer}.",
            f"Paper's total for {rounds} rounds: ({total[0]:.4g}, {total[1]:.4g})." if total else self.without_total,
            f"Verdict: {_VERDICTS['unsound'] if unmet else _VERDICTS[self.verdict]} {self.because}",
            *([f"This run breaks what the claim assumes: {'; '.join(unmet)}."] if unmet else []),
            f"Assumes: {'; '.join(self.assumptions)}.",
            *(self._exact_total(asked, total) if self.verdict == "sound" and not unmet else []),
            f"Use instead: {self.instead}",
        ]
        return "\n".join(lines)

    @staticmethod
    def _exact_total(asked: Asked, total: tuple[float, float] | None) -> list[str]:
        """What the whole run costs exactly, if its assumptions hold."""
        mu = paper_noise.dp_admm_exact_mu(asked.rounds, asked.epsilon, asked.delta)
        exact = gaussian_epsilon(mu, asked.delta) if mu > 0 else 0.0
        printed = f"{math.ceil(exact * 1e3) / 1e3:.3f}".rstrip("0").rstrip(".")  # up: print must not make it better
        lines = [f"Exact for {asked.rounds} rounds, if all of that holds: ({printed}, {asked.delta:g})."]
        if asked.epsilon > 1:  # the classical Gaussian mechanism is no theorem there, and false from about 8 on
            lines.append(
                f"But epsilon = {asked.epsilon:g} > 1 per round is outside the theorem: only the exact total counts."
            )
        if total and exact > total[0]:
            lines.append("The paper's total is too small here: only the exact total counts.")
        return lines


class DPADMM(PaperClaim):
    """Theorems 1 and 2."""

    method = "dp-admm"
    paper = _HUANG
    statement = (
        "Theorem 1: with noise (14) every iteration is (epsilon, delta)-DP, for epsilon <= 1. "
        "Theorem 2: t iterations are (c0 sqrt(t) epsilon, delta)-DP for some constant c0 (here: the one of (56))."
    )
    assumptions = (_CLIPPED, _STANDARD_DEVIATION, _START)
    observer = _EVERY_MESSAGE
    verdict = "sound"
    because = (
        "All state is a function of the noisy releases, so the iterations compose. But c0 is no constant: "
        "for t = 10000, epsilon = 1, delta = 1e-5, (56) gives 99 and the exact value is 300. And drawn as the "
        "printed matrix normal (entries of standard deviation sigma^2) the noise of the paper's l2 experiment "
        "gives 10.5 where sigma gives 1.45."
    )
    instead = "Proven: the same algorithm with clipped gradients, its noise set by exact composition."

    def total(self, asked: Asked) -> tuple[float, float]:
        return paper_noise.moments_total_as_printed(asked.rounds, asked.epsilon, asked.delta), asked.delta


class PVP(PaperClaim):
    """Primal variable perturbation, section III-A."""

    method = "pvp"
    paper = f"{_HUANG} (Algorithm 2, after Zhang and Zhu)"
    statement = (
        "Section III-A and (47): the minimiser moves by at most 2 c1/(m (rho + lambda/n)), so Gaussian "
        "noise of that scale makes every iteration (epsilon, delta)-DP."
    )
    assumptions = (
        "every iteration releases the exact minimiser; one with gradient norm <= tol needs a sensitivity "
        "larger by 2 tol/(rho + lambda/n)",
        "the gradient of one record is bounded by c1 everywhere (bounded rows and loss slope; clipping "
        "inside a solver does not give this)",
        "the regulariser is 1-strongly convex (otherwise rho alone must stand for rho + lambda/n)",
        "nothing outside shows when the solver stopped",
        _STANDARD_DEVIATION,
        _START,
    )
    observer = _EVERY_MESSAGE
    verdict = "sound"
    because = (
        "The local objective is (rho + lambda/n)-strongly convex and all state is built from the noisy "
        "releases, so the bound holds and composes, for exact minimisers only. The printed sigma has its square "
        "root over too much; the corrected one is used here."
    )
    instead = "Proven dp-admm; or this method with a certified solver, composed over the run."


class DVP(PaperClaim):
    """Dual variable perturbation, which the paper only cites."""

    method = "dvp"
    paper = f"{_HUANG} (a baseline there, cited from Zhang and Zhu)"
    statement = (
        "Dual variable perturbation is compared at (epsilon, delta) per iteration; neither its noise "
        "nor a theorem is given."
    )
    assumptions = ("not stated",)
    observer = _EVERY_MESSAGE
    verdict = "not checkable"
    because = (
        "There is no claim to check. `dvp_epsilon` is our own bound for one iteration: a linear model, the "
        "exact minimiser, (epsilon, delta) events to be composed. A solver that stops early voids it."
    )
    instead = "Proven dp-admm."


class DPSGD(PaperClaim):
    """Noisy gradient descent over all records."""

    method = "dp-sgd"
    paper = f"Abadi et al.: Deep Learning with Differential Privacy (2016), as run in {_HUANG}"
    statement = (
        "The mean gradient of all records (sampling ratio 1) plus Gaussian noise is (epsilon, delta)-DP "
        "per iteration, for epsilon <= 1; the moments accountant gives the total."
    )
    assumptions = (
        "every record takes part in every step; the bound for mini-batches was not checked",
        _CLIPPED,
        _STANDARD_DEVIATION,
        _START,
    )
    observer = _EVERY_MESSAGE
    verdict = "sound"
    because = (
        "Everything sent is a function of clipped gradients with Gaussian noise, asked at points that "
        "depend on earlier answers only: the Gaussian mechanism, composed."
    )
    instead = "Proven: the same, its noise set by exact composition, mini-batches included."

    def total(self, asked: Asked) -> tuple[float, float]:
        return paper_noise.moments_total(asked.rounds, asked.epsilon, asked.delta), asked.delta


class FedSPDDP(PaperClaim):
    """Lemma 2 and Theorem 1."""

    method = "fedspd-dp"
    paper = "Li, Wang, Chang, Chi: Federated Stochastic Primal-dual Learning with Differential Privacy"
    statement = (
        "Lemma 2 and (20): every round is (epsilon, delta)-DP. Theorem 1: T rounds are c0 q epsilon "
        "sqrt(p T/(1 - q)), c0 = 3.04, with clients sampled at rate p and records at rate q (22)."
    )
    assumptions = (
        "convex differentiable losses, bounded domain and multipliers, gradients bounded by G",
        "records are sampled in secret, and which clients take part is averaged over, as if hidden",
    )
    observer = _EVERY_MESSAGE + ", even if they collect all intermediate results"
    verdict = "unsound"
    because = (
        "The Q local steps are counted as if their effects did not add up, and the un-noised x and lambda "
        "are carried from round to round. Claimed 1 for one round, exact 7.1 (Q = 20, linear loss, b = m = 1). "
        "With the paper's constants and b = 10, claimed 1 for every upload: the 100th alone is exact 39.5, all "
        "100 together 527 where the claimed rounds compose to 12.5. The server knows who takes part, so p "
        "protects nobody from it."
    )
    instead = "Proven: clipped noisy gradients in every local step; all that follows is post-processing."
    without_total = "Its total (21) needs a sampling rate of the records below 1; none was given."

    def total(self, asked: Asked) -> tuple[float, float] | None:
        if asked.data_rate is None or asked.data_rate >= 1:
            return None
        return paper_noise.fedspd_total(asked.epsilon, asked.rounds, asked.data_rate, asked.client_rate), asked.delta


class FedPLT(PaperClaim):
    """Proposition 4 and Lemma 5."""

    method = "fed-plt"
    paper = "Bastianello, Liu, Johansson: Enhancing Privacy in Federated Learning through Local Training"
    statement = (
        "Proposition 4 and Lemma 5: with noisy gradient descent as local solver the whole run is "
        "(epsilon, delta)-DP, with an epsilon that stays bounded however many rounds are run."
    )
    assumptions = (
        "strongly convex smooth costs, step < 2/(smoothness + 1/rho) (Assumption 1)",
        "one record changes a local gradient by at most L/q, by clipping if need be (Assumption 3)",
        "x_{i,0} is drawn from N(0, 2 tau^2/strong I)",
    )
    observer = "not named (the proof bounds the final local models only; the coordinator sees every z_i)"
    verdict = "unsound"
    because = (
        "The proof is that of the last iterate of one noisy chain. Claimed 1 for all K: the messages of "
        "1000 rounds are exact 5.3; the last message alone is 2.9 at rho = 100, a constant the bound does not "
        "know. With the clipping the paper recommends the cost is no longer strongly convex, and the final model "
        "alone is 12.7 after 400 rounds. Unclipped and with only the final models seen, it is unproven."
    )
    instead = "Proven: clipped noisy gradients, all local steps of all rounds composed."
    span = "for the whole run, however long"

    def total(self, asked: Asked) -> tuple[float, float]:
        return asked.epsilon, asked.delta


class FedEPM(PaperClaim):
    """Theorem V.1."""

    method = "fedepm"
    paper = "Zhou, Li: Exact Penalty Method for Federated Learning"
    statement = (
        "Theorem V.1: with Laplace noise (27) every upload is epsilon-DP (delta = 0). The experiments "
        "use (39), twice the norm of the gradient, for the sensitivity."
    )
    assumptions = ("the sensitivity (26) is taken over the neighbours of the data at hand",)
    observer = "not named (the server, who sees one upload z_i after the other)"
    verdict = "unsound"
    because = (
        "One record enters all k0 local steps and w_i is never reset to what was released. Claimed 0.1 "
        "with the paper's constants and k0 = 12: the first upload is exact 1.2, the tenth 12.6. Scale (39) is 0 "
        "for a zero gradient: epsilon is infinite. The scale itself depends on the data; nothing is composed."
    )
    instead = "Proven: one clipped noisy gradient per round; the k0 steps and the upload are post-processing."
    pure = True
    without_total = "The paper states no total; even if its rounds were private, their epsilons would add up."


class ADMMSharing(PaperClaim):
    """Lemma 1, Theorem 3 and Corollary 1."""

    method = "admm-sharing"
    paper = "Learning Privately over Distributed Features: An ADMM Sharing Approach"
    statement = (
        "Lemma 1 and Theorem 3: noise N(0, sigma^2 (D'D)^-1) on x_m makes every iteration (epsilon, "
        "delta)-DP for one feature column. Corollary 1, (17): advanced composition (here with delta' = delta)."
    )
    assumptions = (
        "norms of x, y, z bounded by b1, second derivative of the regulariser by c1, rows of norm 1 (Assumption 2)",
        "epsilon <= 1",
    )
    observer = "not named (the parties and the server who receive D_m x_m)"
    verdict = "unsound"
    because = (
        "D_m times the noise stays in the column space of D_m, so neighbours with different column spaces "
        "are told apart by one release with certainty: delta = 1 for every epsilon. Lemma 1 fails too: with "
        "isotropic noise of its size, claimed 1, exact 6.1 for 57 columns and 1270 for 2000. And the broadcast y "
        "shows every label."
    )
    instead = (
        "Proven: D_m x_m clipped as one vector, isotropic noise, composed over the run. Labels are not "
        "covered: randomise them first if they are private."
    )

    def total(self, asked: Asked) -> tuple[float, float]:
        return paper_noise.sharing_total(asked.rounds, asked.epsilon, asked.delta, asked.delta)


CLAIMS: dict[str, PaperClaim] = {
    claim.method: claim for claim in (DPADMM(), PVP(), DVP(), DPSGD(), FedSPDDP(), FedPLT(), FedEPM(), ADMMSharing())
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

    A method without a recorded claim is not refused: its run is over, and the text must say that nothing protects it.
    `unmet` are assumptions of the claim that this run is known to break: then the verdict is "no guarantee".
    """
    asked = Asked(epsilon, delta, rounds, data_rate, client_rate)
    claim = CLAIMS.get(method)
    if claim is None:
        return f"{method}: no privacy claim is recorded for its published noise. Treat the run as not private."
    return claim.describe(asked, unmet)

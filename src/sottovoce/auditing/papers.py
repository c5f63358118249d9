"""One table: every claim of the papers and every proven variant, audited by this library's own algorithm files."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np

from sottovoce.algorithms import ALGORITHMS, DPADMM, DPSGD, PVP, ADMMSharing, FedEPM, FedPLT, FedSPDDP
from sottovoce.auditing.audit import audit
from sottovoce.auditing.finding import Comparison, Finding, shown
from sottovoce.auditing.game import Game, Promise, columns_promise, worst_case
from sottovoce.auditing.neighbours import FAR, Linear, Neighbours, canary, columns
from sottovoce.auditing.products import audit_products
from sottovoce.core.contract import Method, Noise, Site
from sottovoce.core.plain import Json, Progress, silent
from sottovoce.privacy import paper_noise
from sottovoce.privacy.accounting import gaussian_epsilon
from sottovoce.privacy.modes import Proven, ProvenColumns, Published
from sottovoce.problems.federation import Federation
from sottovoce.problems.losses import Logistic
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import L2, NoPenalty


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    method: str
    claim: str
    claimed: float
    found: float  # a lower bound on epsilon
    how: str  # as `Finding.statistic`
    runs: int
    seconds: float

    @property
    def refuted(self) -> bool:
        return Comparison(self.claim, self.claimed, 0.0, self.found).refuted

    @property
    def verdict(self) -> str:
        return "refuted" if self.refuted else "not refuted"

    @property
    def shown(self) -> str:
        return ("= " if self.how == "exact" else "≥ ") + shown(self.found)

    def to_dict(self) -> Json:
        epsilon = self.found if math.isfinite(self.found) else "infinite"
        return asdict(self) | {"found": epsilon, "verdict": self.verdict}


@dataclass(frozen=True)
class MatrixNormalDPADMM(DPADMM):
    """DP-ADMM with its noise as printed: the entries of MN(0, σ²I, σ²I) have standard deviation σ², not σ."""

    def noise(self, site: Site) -> Noise:
        noise = super().noise(site)
        return replace(noise, scale=noise.scale**2)


# --------------------------------------------------------------------------------------------- what the papers claim

PLAIN = Objective(Linear(), NoPenalty())


WHOLE, UPLOAD = 0, -1  # which comparison of a finding a claim is about: all rounds together, or a single upload


def paper_claims() -> Iterator[tuple[Game, dict[int, str]]]:
    """Games, each with what is claimed about it: of the whole run, or of one upload."""
    paper, one_record = Published(1.0, 1e-4), canary(1, 1, 1)
    # FedSPD-DP: twenty local steps on one record, linear loss.
    method = FedSPDDP(rho=20.0, gamma=350.0, local_steps=20)
    yield Game(method, one_record, PLAIN, paper, 1), {UPLOAD: "Lemma 2: one round, Q = 20, one record"}
    # The paper's constants (26) with 162 coordinates and batches of ten, each of which holds the record.
    game = Game(FedSPDDP(rho=20.0), canary(1, 10, 162), PLAIN, paper, 100)
    yield game, {UPLOAD: "(20): the 100th upload, given those before; b = 10"}
    composed = (paper_noise.moments_total(100, 1.0, 1e-4), 1e-4)
    yield replace(game, claim=composed), {WHOLE: "(20) for 100 rounds, composed; b = 10"}
    # Theorem 1 with everything as in the paper: T = 100, Q = 5, b = 10 of m = 326, p = 1, total (1, 1e-4).
    method, rounds, records = FedSPDDP(rho=20.0, batch=10), 100, 326
    paper = Published(method.epsilon_of_round(1.0, rounds, [records]), 1e-4)
    game = Game(method, canary(1, records, 162), PLAIN, paper, rounds)
    yield game, {WHOLE: "Theorem 1: T = 100, p = 1, b = 10 of 326, secret"}
    # FedEPM, Theorem V.1 with the constants of section VII: the first upload of one record.
    method = FedEPM.as_in_paper(50, 0.5, noise=27, c=0.0)
    yield Game(method, one_record, PLAIN, Published(0.1), 1), {UPLOAD: "Theorem V.1: first upload, k0 = 12"}
    # FedEPM, (39): a gradient of zero gets no noise. Two opposite records against two equal ones.
    first, second = (Federation.from_clients([(np.ones((2, 1)), [FAR, y])], row_bound=1.0) for y in (-FAR, FAR))
    pair = Neighbours(first, second, 0, np.ones(1), "two opposite records, or two equal ones")
    game = Game(FedEPM.as_in_paper(50, 0.5), pair, PLAIN, Published(0.1), 1)
    yield game, {UPLOAD: "(39): first upload, gradients that cancel"}
    # Fed-PLT, Proposition 4: moduli 0.5 and 0.75, ten local steps, clip norm 1. One record: shift and noise are both
    # proportional to 1/q, so q = 20 gives the same number.
    method, paper = FedPLT(rho=0.3, strong=0.5, smooth=0.75, horizon=1000), Published(1.0, 1e-5, clip=1.0)
    game = Game(method, one_record, Objective(Linear(), L2(0.5)), paper, 1000)
    yield game, {WHOLE: "Proposition 4: all messages of K = 1000 rounds"}
    # ADMM sharing, Theorem 3. The noise of a message lies in the column space, which one entry of one column changes.
    logistic, paper = Objective(Logistic(), L2(1.0)), Published(1.0, 1e-5)
    game = Game(ADMMSharing(), columns(), logistic, paper, 1, claim=(1.0, 1e-5))
    yield game, {WHOLE: "Theorem 3: one message of one party"}
    yield from _dp_admm_claims()
    goal = Objective(Linear(), L2(0.1))
    yield Game(PVP(), canary(1, 10, 1), goal, paper, 10), {UPLOAD: "noise on exact arg-mins: worst of 10 uploads"}
    yield Game(DPSGD(), canary(1, 10, 5), goal, paper, 20), {WHOLE: "noise on full gradients: 20 rounds"}


def _dp_admm_claims() -> Iterator[tuple[Game, dict[int, str]]]:
    """Section VI-B: 100 rounds at (0.2, 1e-3) each, 400 records, 104 features, as corrected and as printed."""
    privacy, rounds, goal = Published(0.2, 1e-3), 100, Objective(Linear(bend=0.25), L2(1e-6))
    corrected = Game(DPADMM(rho=0.1, c_w=89.0), canary(1, 400, 104), goal, privacy, rounds)
    whole = "Theorem 2, (56): 100 rounds, noise of deviation σ"
    upload = "Theorem 1: the worst of 100 uploads, deviation σ"
    yield corrected, {WHOLE: whole, UPLOAD: upload}
    meant = gaussian_epsilon(paper_noise.dp_admm_exact_mu(rounds, privacy.epsilon, privacy.delta), privacy.delta)
    claim = (math.ceil(meant * 100) / 100, privacy.delta)  # what deviation σ gives
    printed = replace(corrected, algorithm=MatrixNormalDPADMM(rho=0.1, c_w=89.0), claim=claim)
    yield printed, {WHOLE: "as printed, a matrix normal: deviation σ²"}


# --------------------------------------------------------------------------------------------------- what is proven

PROVEN = Proven(1.0, 1e-5, 1.0)


def proven_variants() -> Iterator[tuple[str, Method, Promise]]:
    """Every method that has a proven mode, then the other variants, units, relations and mechanisms."""
    for name, method in ALGORITHMS.items():
        if "proven" in method.modes and method.layout == "rows":
            yield name, method(), PROVEN
    yield "fedspd-dp, variant P", FedSPDDP(gamma=2.0, local_steps=3, variant="P"), PROVEN
    yield "fedepm, variant P", FedEPM(variant="P", lam=0.0), PROVEN
    yield "fed-plt, variant B", FedPLT(variant="B", local_steps=5), PROVEN
    yield "fedepm, Laplace", FedEPM(), replace(PROVEN, delta=0.0, mechanism="laplace")
    yield "dp-sgd, add-remove", DPSGD(), replace(PROVEN, relation="add-remove")
    yield "dp-sgd, whole client", DPSGD(), replace(PROVEN, unit="client")
    yield "dp-sgd, secret batches", DPSGD(batch=2), replace(PROVEN, relation="add-remove")
    yield "dp-sgd, secret batches", DPSGD(batch=2), PROVEN
    for unit in ("party", "column", "record"):
        yield f"admm-sharing, {unit}", ADMMSharing(), columns_promise(1.0, 1e-5, unit)
    clipped = replace(columns_promise(1.0, 1e-5, "party"), variant="clip", model_bound=1.0)
    yield "admm-sharing, clipped", ADMMSharing(), clipped


def proven_game(method: Method, privacy: Promise, rounds: int = 10) -> Game:
    """The game on the worst-case canary for this promise."""
    return worst_case(method, privacy, rounds, 1 if "argmin" in method.asks().kinds else 2, 5, 2)


# ---------------------------------------------------------------------------------------------------------- the table


def rows(runs: int = 20_000, progress: Progress = silent) -> Iterator[Row]:
    """Every row, one after the other."""
    for game, claims in paper_claims():
        finding = audit(game, runs, progress=progress)
        for which, claim in claims.items():
            yield _row(claim, finding, finding.comparisons[which])
    for name, method, privacy in proven_variants():
        relation = f" ({getattr(privacy, 'relation', '')})" if "batches" in name else ""
        finding = audit(proven_game(method, privacy), runs, progress=progress)
        yield replace(_row(f"proven, the whole run{relation}", finding, finding.comparisons[WHOLE]), method=name)
    yield products_of_columns()


def products_of_columns() -> Row:
    """Masked moments: the worst of the coalitions that are covered."""
    finding = audit_products(ProvenColumns(1.0, 1e-5))
    return _row("proven, against the server with one owner", finding, finding.worst)


def _row(claim: str, finding: Finding, one: Comparison) -> Row:
    return Row(finding.method, claim, one.claimed, one.lower, finding.statistic, finding.runs, finding.seconds)

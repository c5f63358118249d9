"""Fed-PLT: Peaceman-Rachford splitting with inexact local training.

Bastianello, Liu and Johansson, "Enhancing Privacy in Federated Learning through Local Training" (2024), Algorithm 1.

    symbol       here                     meaning
    y_k          Down.y, Server.y         the coordinator's model
    x_{i,k}      Client.x                 agent i's model: where its next local training starts
    z_{i,k}      Client.z, Up.z           auxiliary variable; the coordinator keeps everyone's last one
    v_{i,k}      v                        2y − z_i, the centre of the local problem d (9)
    ρ, N_e, γ    rho, local_steps, step   parameters
    λ̲, λ̄         moduli(site)             strong convexity and smoothness of f_i
    h            n · penalty              here the objective is (1/n) Σ f_i + r, so prox_{ρh/N} is the prox of ρ r
    L/q          2·gradient_bound·weight  sensitivity of a gradient (Assumption 3)
    τ            tau(site)                published noise (13)
    χ, ζ, S, σ   `fed_plt_rates.py`       contraction

Departures from the paper
-------------------------
* The model is y, not x_{i,K}: the coordinator has it, and with h ≠ 0 only y takes the values that h enforces (zeros of
  l1, bounds of a box). Rounds are k = 0..K−1.
* The step interval is γ < 2/(λ̄+1/ρ); it is printed with λ̲. In (12) the moduli are those of d, λ̲+1/ρ and λ̄+1/ρ: as
  printed it diverges.
* SGD divides by the batch size, not by q.
* Each agent uses its own moduli (Remark 1), unless common ones are given: `strong`, `smooth`.
* Agents may have different solvers (Remark 1, `PerAgent`), but not different batches: the batch is declared once for
  all (`Asks`), because privacy noise is calibrated from it.
* S has 1/(1+ρλ̲) where the paper has 1/(λ̲+1/ρ): see `fed_plt_rates.py`.
* `Published`: each gradient step adds √(2γ) N(0, τ²I), with τ from Proposition 4 and Lemma 5 for the *whole run*: for
  `horizon` rounds, or in the limit K → ∞. The start is the paper's, x_{i,0} ~ N(0, 2τ²/λ̲ I); z_{i,0} = 0.
* `Proven`: Proposition 4 is not true if the coordinator sees z. Variant "A" adds noise to every gradient and counts
  each of them; it works with any solver. Variant "B" counts only the end of a round, since inner iterates stay hidden:
  it needs less noise, and gradient steps on all records.
"""

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sottovoce import solvers
from sottovoce.algorithms.fed_plt_rates import DoesNotContract, Number, rates
from sottovoce.algorithms.published import needs_paper_variant
from sottovoce.core import check
from sottovoce.core.contract import Algorithm, Array, Arrays, Asks, Descent, Hub, Penalty, Site
from sottovoce.privacy import paper_noise
from sottovoce.problems.penalties import NoPenalty
from sottovoce.solvers import Gradient, Noisy, Solver

LOCAL_STEPS = 10
FOREVER = 10**12  # rounds: the K of Proposition 4's limit


class Server(Arrays):
    y: Array
    z: Array  # the last message of every agent


class Client(Arrays):
    x: Array
    z: Array


class Down(Arrays):
    y: Array


class Up(Arrays):
    z: Array


@dataclass(frozen=True)
class FedPLT(Algorithm[Server, Client, Down, Up]):
    """Algorithm 1.

    Parameters
    ----------
    rho
        Penalty parameter; `fed_plt_rates.best_rho` finds a good one.
    solver
        "gradient", "accelerated" or "stochastic", made from the next three parameters; or a solver object
        (`sottovoce.solvers`), which has its own, e.g. one solver for each agent.
    local_steps, step, batch
        Steps a round, N_e; step size γ (None: 2/(λ̲+λ̄+2/ρ), in `Proven` mode with public bounds on the moduli); records
        drawn for each step (a share of them if < 1; 0: all).
    strong, smooth
        Moduli λ̲, λ̄ that all agents use. None: each uses its own.
    penalty_at
        Who handles the regulariser: the "client" as part of f_i, by its gradient; or the "server" as h, by its prox.
        "auto": the client if it is smooth.
    variant
        What `Proven` counts: "A" every gradient, "B" every round.
    horizon
        Number of rounds K that the `Published` noise is for. 0: any number.
    """

    rho: check.Positive = 1.0
    solver: str | Solver = "gradient"
    local_steps: check.Whole = LOCAL_STEPS
    step: check.Positive | None = None
    batch: check.NonNegative = 0
    strong: check.NonNegative | None = None
    smooth: check.NonNegative | None = None
    penalty_at: Literal["auto", "client", "server"] = "auto"
    variant: Literal["A", "B"] = "A"
    horizon: check.WholeOrZero = 0

    name = "fed-plt"
    summary = "Peaceman-Rachford splitting with inexact local training"
    paper = "Bastianello et al. 2024"
    modes = frozenset({"none", "published", "proven"})
    not_summed = "each client keeps a state that is made of what it released"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.solver, str):
            free = self.step is None and self.batch == 0 and self.local_steps == LOCAL_STEPS
            check.require(free, "FedPLT", "local_steps, step and batch go with a solver's name; an object has its own")
        plain = self.variant == "A" or self.descends
        check.require(plain, "FedPLT", "variant 'B' takes gradient steps on all records", self.local_solver)

    @property
    def local_solver(self) -> Solver:
        return solvers.make(self.solver, self.local_steps, step=self.step, batch=self.batch)

    @property
    def descends(self) -> bool:
        """Whether local training is gradient steps on all records, as many for each agent."""
        solver = self.local_solver
        return type(solver) is Gradient and isinstance(solver.steps, int) and solver.batch == 0

    def asks(self) -> Asks:
        if self.variant == "B":
            return Asks.every_round(kind="descent")
        return Asks.every_round(answers=self.local_solver.answers, batch=self.local_solver.batch)

    def check(self, penalty: Penalty) -> None:
        kind, in_f = type(penalty).__name__, self.split(penalty)[0]
        hint = "Use penalty_at='server', its prox"
        check.require(in_f.smooth, "FedPLT", f"{kind} has no gradient to train with", hint=hint)
        fits = self.variant == "A" or in_f.ridge
        check.require(fits, "FedPLT", f"variant 'B' needs a ridge such as L2, got {kind}", hint=hint)

    def claim_terms(self, sizes: Array, rounds: int) -> dict[str, object]:
        if 0 < self.horizon < rounds:
            return {"unmet": (f"its noise is for {self.horizon} rounds (horizon), and {rounds} were done",)}
        return {}

    def init_server(self, hub: Hub) -> Server:
        return self.averaged(np.repeat(hub.zeros, hub.n, axis=-2), hub)

    def init_client(self, site: Site) -> Client:
        needs_paper_variant("FedPLT", self.variant, "A", site)
        self.warn(site)
        x = site.zeros.copy()
        if site.claim is not None:
            strong, _ = self.moduli(site)
            x = x + self.tau(site) * np.sqrt(2 / strong) * site.rng.normal(site.f.dim)  # Proposition 4
        return Client(x, site.zeros.copy())

    def client(self, state: Client, down: Down, site: Site) -> tuple[Client, Up]:
        x = self.train(state.x, 2 * down.y - state.z, site)  # lines 5-9
        z = site.release(state.z + 2 * (x - down.y), centre=down.y)  # line 10
        return Client(x, z), Up(z)

    def server(self, server: Server, up: Up, hub: Hub) -> Server:
        return self.averaged(hub.fresh(up.z, server.z), hub)

    def averaged(self, z: Array, hub: Hub) -> Server:
        h = self.split(hub.penalty)[1]
        return Server(h.prox(z.mean(axis=-2, keepdims=True), self.rho), z)  # line 2

    def train(self, x: Array, v: Array, site: Site) -> Array:
        """Approximately argmin d(w) = f_i(w) + |w − v|²/(2ρ) (9), from x."""
        r, pull, solver = self.split(site.penalty)[0], 1 / self.rho, self.local_solver
        if self.variant == "B":
            return site.f.descent(x, Descent(solver.answers, self.length(site), pull, v, r.strong))

        def gradient(w: Array) -> Array:
            return site.f.grad(w) + r.subgradient(w) + (w - v) * pull  # ∇d, line 7

        if site.claim is not None:
            gamma = self.length(site)
            solver = Noisy(solver.steps, gamma, noise_std=np.sqrt(2 * gamma) * self.tau(site))  # (13)
        strong, smooth = self.moduli(site)
        return solver.solve(gradient, x, strong + pull, smooth + pull, site.rng, site.who)

    def split(self, penalty: Penalty) -> tuple[Penalty, Penalty]:
        """The regulariser as part of the f_i, and as h: it is one of the two, the other is zero."""
        by_steps = penalty.ridge if self.variant == "B" else penalty.smooth
        at_client = by_steps if self.penalty_at == "auto" else self.penalty_at == "client"
        return (penalty, NoPenalty()) if at_client else (NoPenalty(), penalty)

    def moduli(self, site: Site) -> tuple[Number, Number]:
        """λ̲ and λ̄ of f_i, with the regulariser if it is part of f_i. Those of d are 1/ρ more."""
        r = self.split(site.penalty)[0]
        strong = site.f.strong_convexity() + r.strong if self.strong is None else self.strong
        return strong, site.f.smoothness() + r.curvature if self.smooth is None else self.smooth

    def length(self, site: Site) -> Number:
        """γ of gradient steps."""
        (strong, smooth), pull, solver = self.moduli(site), 1 / self.rho, self.local_solver
        assert isinstance(solver, Gradient)
        return solver.length(solvers.Local(strong + pull, smooth + pull, None, site.who))

    def tau(self, site: Site) -> Number:
        """τ at which Proposition 4 and Lemma 5 promise what was asked for."""
        claim, f, (strong, _) = site.claim, site.f, self.moduli(site)
        assert claim is not None
        rule = f"Proposition 4 is about gradient steps on all records, not {self.local_solver}"
        check.require(self.descends, "FedPLT", rule, error=check.NoGuarantee)
        rule = "Proposition 4 needs strongly convex f_i: add a ridge, L2(...), at the clients"
        check.require(bool(np.all(np.asarray(strong) > 0)), "FedPLT", rule)
        steps = (self.length(site), self.horizon or FOREVER, self.local_solver.answers)
        return paper_noise.fed_plt_tau(claim.epsilon, claim.delta, 2 * f.gradient_bound, 1 / f.weight, strong, *steps)

    def warn(self, site: Site) -> None:
        """Warn if nothing is known to contract with these parameters."""
        strong, smooth = self.moduli(site)
        if not np.isfinite(smooth).all():
            return
        rate = float(rates(self.local_solver, self.rho, strong, smooth, site.who, points=33).max())
        # With little or no strong convexity the factor is about 1 whatever the parameters are: warn of growth only.
        if rate > 1.01:
            message = (
                f"FedPLT: not known to contract (factor {rate:.4g} a round); try more local steps, "
                "solver='accelerated', or rho=fed_plt_rates.best_rho(strong, smooth, solver)"
            )
            warnings.warn(message, DoesNotContract, stacklevel=2)

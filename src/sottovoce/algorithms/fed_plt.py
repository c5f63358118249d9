"""Fed-PLT: Peaceman-Rachford splitting with inexact local training.

Bastianello, Liu and Johansson, "Enhancing Privacy in Federated Learning through Local Training" (2024), Algorithm 1.

    symbol       here                     meaning
    y_k          Down.y, Server.y         the coordinator's model
    x_{i,k}      Client.x                 agent i's model: where its next local training starts
    z_{i,k}      Client.z, Up.z           auxiliary variable; the coordinator keeps everyone's last one
    v_{i,k}      v                        2y − z_i, the centre of the local problem d (9)
    ρ, N_e, γ    rho, local_steps, step   parameters
    λ̲, λ̄         moduli(site)             strong convexity and smoothness of f_i, with the regulariser if it is there
    h            n · penalty              the objective is (1/n) Σ f_i + r here, so prox_{ρh/N} is that of ρ r
    L/q          2·gradient_bound·weight  sensitivity of a gradient (Assumption 3)
    τ            tau(site)                published noise
    χ, ζ, S, σ   `fed_plt_rates.py`       contraction

Departures from the paper
-------------------------
* The model is y, not x_{i,K}: the coordinator has it, and with h ≠ 0 only y takes the values that h asks for (zeros of
  l1, bounds of a box). Rounds are k = 0..K−1.
* The step interval is γ < 2/(λ̄+1/ρ), printed with λ̲. (12) is read with the moduli of d, λ̲+1/ρ and λ̄+1/ρ: as printed
  it diverges.
* SGD divides by the batch size, not by q.
* Each agent uses its own moduli (Remark 1), unless common ones are given: `strong`, `smooth`.
* Agents may have solvers of their own (Remark 1, `PerAgent`), but for the batch: it is declared once for all (`Asks`),
  as privacy noise is calibrated from it. So not one agent on all its records and another on a part of them.
* S has 1/(1+ρλ̲) where the paper has 1/(λ̲+1/ρ): see `fed_plt_rates.py`.
* `Published`: each gradient step adds √(2γ) N(0, τ²I), with τ from Proposition 4 and Lemma 5 for the *whole run*; its
  limit for K → ∞, unless `horizon` tells K. The paper's start x_{i,0} ~ N(0, 2τ²/λ̲ I) is kept; z_{i,0} = 0.
* `Proven`: Proposition 4 is not true where the coordinator sees z. Variant "A" has noise in every gradient and counts
  each of them, for any solver. Variant "B" counts the end of a round, since inner iterates stay hidden: less noise, for
  gradient steps on all records.
"""

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from sottovoce import solvers
from sottovoce.algorithms.fed_plt_rates import DoesNotContract, rates
from sottovoce.core import check
from sottovoce.core.check import InvalidInput, NoGuarantee
from sottovoce.core.contract import Algorithm, Array, Asks, Descent, Hub, Penalty, Site
from sottovoce.privacy import claims
from sottovoce.problems.penalties import NoPenalty
from sottovoce.solvers import Gradient, Noisy, Solver

FOREVER = 10**12  # rounds: the K of Proposition 4's limit
LOCAL_STEPS = 10


@dataclass(frozen=True)
class Server:
    z: Array  # the last message of every agent
    y: Array


@dataclass(frozen=True)
class Client:
    x: Array
    z: Array


@dataclass(frozen=True)
class Down:
    y: Array


@dataclass(frozen=True)
class Up:
    z: Array


@dataclass(frozen=True)
class FedPLT(Algorithm[Server, Client, Down, Up]):
    """Algorithm 1.

    Parameters
    ----------
    rho
        Penalty parameter; `fed_plt_rates.best_rho` finds a good one.
    solver
        "gradient", "accelerated" or "stochastic", made from the next three; or a solver (`sottovoce.solvers`), with its
        own numbers, e.g. one for each agent.
    local_steps, step, batch
        Steps a round, N_e; step size γ (None: 2/(λ̲+λ̄+2/ρ), in `Proven` mode with public bounds for the moduli); records
        drawn for each (a share of them if < 1; 0: all).
    strong, smooth
        Moduli λ̲, λ̄ that all agents use. None: each its own.
    penalty_at
        Where the regulariser is: "client" in f_i by its gradient, "server" as h by its prox; "auto": client if smooth.
    variant
        How `Proven` noise is counted: "A" for every gradient, "B" for every round.
    horizon
        Number of rounds K that the `Published` noise is for. 0: any number.
    """

    rho: float = 1.0
    solver: str | Solver = "gradient"
    local_steps: int = LOCAL_STEPS
    step: float | None = None
    batch: float = 0
    strong: float | None = None
    smooth: float | None = None
    penalty_at: Literal["auto", "client", "server"] = "auto"
    variant: Literal["A", "B"] = "A"
    horizon: int = 0

    name: ClassVar[str] = "fed-plt"
    summary: ClassVar[str] = "Peaceman-Rachford splitting with inexact local training"
    paper: ClassVar[str] = "Bastianello et al. 2024"
    down: ClassVar[type] = Down
    up: ClassVar[type] = Up

    def __post_init__(self) -> None:
        check.positive("FedPLT", rho=self.rho)
        check.one_of("FedPLT", "penalty_at", self.penalty_at, ("auto", "client", "server"))
        check.one_of("FedPLT", "variant", self.variant, ("A", "B"))
        check.whole("FedPLT", at_least=0, horizon=self.horizon)
        for name, value in (("strong", self.strong), ("smooth", self.smooth)):
            if value is not None:
                check.non_negative("FedPLT", **{name: value})
        if not isinstance(self.solver, str):
            free = self.step is None and self.batch == 0 and self.local_steps == LOCAL_STEPS
            check.require(free, "FedPLT", "local_steps, step and batch go with a solver's name; this one has its own")
        solver = self.local
        if self.variant == "B":
            plain = type(solver) is Gradient and isinstance(solver.steps, int) and solver.batch == 0
            check.require(plain, "FedPLT", "variant 'B' takes gradient steps on all records", solver)

    def claim_terms(self, sizes: Array, rounds: int) -> dict[str, Any]:
        if 0 < self.horizon < rounds:
            return {"unmet": (f"its noise is for {self.horizon} rounds (horizon), and {rounds} were done",)}
        return {}

    @property
    def local(self) -> Solver:
        """The local solver."""
        return solvers.make(self.solver, self.local_steps, step=self.step, batch=self.batch)

    def asks(self) -> Asks:
        if self.variant == "B":
            return Asks(kind="descent")
        return Asks(answers=self.local.answers, batch=self.local.batch)

    def check(self, penalty: Penalty) -> None:
        kind = type(penalty).__name__
        if self.penalty_at == "client" and not penalty.smooth:
            raise InvalidInput(f"FedPLT: {kind} has no gradient to train with; use penalty_at='server', its prox")
        if self.variant == "B" and self.at_client(penalty) and penalty.strong != penalty.curvature:
            raise InvalidInput(f"FedPLT: variant 'B' knows ridge terms only, not {kind}; use penalty_at='server'")

    def init_server(self, hub: Hub) -> Server:
        return self.averaged(np.repeat(hub.zeros, hub.n, axis=-2), hub)

    def init_client(self, site: Site) -> Client:
        self.warn(site)
        x = site.zeros.copy()
        if site.claim is not None:
            x = x + self.tau(site) * np.sqrt(2 / self.moduli(site)[0]) * site.rng.normal(site.f.dim)  # Prop. 4
        return Client(x, site.zeros.copy())

    def broadcast(self, server: Server, hub: Hub) -> Down:
        return Down(server.y)

    def client(self, state: Client, down: Down, site: Site) -> tuple[Client, Up]:
        x = self.train(state.x, 2 * down.y - state.z, site)  # lines 5-9
        z = site.release(state.z + 2 * (x - down.y), centre=down.y)  # line 10
        return Client(x, z), Up(z)

    def server(self, server: Server, up: Up, hub: Hub) -> Server:
        return self.averaged(hub.fresh(up.z, server.z), hub)

    def model(self, server: Server) -> Array:
        return server.y

    def averaged(self, z: Array, hub: Hub) -> Server:
        y = z.mean(axis=-2, keepdims=True)
        return Server(z, y if self.at_client(hub.penalty) else hub.penalty.prox(y, self.rho))  # line 2

    def train(self, x: Array, v: Array, site: Site) -> Array:
        """Approximately argmin d(w) = f_i(w) + |w − v|²/(2ρ) (9), from x."""
        r, pull = self.in_f(site.penalty), 1 / self.rho
        if self.variant == "B":
            if site.claim is not None:
                raise NoGuarantee("FedPLT: variant 'B' is not the paper's; Published needs variant='A'")
            return site.f.descent(x, Descent(self.local.answers, self.length(site), pull, v, r.strong))

        def gradient(w: Array) -> Array:
            return site.f.grad(w) + r.subgradient(w) + (w - v) * pull  # ∇d, line 7

        return self.solver_at(site).solve(gradient, x, *self.moduli(site, pull), site.rng, site.who)

    def at_client(self, penalty: Penalty) -> bool:
        """Whether the regulariser is part of f_i; else it is h."""
        return penalty.smooth if self.penalty_at == "auto" else self.penalty_at == "client"

    def in_f(self, penalty: Penalty) -> Penalty:
        """What of the regulariser is part of f_i."""
        return penalty if self.at_client(penalty) else NoPenalty()

    def moduli(self, site: Site, pull: float = 0.0) -> tuple[Any, Any]:
        """λ̲ and λ̄ of f_i, or with 1/ρ those of d."""
        r, strong, smooth = self.in_f(site.penalty), self.strong, self.smooth
        if strong is None:
            strong = site.f.strong_convexity() + r.strong
        if smooth is None:
            smooth = site.f.smoothness() + r.curvature
        return strong + pull, smooth + pull

    def length(self, site: Site) -> Any:
        """γ of gradient steps."""
        assert isinstance(self.local, Gradient)
        return self.local.length(solvers.Local(*self.moduli(site, 1 / self.rho), None, site.who))

    def solver_at(self, site: Site) -> Solver:
        """The local solver; with the published noise where that is asked for."""
        if site.claim is None:
            return self.local
        gamma = self.length(site)
        return Noisy(self.local.steps, gamma, noise_std=np.sqrt(2 * gamma) * self.tau(site))  # (13)

    def tau(self, site: Site) -> Any:
        """τ at which Proposition 4 and Lemma 5 promise what was asked for."""
        assert site.claim is not None
        solver, strong, claim = self.local, self.moduli(site)[0], site.claim
        if type(solver) is not Gradient or not isinstance(solver.steps, int) or solver.batch:
            raise NoGuarantee(f"FedPLT: Proposition 4 is about gradient steps on all records, not {solver}")
        if not np.all(np.asarray(strong) > 0):
            raise InvalidInput("FedPLT: Proposition 4 needs strongly convex f_i: add a ridge, L2(...), at the clients")
        shape = (1 / site.f.weight, strong, self.length(site), self.horizon or FOREVER, solver.steps)
        return claims.fed_plt_tau(claim.epsilon, claim.delta, 2 * site.f.gradient_bound, *shape)

    def warn(self, site: Site) -> None:
        """Say so if nothing is known to contract with these parameters."""
        strong, smooth = self.moduli(site)
        if not np.isfinite(smooth).all():
            return
        rate = float(rates(self.local, self.rho, strong, smooth, site.who, points=33).max())
        # With little or no strong convexity the factor is about 1 whatever the parameters: only growth is worth a word.
        if rate > 1.01:
            message = (
                f"FedPLT: not known to contract (factor {rate:.4g} a round); try more local steps, "
                "solver='accelerated', or rho=fed_plt_rates.best_rho(strong, smooth, solver)"
            )
            warnings.warn(message, DoesNotContract, stacklevel=2)

"""SFedAvg and SFedProx: FedAvg and FedProx with shrinking local steps and a noisy upload.

Zhou and Li, "Exact Penalty Method for Federated Learning" (2022), Algorithms 3 and 4: what FedEPM is compared with
there. Symbols that are not listed are those of `fedavg.py`.

    symbol       here               meaning
    z_i          Up.w               what client i uploads
    γ_i          steps(k)           step size (38): step d_i / √(2 k_0 + ⌈k/k_0⌉)
    k_0          local_steps        local steps a round
    ℓ            inner              gradient steps in each local step (Algorithm 4)
    d_i          f.size             records of a client
    μ_{i,k}      growing_mu(...)    weight in the published noise (39)

Departures from the paper
-------------------------
* Those of `fedavg.py`.
* (34) prints the mean over those who are drawn next, of their last messages; section IV-C means those who just
  uploaded, which takes 2-3 times fewer rounds. `over` offers both.
* (38) makes large clients take longer steps, so the limit weighs each f_i by its d_i, and no single step size fits all
  clients, which a penalty's prox needs. Without `by_size` neither is so.
* The published noise is FedEPM's (39), with its constants; z_i^0 = 0 has no noise.
"""

from dataclasses import dataclass
from math import sqrt

from sottovoce.algorithms.fedavg import Down, FedAvg, Up
from sottovoce.algorithms.fedepm import ALPHA, C, growing_mu, laplace_noise
from sottovoce.core.check import InvalidInput, NonNegative, Positive, Whole
from sottovoce.core.contract import Asks, Nothing, Penalty, Site


@dataclass(frozen=True)
class SFedAvg(FedAvg):
    """Algorithm 3 with (35).

    Parameters
    ----------
    inner
        Gradient steps in each local step.
    by_size
        Whether steps are proportional to a client's number of records (38).
    mu
        μ_{i,0} of the published noise (39).
    """

    step: Positive = 2.0
    local_steps: Whole = 12
    inner: Whole = 1
    by_size: bool = True
    mu: Positive = 0.05

    name = "sfedavg"
    summary = "secured FedAvg: shrinking local steps, noisy upload"
    paper = "Zhou and Li 2022, Algorithm 3"
    modes = frozenset({"none", "published", "proven"})

    def asks(self) -> Asks:
        return Asks.every_round(answers=self.local_steps * self.inner, batch=self.batch)

    def check(self, penalty: Penalty) -> None:
        if self.by_size and not penalty.smooth:
            who, kind = type(self).__name__, type(penalty).__name__
            raise InvalidInput(f"{who}: the prox of {kind} needs one step size for all clients; use by_size=False")

    def client(self, state: Nothing, down: Down, site: Site) -> tuple[Nothing, Up]:
        w = before = down.w
        first = None
        for gamma in self.steps(site.k):
            before = w
            for _ in range(self.inner):
                slope = self.slope(w, down.w, site)
                first = slope if first is None else first
                w = w - gamma * (site.f.size if self.by_size else 1.0) * slope  # (35), (36) by Algorithm 4
        assert first is not None
        mu = growing_mu(self.mu, C, ALPHA, site.k * self.local_steps, before - down.w)
        return state, Up(site.release(w, laplace_noise(39, first, mu, site), centre=down.w))  # (37)

    def steps(self, k: int) -> list[float]:
        """γ_i^k / d_i of (38) in round k; the ceiling of the first step is that of the round before."""
        rounds = [k - 1] + [k] * (self.local_steps - 1)
        return [self.step / sqrt(2 * self.local_steps + past) for past in rounds]

    def length(self, k: int) -> float:
        return self.inner * sum(self.steps(k))


@dataclass(frozen=True)
class SFedProx(SFedAvg):
    """Algorithm 3 with (36), solved by Algorithm 4."""

    pull: NonNegative = 1e-5
    inner: Whole = 3

    name = "sfedprox"
    summary = "secured FedProx: shrinking local steps, noisy upload"
    paper = "Zhou and Li 2022, Algorithms 3 and 4"

"""Fed-PLT. `lipschitz` is L of Assumption 3, twice the clip norm; `strong` is the modulus of strong convexity."""

import math

import numpy as np

from sottovoce.core import check
from sottovoce.privacy.claims.paper import Asked, PaperClaim, Value, log_inverse


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
    return a + 2 * np.sqrt(a * log_inverse(delta))


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
    log = log_inverse(delta)
    a = (epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))) ** 2
    return np.sqrt(fed_plt_rdp(1.0, lipschitz, 1.0, q, strong, step, rounds, local_steps) / a)


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

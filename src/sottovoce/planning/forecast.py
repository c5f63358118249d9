"""What to expect of the method that the rules choose, at a budget, without looking at a single private row.

Sizes, columns and the budget are public. The rules (`sottovoce.rules`) choose method and constants from them; here that
choice, and every other method by its own rule, is tried on synthetic rows of the same shape. Since no private row is
read, it costs nothing; since the rows are synthetic, its numbers are a forecast and not a promise.

`choose` tries all methods at one budget; `forecast` adds other budgets and other synthetic rows, for `sottovoce plan`.
Rows come from `synthetic.py`, sentences from `words.py`. Methods come from the registry: a new one is tried too.
"""

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from sottovoce.algorithms import ALGORITHMS
from sottovoce.core.check import InvalidInput, NoGuarantee
from sottovoce.experiment.train import train
from sottovoce.planning import synthetic
from sottovoce.planning.problem import Plan, Problem, Setting, Trial
from sottovoce.planning.synthetic import World
from sottovoce.rules import AUTO, METHODS

Progress = Callable[[str, int, int], None]
BUDGETS = (0.25, 0.5, 1.0, 2.0, 4.0)  # shares of epsilon at which a forecast is made
REPEATS = 5  # seeds of the chosen setting; one of the others
OTHER_WORLDS = 4  # in which the chosen setting is tried once more


def choose(problem: Problem, progress: Progress = lambda what, done, of: None) -> Plan:
    """The setting to use, and what to expect of it and of the other methods."""
    world, setting = _world(problem, "correlated"), problem.setting(AUTO)
    trials, left_out = [_tried(setting, world, problem, REPEATS)], []
    others = [name for name in METHODS if name not in (AUTO, setting.algorithm.name) and _is_proven(name, problem)]
    for number, name in enumerate(others):
        progress("other methods", number, len(others))
        try:
            trials.append(_tried(problem.setting(name), world, problem, 1))
        except (NoGuarantee, InvalidInput) as refusal:
            left_out.append(f"{name}: {refusal}")
    progress("other methods", len(others), len(others))
    best = world.optimum()
    return Plan(
        problem,
        setting,
        trials[0].spread,
        world.quality(best),
        world.auc(best),
        world.constant(),
        problem.event(setting).noise_multiplier,
        (trials[0], *sorted(trials[1:], key=lambda trial: -trial.mean)),
        tuple(left_out),
    )


def forecast(plan: Plan, progress: Progress = lambda what, done, of: None) -> Plan:
    """`plan` with its quality at other budgets, on other synthetic rows, and where columns are independent."""
    problem, setting = plan.problem, plan.setting
    steps = len(BUDGETS) + 1 + OTHER_WORLDS
    world, curve, losses = _world(problem, "correlated"), [], []
    for number, share in enumerate(BUDGETS):
        progress("forecast", number, steps)
        budget = share * problem.epsilon
        other_budget = replace(problem, epsilon=budget)
        tried = plan.trials[0] if share == 1 else _tried(other_budget.setting(AUTO), world, other_budget, 2)
        curve.append((budget, tried.mean))
    progress("forecast", len(BUDGETS), steps)
    other = _world(problem, "independent")
    independent = _tried(setting, other, problem, 2).mean, other.quality(other.optimum())
    for number in range(1, OTHER_WORLDS + 1):
        progress("forecast", len(BUDGETS) + number, steps)
        elsewhere = replace(problem, seed=problem.seed + number)
        other = _world(elsewhere, "correlated")
        losses.append(other.quality(other.optimum()) - _tried(setting, other, elsewhere, 1).mean)
    progress("forecast", steps, steps)
    enough = [budget for budget, quality in curve if problem.target is not None and quality >= problem.target]
    drawn = {"curve": tuple(curve), "losses": tuple(losses), "independent": independent}
    return replace(plan, **drawn, sufficient_epsilon=min(enough, default=None))


def _is_proven(name: str, problem: Problem) -> bool:
    method = ALGORITHMS[name]
    return "proven" in method.modes and not (problem.observer == "sums" and method().why_not_sums(problem.unit))


@lru_cache(maxsize=4)
def _world(problem: Problem, spectrum: synthetic.Spectrum) -> World:
    shape = problem.simulated_sizes, problem.features, problem.row_bound
    return synthetic.world(problem.objective, *shape, problem.best, problem.seed, spectrum, problem.balance)


def _tried(setting: Setting, world: World, problem: Problem, runs: int) -> Trial:
    """How good the models of `runs` seeds are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about delta: said once, in `words.reasons`; about methods that are not chosen
        result = train(
            setting.algorithm,
            world.federation,
            problem.objective,
            rounds=setting.rounds,
            privacy=problem.simulated_privacy(setting),
            seed=problem.seed,
            runs=runs,
            record_every=setting.rounds,
            measure_training=False,
        )
    return Trial(setting, tuple(map(world.quality, result.model)), tuple(map(world.auc, result.model)))

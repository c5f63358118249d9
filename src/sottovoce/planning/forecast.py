"""What to expect of the method that the rules choose, at a budget, without looking at a single private row.

Sizes, columns and the budget are public. The rules (`sottovoce.rules`) choose method and constants from them; here that
choice, and every other method by its own rule, is tried on synthetic rows of the same shape. Since no private row is
read, it costs nothing; since the rows are synthetic, its numbers are a forecast and not a promise.

`choose` tries all methods at one budget; `forecast` adds other budgets and other synthetic rows, for `sottovoce plan`.
Rows come from `synthetic.py`, sentences from `words.py`. Methods come from the registry: a new one is tried too.
"""

import warnings
from dataclasses import replace

from sottovoce.algorithms import ALGORITHMS
from sottovoce.core.check import InvalidInput, NoGuarantee
from sottovoce.core.plain import Progress, silent
from sottovoce.experiment.task import Task
from sottovoce.experiment.train import run_task
from sottovoce.planning.problem import Plan, Problem, Trial
from sottovoce.planning.synthetic import World, world_of
from sottovoce.rules import AUTO, METHODS

BUDGETS = (0.25, 0.5, 1.0, 2.0, 4.0)  # shares of epsilon at which a forecast is made
REPEATS = 5  # seeds of the chosen setting; one of the others
OTHER_WORLDS = 4  # in which the chosen setting is tried once more


def choose(problem: Problem, progress: Progress = silent) -> Plan:
    """The task to train, and what to expect of it and of the other methods."""
    world, task = world_of(problem), problem.task(AUTO)
    progress(task.algorithm.name, 0, 0)
    trials, left_out = [_tried(task, world, problem, REPEATS)], []
    others = [name for name in METHODS if name not in (AUTO, task.algorithm.name) and _is_proven(name, problem)]
    for number, name in enumerate(others):
        progress("other methods", number, len(others))
        try:
            trials.append(_tried(problem.task(name), world, problem, 1))
        except (NoGuarantee, InvalidInput) as refusal:
            left_out.append(f"{name}: {refusal}")
    progress("other methods", len(others), len(others))
    best, noise = world.optimum(), problem.events(task)[-1].noise_multiplier
    yardsticks = world.quality(best), world.auc(best), world.constant()
    tried = (trials[0], *sorted(trials[1:], key=lambda trial: -trial.mean))
    return Plan(problem, task, trials[0].spread, *yardsticks, noise, tried, tuple(left_out))


def forecast(plan: Plan, progress: Progress = silent) -> Plan:
    """`plan` with its quality at other budgets, on other synthetic rows, and where columns are independent."""
    problem, task = plan.problem, plan.task
    steps = len(BUDGETS) + 1 + OTHER_WORLDS
    world, curve, losses = world_of(problem), [], []
    for number, share in enumerate(BUDGETS):
        progress("forecast", number, steps)
        budget = share * problem.privacy.epsilon
        other_budget = replace(problem, privacy=replace(problem.privacy, epsilon=budget))
        tried = plan.trials[0] if share == 1 else _tried(other_budget.task(AUTO), world, other_budget, 2)
        curve.append((budget, tried.mean))
    progress("forecast", len(BUDGETS), steps)
    other = world_of(problem, "independent")
    independent = _tried(task, other, problem, 2).mean, other.quality(other.optimum())
    for number in range(1, OTHER_WORLDS + 1):
        progress("forecast", len(BUDGETS) + number, steps)
        elsewhere = replace(problem, seed=problem.seed + number)
        other = world_of(elsewhere)
        losses.append(other.quality(other.optimum()) - _tried(task, other, elsewhere, 1).mean)
    progress("forecast", steps, steps)
    enough = [budget for budget, quality in curve if problem.target is not None and quality >= problem.target]
    drawn = {"curve": tuple(curve), "losses": tuple(losses), "independent": independent}
    return replace(plan, **drawn, sufficient_epsilon=min(enough, default=None))


def _is_proven(name: str, problem: Problem) -> bool:
    method = ALGORITHMS[name]
    return "proven" in method.modes and not (problem.privacy.sums and method().why_not_sums(problem.privacy.unit))


def _tried(task: Task, world: World, problem: Problem, runs: int) -> Trial:
    """How good the models of `runs` seeds are."""
    # Warnings about delta are said once, in `words.reasons`; others are about methods that are not chosen.
    with warnings.catch_warnings(action="ignore"):
        simulated = problem.simulated(task)
        models = run_task(simulated, world.federation, problem.seed, runs, measure_training=False).model
    return Trial(task, tuple(map(world.quality, models)), tuple(map(world.auc, models)))

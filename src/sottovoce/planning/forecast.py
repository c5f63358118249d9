"""Which method, how many rounds, which step and clip: chosen without looking at a single private row.

Sizes, columns and the budget are public. Synthetic rows of that shape are made, a declared grid of settings is tried on
them, and the setting with the fewest rounds that is about as good as the best is taken. Since no private row was read,
the choice costs nothing; since the rows are synthetic, its numbers are a forecast and not a promise.

`choose` is what `algorithm="auto"` asks; `forecast` adds what `sottovoce plan` draws. Rows come from `synthetic.py`,
sentences from `words.py`.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from sottovoce.algorithms import DPADMM, DPSGD, DPFedAvg, FedPLT, FedSPDDP
from sottovoce.core.check import InvalidInput, NoGuarantee, PrivacyWarning
from sottovoce.core.contract import Method
from sottovoce.experiment.train import train
from sottovoce.planning import synthetic
from sottovoce.planning.problem import Plan, Problem, Setting, Trial
from sottovoce.planning.synthetic import World

Progress = Callable[[str, int, int], None]
ROUNDS = (10, 30, 100, 300)
CLIPS = (0.1, 0.3, 1.0)  # shares of the longest gradient a row can have
STEPS = (0.25, 1.0, 1.9)  # of 1/smoothness: below 2 no rows of the promised length can make descent diverge
MODEL_SIZES = (10.0, 100.0, 1000.0)  # DP-ADMM's guess of the model's length, for rows of length 1
LOCAL_STEPS = 5
BUDGETS = (0.25, 0.5, 1.0, 2.0, 4.0)  # shares of epsilon at which a forecast is made
ABOUT_AS_GOOD = 0.005  # half a point of accuracy is given up for fewer rounds
REPEATS = 5  # seeds of the last stage; one before
OTHER_WORLDS = 4  # in which the chosen setting is tried once more
LEFT_AFTER = (4, 3)  # settings that are kept after the first and the second stage
_plans: dict[Problem, Plan] = {}  # a problem that comes again is not searched again


def choose(problem: Problem, progress: Progress = lambda what, done, of: None) -> Plan:
    """The setting to use, and what to expect of it. The same problem gets the same plan, the second time at once."""
    if problem not in _plans:
        _plans[problem] = _search(problem, progress)
    return _plans[problem]


def forecast(plan: Plan, progress: Progress = lambda what, done, of: None) -> Plan:
    """`plan` with its quality at other budgets, on other synthetic rows, and where columns are independent."""
    problem, setting = plan.problem, plan.setting
    steps = len(BUDGETS) + 1 + OTHER_WORLDS
    world, curve, losses = _world(problem, "correlated"), [], []
    for number, share in enumerate(BUDGETS):
        progress("forecast", number, steps)
        budget = share * problem.epsilon
        quality = plan.expected.mean if share == 1 else np.mean(_qualities(setting, world, problem, 2, budget))
        curve.append((budget, float(quality)))
    progress("forecast", len(BUDGETS), steps)
    other = _world(problem, "independent")
    independent = float(np.mean(_qualities(setting, other, problem, 2))), other.quality(other.optimum())
    for number in range(1, OTHER_WORLDS + 1):
        progress("forecast", len(BUDGETS) + number, steps)
        elsewhere = replace(problem, seed=problem.seed + number)
        other = _world(elsewhere, "correlated")
        reached = float(np.mean(_qualities(setting, other, elsewhere, 1)))
        losses.append(other.quality(other.optimum()) - reached)
    progress("forecast", steps, steps)
    enough = [budget for budget, quality in curve if problem.target is not None and quality >= problem.target]
    drawn = {"curve": tuple(curve), "losses": tuple(losses), "independent": independent}
    return replace(plan, **drawn, sufficient_epsilon=min(enough, default=None))


# ----------------------------------------------------------------------------------------------------------- the search


def _search(problem: Problem, progress: Progress) -> Plan:
    world = _world(problem, "correlated")
    done: dict[Setting, Trial] = {}
    left_out: dict[str, str] = {}

    def attempt(stage: str, settings: Iterable[Setting], runs: int) -> list[Trial]:
        stage_settings = list(settings)
        for number, setting in enumerate(stage_settings):
            progress(stage, number, len(stage_settings))
            try:
                done[setting] = Trial(setting, _qualities(setting, world, problem, runs))
            except (NoGuarantee, InvalidInput) as refusal:
                left_out.setdefault(setting.algorithm.name, str(refusal))
        progress(stage, len(stage_settings), len(stage_settings))
        return [done[setting] for setting in stage_settings if setting in done]

    first = attempt("first look", _grid(problem), 1)
    if not first:
        raise NoGuarantee(f"plan: no method fits, {'; '.join(left_out.values())}")
    promising = [trial.setting for trial in sorted(first, key=lambda trial: -trial.mean)[: LEFT_AFTER[0]]]
    others = [replace(each, rounds=rounds) for each in promising for rounds in ROUNDS if rounds != each.rounds]
    second = attempt("other rounds", others, 1)
    finalists = _in_order([*first, *second], problem.target)[: LEFT_AFTER[1]]
    last = _in_order(attempt("repeating", [trial.setting for trial in finalists], REPEATS), problem.target)
    rest = [trial for trial in _in_order(list(done.values()), problem.target) if trial not in last]
    best = last[0]
    return Plan(
        problem,
        best.setting,
        best.spread,
        world.quality(world.optimum()),
        problem.event(best.setting).noise_multiplier,
        (*last, *rest),
        tuple(f"{name}: {why}" for name, why in left_out.items()),
    )


def _in_order(trials: Sequence[Trial], target: float | None) -> list[Trial]:
    """Fewest rounds first among those that reach the target (or, if none does, are about as good as the best)."""
    best = max(trial.mean for trial in trials)
    enough = target if target is not None and best >= target else best - ABOUT_AS_GOOD
    good, rest = ([trial for trial in trials if (trial.mean >= enough) is wanted] for wanted in (True, False))
    good.sort(key=lambda trial: (trial.setting.rounds, -trial.mean))
    return good + sorted(rest, key=lambda trial: -trial.mean)


def _grid(problem: Problem) -> list[Setting]:
    """The declared candidates. Rows of length R stretch gradients by R, curvature by R² and models by 1/R."""
    loss, R = problem.objective.loss, problem.row_bound
    steepest = (loss.lipschitz if np.isfinite(loss.lipschitz) else 1.0) * R
    smooth = loss.curvature * R**2
    if problem.unit == "client":
        return [
            Setting(DPFedAvg(step=step / smooth, local_steps=LOCAL_STEPS), ROUNDS[0], 10 * clip / R)
            for step in STEPS[:2]
            for clip in CLIPS
        ]
    methods: list[tuple[Method, int]] = [(DPSGD(step=step / smooth), ROUNDS[2]) for step in STEPS]
    methods += [(DPADMM(rho=0.4 * smooth, c_w=size / R, penalty_at="server"), ROUNDS[2]) for size in MODEL_SIZES]
    # Methods of several local steps are for few rounds. Each hides its steps, so that a round costs one answer.
    methods.append((FedSPDDP(rho=0.4 * smooth, gamma=2 * smooth, local_steps=LOCAL_STEPS, variant="P"), ROUNDS[1]))
    local = FedPLT(rho=2.5 / smooth, step=1 / smooth, local_steps=LOCAL_STEPS, variant="B", strong=0.0, smooth=smooth)
    methods.append((local, ROUNDS[1]))
    if problem.secure:
        methods = [(method, rounds) for method, rounds in methods if set(method.asks().kinds) == {"gradient"}]
    return [Setting(method, rounds, share * steepest) for method, rounds in methods for share in CLIPS]


@lru_cache(maxsize=4)
def _world(problem: Problem, spectrum: synthetic.Spectrum) -> World:
    shape = problem.simulated_sizes, problem.features, problem.row_bound
    return synthetic.world(problem.objective, *shape, problem.best, problem.seed, spectrum)


def _qualities(
    setting: Setting, world: World, problem: Problem, runs: int, epsilon: float | None = None
) -> tuple[float, ...]:
    """How good the models of `runs` seeds are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)  # about delta: said once, in `words.reasons`
        result = train(
            setting.algorithm,
            world.federation,
            problem.objective,
            rounds=setting.rounds,
            privacy=problem.simulated_privacy(setting, epsilon),
            seed=problem.seed,
            runs=runs,
            record_every=setting.rounds,
            measure_training=False,
        )
    return tuple(world.quality(model) for model in result.model)

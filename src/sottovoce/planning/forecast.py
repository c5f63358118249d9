"""Which method, how many rounds, which step and clip: chosen without looking at a single private row.

Sizes, columns and the budget are public. Rows of that shape are made up, a declared grid of settings is tried on them,
and the setting with the fewest rounds that is about as good as the best is taken. Since no private row was read, the
choice costs nothing; since the rows are made up, its numbers are a forecast and not a promise.

`choose` is what `algorithm="auto"` asks; `forecast` adds what `sottovoce plan` draws. Rows come from `made_up.py`,
sentences from `plan_words.py`.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np

from sottovoce.algorithms import DPADMM, DPSGD, DPFedAvg, FedPLT, FedSPDDP
from sottovoce.core import check
from sottovoce.core.check import InvalidInput, NoGuarantee, PrivacyWarning
from sottovoce.core.contract import Algorithm
from sottovoce.core.participation import Everyone
from sottovoce.experiment.repetitions import Interval, interval
from sottovoce.experiment.tables import Tables, plain_fields, to_toml
from sottovoce.experiment.train import train
from sottovoce.planning import synthetic as made_up
from sottovoce.privacy import accounting
from sottovoce.privacy.modes import Proven
from sottovoce.problems.losses import Logistic
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import L2

Method = Algorithm[Any, Any, Any, Any]
Progress = Callable[[str, int, int], None]

TO_DO = (
    "Before it runs, put your own file and columns in [data] (csv is looked for from the folder of the run file), name "
    "all labels there can be, and add the ranges that everybody knows: ranges = { column = [low, high] }"
)
GOAL = Objective(Logistic(), L2(1e-6))
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
QUICK = 500_000  # made-up rows x parameters that are handled in no time ...
ROWS_PER_PARAMETER = 20  # ... but models of many parameters get rows enough to be learnt ...
MOST = 6_000_000  # ... up to here


@dataclass(frozen=True)
class Setting:
    """One way to spend the budget."""

    algorithm: Method
    rounds: int
    clip: float

    @property
    def method(self) -> str:
        """The method with its constants."""
        given = {name: value for name, value in plain_fields(self.algorithm).items() if name in _TOLD}
        own = ", ".join(f"{name} {value:.3g}" for name, value in given.items() if not isinstance(value, str))
        return f"{self.algorithm.name} ({own})"

    def __str__(self) -> str:
        return f"{self.method}, clip {self.clip:.3g}, {self.rounds} rounds"


_TOLD = ("step", "local_steps", "rho", "c_w", "gamma")


@dataclass(frozen=True)
class Trial:
    """A setting, and how good the models were that it found: accuracy, or R² for regression."""

    setting: Setting
    qualities: tuple[float, ...]  # one per seed

    @property
    def mean(self) -> float:
        return float(np.mean(self.qualities))

    @property
    def spread(self) -> Interval:
        return interval(np.array(self.qualities))


@dataclass(frozen=True)
class Problem:
    """All that is known before any row is seen."""

    sizes: tuple[int, ...]
    features: int
    epsilon: float
    delta: float
    objective: Objective
    unit: Literal["record", "client"]
    secure: bool
    row_bound: float
    best: float
    target: float | None
    seed: int

    @cached_property
    def rehearsed(self) -> tuple[int, ...]:
        """Rows of each client that are made up: fewer than it has, where all would take too long."""
        dim = self.features * self.objective.loss.outputs
        most = max(QUICK // dim, min(ROWS_PER_PARAMETER * dim, MOST // dim), 1)
        share = min(1.0, most / sum(self.sizes))
        return tuple(max(1, round(share * size)) for size in self.sizes[:most])

    def privacy(self, setting: Setting, epsilon: float | None = None) -> Proven:
        noise = "secure" if self.secure else "seeded"
        return Proven(epsilon or self.epsilon, self.delta, setting.clip, unit=self.unit, noise=noise)

    def rehearsal(self, setting: Setting, epsilon: float | None = None) -> Proven:
        """A budget that gives the made-up clients the very noise that the real ones will have with all their rows."""
        privacy = replace(self.privacy(setting, epsilon), noise="seeded")  # as much of it, and much quicker
        asks = setting.algorithm.asks()
        share = sum(self.rehearsed) / sum(self.sizes[: len(self.rehearsed)])
        if self.unit == "client" or share == 1:
            return privacy
        spent = {}
        for part, event in zip(asks.parts, privacy.plan(asks, setting.rounds, np.array(self.sizes)), strict=True):
            event = replace(event, noise_multiplier=event.noise_multiplier * share)
            spent[event] = part.rounds(setting.rounds) * privacy.costs(asks, part)
        return replace(privacy, epsilon=accounting.epsilon(spent, self.delta))


@dataclass(frozen=True)
class Plan:
    """What to do, what to expect of it, and why. `algorithm`, `rounds` and `privacy` are ready for `train`."""

    problem: Problem
    setting: Setting
    expected: Interval  # of the quality; over seeds, on made-up rows
    without_privacy: float
    noise_multiplier: float
    trials: tuple[Trial, ...]  # of the last stage each setting reached
    left_out: tuple[str, ...]
    curve: tuple[tuple[float, float], ...] = ()  # (epsilon, quality) of the setting
    independent: tuple[float, float] | None = None  # quality with and without privacy where columns are independent
    losses: tuple[float, ...] = ()  # what privacy costs in other made-up worlds, of other seeds
    enough: float | None = None  # the smallest epsilon of the curve that reaches the target

    @property
    def algorithm(self) -> Method:
        return self.setting.algorithm

    @property
    def rounds(self) -> int:
        return self.setting.rounds

    @property
    def privacy(self) -> Proven:
        return self.problem.privacy(self.setting)

    @property
    def loss(self) -> float:
        """What privacy is expected to cost, in accuracy (or R²)."""
        return self.without_privacy - float(self.expected.mean)

    @property
    def noise_std(self) -> float:
        """Deviation of the noise on each coordinate that a client of average size sends (or answers)."""
        weight = 1.0 if self.problem.unit == "client" else 1 / float(np.mean(self.problem.sizes))
        return self.noise_multiplier * 2 * self.setting.clip * weight

    def run_file(self) -> str:
        """The text of a run file, with what is left to do."""
        return f"# {TO_DO}\n\n{to_toml(self.tables())}"

    def tables(self) -> Tables:
        """A run file: everything but whose rows."""
        goal, classes = self.problem.objective, max(2, self.problem.objective.loss.outputs)
        labels = ["no", "yes"] if classes == 2 else [f"class {number}" for number in range(classes)]
        return {
            "data": {
                "csv": "rows.csv",
                "label": "label",
                "owner": "owner",
                **({"labels": labels} if goal.loss.classification else {}),
                "row_bound": self.problem.row_bound,
                "shorten": True,
            },
            "objective": {
                "loss": goal.loss.name,
                **plain_fields(goal.loss),
                "penalty": goal.penalty.name,
                **plain_fields(goal.penalty),
                "scale": goal.scale,
            },
            "algorithm": {"name": self.algorithm.name, **plain_fields(self.algorithm)},
            "privacy": {"mode": "proven", **plain_fields(self.privacy)},
            "run": {"rounds": self.rounds},
        }


def choose(
    sizes: Sequence[int],
    features: int,
    *,
    epsilon: float,
    delta: float,
    objective: Objective = GOAL,
    unit: Literal["record", "client"] = "record",
    secure: bool = False,
    row_bound: float = 1.0,
    best: float = 0.85,
    target: float | None = None,
    seed: int = 0,
    progress: Progress = lambda what, done, of: None,
) -> Plan:
    """The setting to use, and what to expect of it. The same question gets the same answer, the second time at once.

    Parameters
    ----------
    sizes, features
        Rows of each client, and columns: public numbers.
    epsilon, delta, unit
        The budget, as in `Proven`.
    secure
        Whether noise will be "secure": then only methods that ask for single gradients have a proof.
    objective
        What will be minimised; scale "mean". For regression labels are taken to have a deviation of about 1.
    row_bound
        Rows are taken to be no longer than this, and mostly that long.
    best
        Accuracy (or R²) that the best possible model reaches: how hard the made-up problem is.
    target
        Accuracy (or R²) to reach, with the fewest rounds. None: about as good as the best setting.
    seed
        Of the made-up rows and of all noise.
    """
    check.whole("plan", features=features)
    counts = np.asarray(sizes)
    fits = counts.ndim == 1 and len(counts) > 0 and np.issubdtype(counts.dtype, np.integer) and counts.min() > 0
    check.require(bool(fits), "plan", "sizes must be a list of whole numbers >= 1", sizes)
    check.one_of("plan", "unit", unit, ("record", "client"))
    check.positive("plan", row_bound=row_bound)
    check.require(isinstance(objective, Objective), "plan", "objective must be an Objective", objective)
    check.require(objective.loss.convex, "plan", "is for convex losses; choose by hand for", objective.loss.name)
    classes = max(2, objective.loss.outputs) if objective.loss.classification else None
    check.between("plan", 1 / classes if classes else 0.0, 1.0, best=best)
    if target is not None:
        check.between("plan", 0.0, 1.0, target=target)
        within = "target must be below best, what can be reached without privacy"
        check.require(target < best, "plan", f"{within} ({best:g})", target, "Ask for less, or state a larger best")
    check.require(objective.scale == "mean", "plan", "scale must be 'mean'", objective.scale)
    check.whole("plan", at_least=0, seed=seed)
    Proven(epsilon, delta, 1.0, unit=unit)  # refuses what is no budget
    problem = Problem(
        tuple(counts.tolist()),
        features,
        float(epsilon),
        float(delta),
        objective,
        unit,
        secure,
        float(row_bound),
        float(best),
        target,
        seed,
    )
    return _chosen(problem, _Silent(progress))


def forecast(plan: Plan, progress: Progress = lambda what, done, of: None) -> Plan:
    """`plan` with its quality at other budgets, in other made-up worlds, and where columns are independent."""
    problem, steps = plan.problem, len(BUDGETS) + 1 + OTHER_WORLDS
    world, curve = _made_up(problem, "correlated"), []
    for number, share in enumerate(BUDGETS):
        progress("forecast", number, steps)
        budget = share * problem.epsilon
        done = plan.expected.mean if share == 1 else np.mean(_qualities(plan.setting, world, problem, 2, budget))
        curve.append((budget, float(done)))
    progress("forecast", len(BUDGETS), steps)
    other = _made_up(problem, "independent")
    there = float(np.mean(_qualities(plan.setting, other, problem, 2))), other.quality(other.optimum())
    losses = []
    for number in range(1, OTHER_WORLDS + 1):
        progress("forecast", len(BUDGETS) + number, steps)
        elsewhere = replace(problem, seed=problem.seed + number)
        world = _made_up(elsewhere, "correlated")
        found = float(np.mean(_qualities(plan.setting, world, elsewhere, 1)))
        losses.append(world.quality(world.optimum()) - found)
    progress("forecast", steps, steps)
    reached = [budget for budget, quality in curve if problem.target is not None and quality >= problem.target]
    return replace(plan, curve=tuple(curve), independent=there, losses=tuple(losses), enough=min(reached, default=None))


# ----------------------------------------------------------------------------------------------------------- the search


class _Silent:
    """A progress report that is no part of a question: all are equal."""

    def __init__(self, call: Progress) -> None:
        self.call = call

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Silent)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=64)
def _chosen(problem: Problem, progress: _Silent) -> Plan:
    world = _made_up(problem, "correlated")
    done: dict[Setting, Trial] = {}
    left_out: dict[str, str] = {}

    def tried(what: str, settings: Iterable[Setting], runs: int) -> list[Trial]:
        todo = list(settings)
        for number, setting in enumerate(todo):
            progress.call(what, number, len(todo))
            try:
                done[setting] = Trial(setting, _qualities(setting, world, problem, runs))
            except (NoGuarantee, InvalidInput) as refusal:
                left_out.setdefault(setting.algorithm.name, str(refusal))
        progress.call(what, len(todo), len(todo))
        return [done[setting] for setting in todo if setting in done]

    first = tried("first look", _grid(problem), 1)
    if not first:
        raise NoGuarantee(f"plan: no method fits, {'; '.join(left_out.values())}")
    promising = sorted(first, key=lambda trial: -trial.mean)[: LEFT_AFTER[0]]
    other = [
        replace(trial.setting, rounds=rounds)
        for trial in promising
        for rounds in ROUNDS
        if rounds != trial.setting.rounds
    ]
    second = tried("other rounds", other, 1)
    final = _in_order([*first, *second], problem.target)[: LEFT_AFTER[1]]
    last = _in_order(tried("repeating", [trial.setting for trial in final], REPEATS), problem.target)
    setting = last[0].setting
    asks = setting.algorithm.asks()
    event = problem.privacy(setting).plan(asks, setting.rounds, np.array(problem.sizes))[0]
    everything = (*last, *(trial for trial in _in_order(list(done.values()), problem.target) if trial not in last))
    without = world.quality(world.optimum())
    refused = tuple(f"{name}: {why}" for name, why in left_out.items())
    return Plan(problem, setting, last[0].spread, without, event.noise_multiplier, everything, refused)


def _in_order(trials: Sequence[Trial], target: float | None) -> list[Trial]:
    """Fewest rounds first among those that reach the target (or, as none does, are about as good as the best)."""
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
def _made_up(problem: Problem, spectrum: made_up.Spectrum) -> made_up.World:
    shape = problem.rehearsed, problem.features, problem.row_bound
    return made_up.world(problem.objective, *shape, problem.best, problem.seed, spectrum)


def _qualities(
    setting: Setting, world: made_up.World, problem: Problem, runs: int, epsilon: float | None = None
) -> tuple[float, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)  # about delta: said once, in `reasons`
        result = train(
            setting.algorithm,
            world.federation,
            problem.objective,
            rounds=setting.rounds,
            privacy=problem.rehearsal(setting, epsilon),
            participation=Everyone(),
            seed=problem.seed,
            runs=runs,
            record_every=setting.rounds,
            measure_training=False,
        )
    return tuple(world.quality(model) for model in result.model)

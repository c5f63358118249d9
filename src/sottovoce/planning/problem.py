"""The problem that a plan is for, in public numbers; how good tasks were on synthetic rows; and the plan itself."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import cast

import numpy as np

from sottovoce.core import check
from sottovoce.experiment.repetitions import Interval, interval
from sottovoce.experiment.tables import Tables, describe_task, to_toml
from sottovoce.experiment.task import Task
from sottovoce.privacy import accounting
from sottovoce.privacy.events import Event
from sottovoce.privacy.modes import Proven
from sottovoce.problems.losses import Logistic
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import L2
from sottovoce.rules import Chosen, Rule
from sottovoce.rules.choice import LEANING

TO_DO = (
    "Before it runs, put your own file and columns in [data] (csv is looked for from the folder of the run file), name "
    "all labels there can be, and add the ranges that everybody knows: ranges = { column = [low, high] }. Between "
    "machines, put [clients] in place of [data], with names, columns, row_bound and records = how many there are in all"
)
GOAL = Objective(Logistic(), L2(1e-6), scale="records")
QUICK = 500_000  # synthetic rows x parameters that take little time ...
ROWS_PER_PARAMETER = 20  # ... but models of many parameters get enough rows to be learnt ...
MOST = 6_000_000  # ... up to here


@dataclass(frozen=True)
class Trial:
    """A task, and how good its models were: accuracy, or R² for regression; and AUC for two classes."""

    task: Task
    qualities: tuple[float, ...]  # one per seed
    aucs: tuple[float | None, ...] = ()

    @property
    def mean(self) -> float:
        return float(np.mean(self.qualities))

    @property
    def spread(self) -> Interval:
        return interval(np.array(self.qualities))

    @property
    def auc(self) -> float | None:
        known = [auc for auc in self.aucs if auc is not None]
        return float(np.mean(known)) if known else None


@dataclass(frozen=True)
class Problem:
    """All that is known before any row is seen.

    Parameters
    ----------
    sizes, features
        Rows of each client, and columns: public numbers.
    privacy
        The promise. If it has no clip norm, a rule chooses one.
    objective
        What will be minimised; scale "records". For regression labels are taken to lie in [-1, 1].
    row_bound
        Rows are taken to be no longer than this, and mostly that long.
    best
        Accuracy (or R²) that the best possible model reaches: how hard the synthetic problem is.
    target
        Accuracy (or R²) to reach: whether it is expected to be, and with which epsilon, is said.
    balance
        Two classes: the share of the second one. It must be public, such as a prevalence from the literature. The model
        then has an intercept, which leans on it where noise exceeds signal.
    seed
        Of the synthetic rows and of all noise.
    """

    sizes: Sequence[int]
    features: check.Whole
    privacy: Proven
    objective: Objective = GOAL
    row_bound: check.Positive = 1.0
    best: float = 0.85
    target: float | None = None
    seed: check.WholeOrZero = 0
    balance: float | None = None

    def __post_init__(self) -> None:
        who, objective, sizes = "plan", self.objective, np.asarray(self.sizes)
        check.fields(self, who)
        whole = sizes.ndim == 1 and len(sizes) > 0 and np.issubdtype(sizes.dtype, np.integer) and sizes.min() > 0
        check.require(bool(whole), who, "sizes must be a list of whole numbers >= 1", self.sizes)
        check.of_kind(who, "privacy", self.privacy, Proven, "Proven(1.0, 1e-5)")
        check.require(isinstance(objective, Objective), who, "objective must be an Objective", objective)
        check.require(objective.loss.convex, who, "is for convex losses; choose by hand for", objective.loss.name)
        guessing = 1 / max(2, objective.loss.outputs) if objective.loss.classification else 0.0
        check.between(who, guessing, 1.0, best=self.best)
        if self.target is not None:
            check.between(who, 0.0, 1.0, target=self.target)
            rule = f"target must be below best, what can be reached without privacy ({self.best:g})"
            check.require(self.target < self.best, who, rule, self.target, "Ask for less, or state a larger best")
        check.require(objective.scale == "records", who, "scale must be 'records'", objective.scale)
        if self.balance is not None:
            two = objective.loss.classification and objective.loss.outputs == 1
            check.require(two, who, "balance is for two classes and a loss of one score", objective.loss.name)
            check.between(who, 0.0, 1.0, balance=self.balance)
            larger = max(self.balance, 1 - self.balance)
            rule = f"best must exceed {larger:g}, what a constant prediction reaches at this balance"
            check.require(self.best > larger, who, rule, self.best)
            object.__setattr__(self, "objective", replace(objective, fit_intercept=True))
        object.__setattr__(self, "sizes", tuple(sizes.tolist()))
        object.__setattr__(self, "privacy", self.privacy.among(len(sizes)))

    @property
    def columns(self) -> int:
        """Columns of a row, one for the intercept included if there is one."""
        return self.features + self.objective.intercept

    @property
    def longest(self) -> float:
        """How long rows are with that column."""
        return float(np.hypot(self.row_bound, 1.0)) if self.objective.intercept else self.row_bound

    @cached_property
    def simulated_sizes(self) -> tuple[int, ...]:
        """Synthetic rows of each client: fewer than it has, where all would take too long."""
        dim = self.columns * self.objective.loss.outputs
        most = max(QUICK // dim, min(ROWS_PER_PARAMETER * dim, MOST // dim), 1)
        share = min(1.0, most / sum(self.sizes))
        return tuple(max(1, round(share * size)) for size in self.sizes[:most])

    def task(self, method: str) -> Task:
        """What the rules choose: the constants of a method, or with "auto" the method too."""
        task = Task.by_rule(Rule(method, self.balance if method in LEANING else None), self.objective, self.privacy)
        return task.ruled(np.array(self.sizes), self.columns, self.longest)

    def events(self, task: Task) -> tuple[Event, ...]:
        """One noisy answer of the real clients to each kind of question."""
        return task.plan(np.array(self.sizes), self.columns, row_bound=self.longest)

    def simulated(self, task: Task) -> Task:
        """The same with a budget that gives simulated clients the very noise of real ones with all their rows."""
        privacy = replace(cast(Proven, task.privacy), noise="seeded")  # as much noise, and much quicker
        planned, fewer = self.events(replace(task, privacy=privacy)), len(self.simulated_sizes)
        if privacy.sums and fewer < len(self.sizes):
            colluders = 0 if privacy.colluders == 0 else None
            privacy = replace(privacy, roster=None, least=None, colluders=colluders).among(fewer)
        share = sum(self.simulated_sizes) / sum(self.sizes[:fewer])
        if privacy.unit == "record" and share < 1:
            asks, spent = task.asks(), Counter[Event]()
            for part, event in zip(asks.parts, planned, strict=True):
                event = replace(event, noise_multiplier=event.noise_multiplier * share)
                spent[event] += part.rounds(task.rounds) * privacy.costs(asks, part)
            privacy = replace(privacy, epsilon=accounting.epsilon(spent, privacy.delta))
        return replace(task, privacy=privacy)


@dataclass(frozen=True)
class Plan:
    """What to do, what to expect of it, and why. `task` is what the rules chose."""

    problem: Problem
    task: Task
    expected: Interval  # of the quality; over seeds, on synthetic rows
    without_privacy: float
    auc_without_privacy: float | None
    constant: float  # what a constant prediction reaches
    noise_multiplier: float
    trials: tuple[Trial, ...]  # the chosen task, and the other methods
    left_out: tuple[str, ...]
    curve: tuple[tuple[float, float], ...] = ()  # (epsilon, quality) of the task
    independent: tuple[float, float] | None = None  # quality with and without privacy where columns are independent
    losses: tuple[float, ...] = ()  # what privacy costs on other synthetic rows, of other seeds
    sufficient_epsilon: float | None = None  # the smallest epsilon of the curve that reaches the target

    @property
    def privacy(self) -> Proven:
        return cast(Proven, self.task.privacy)

    @property
    def chosen(self) -> Chosen:
        """What the rules chose, and why."""
        return cast(Chosen, self.task.chosen)

    @property
    def loss(self) -> float:
        """What privacy is expected to cost, in accuracy (or R²)."""
        return self.without_privacy - float(self.expected.mean)

    @property
    def noise_std(self) -> float:
        """Deviation of the noise on each coordinate that a client of average size sends (or answers)."""
        weight = 1.0 if self.privacy.unit == "client" else 1 / float(np.mean(self.problem.sizes))
        return self.noise_multiplier * 2 * self.privacy.clip * weight / float(np.sqrt(self.privacy.honest))

    def run_file(self) -> str:
        """The text of a run file, with what is left to do."""
        return f"# {TO_DO}\n\n{to_toml(self.tables())}"

    def tables(self) -> Tables:
        """A run file: everything except whose rows."""
        loss = self.problem.objective.loss
        labels = ["no", "yes"] if loss.outputs <= 2 else [f"class {number}" for number in range(loss.outputs)]
        classes = {"labels": labels} if loss.classification else {}
        known = {"row_bound": self.problem.row_bound, "shorten": True}
        data = {"csv": "rows.csv", "label": "label", "owner": "owner", **classes, **known}
        return {"data": data, **describe_task(self.task), "run": {"rounds": self.task.rounds}}

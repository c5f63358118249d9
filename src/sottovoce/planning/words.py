"""What `sottovoce plan` says: why a setting was chosen, what cannot be known, and all of it as plain values."""

from collections.abc import Iterator

import numpy as np

from sottovoce.core.plain import Json
from sottovoce.experiment.tables import plain_fields
from sottovoce.experiment.task import Task
from sottovoce.planning.forecast import REPEATS
from sottovoce.planning.problem import Plan
from sottovoce.problems.objective import Objective

CANNOT_KNOW = (
    "The rows are synthetic: columns without meaning, labels that follow a model of the chosen kind, clients that are "
    "alike. Yours may be easier (a few columns decide) or harder (clients disagree, labels follow no such model).",
    "The accuracy without privacy is assumed (--best, 0.85 unless stated); what your data allow is not known.",
    "The constants cost no privacy because no private row was read. Trying several on private rows and keeping the "
    "best would, and no guarantee here covers that.",
)
_NAMED = ("step", "momentum", "local_steps", "rho", "c_w", "gamma", "share")  # constants that are printed with a method


def measure(objective: Objective) -> str:
    return "accuracy" if objective.loss.classification else "R²"


def reasons(plan: Plan) -> list[str]:
    """Why this setting, in sentences."""
    return [*_choice(plan), *_noise(plan), *_expectation(plan), *_limits(plan)]


def _choice(plan: Plan) -> Iterator[str]:
    task, others, chosen = plan.task, plan.trials[1:], plan.chosen
    setting = f"{method(task)}, clip {plan.privacy.clip:.3g}, {task.rounds} rounds"
    yield f"Chosen by rule, from sizes and the budget: {setting}. {chosen.why[:1].upper()}{chosen.why[1:]}."
    if chosen.warning:
        yield chosen.warning
    if others:
        best = max(others, key=lambda trial: trial.mean)
        yield (
            f"Tried on synthetic rows of this shape with {REPEATS} seeds; {len(others)} other methods by their own "
            f"rules with one seed each, of which {method(best.task)} was best, {best.mean:.1%}."
        )


def _noise(plan: Plan) -> Iterator[str]:
    privacy, clients = plan.privacy, len(plan.problem.sizes)
    message = "upload" if privacy.unit == "client" else "answer"
    yield f"Clip: {privacy.clip:.3g}, by the loss and the bound on rows."
    yield (
        f"Noise: {plan.noise_multiplier:.4g} times the sensitivity, a deviation of {plan.noise_std:.3g} on each "
        f"coordinate of a client's {message} and of {plan.noise_std / np.sqrt(clients):.2g} on the mean over {clients} "
        "clients."
    )
    if privacy.sums:  # who is trusted for what
        yield (
            f"Only sums are seen: over at least {privacy.least} of {privacy.roster} clients, of which at most "
            f"{privacy.colluders} share what they know with the server. The noise of {privacy.honest} honest ones "
            f"hides a {privacy.unit}, so each adds 1/√{privacy.honest} of what it would add if every message were seen."
        )


def _expectation(plan: Plan) -> Iterator[str]:
    target, mean = plan.problem.target, float(plan.expected.mean)
    yield (
        f"Expected {measure(plan.problem.objective)}: {mean:.1%}, against {plan.without_privacy:.1%} without privacy; "
        f"privacy costs {100 * plan.loss:.1f} points. A constant prediction reaches {plan.constant:.1%}."
    )
    auc = plan.trials[0].auc
    if auc is not None and plan.auc_without_privacy is not None:
        yield f"Expected AUC: {auc:.3f}, against {plan.auc_without_privacy:.3f} without privacy."
    if plan.losses:
        low, high = (100 * loss for loss in (min(plan.losses), max(plan.losses)))
        yield f"On {len(plan.losses)} other sets of synthetic rows (--seed) it cost {low:.1f} to {high:.1f} points."
    if plan.independent is not None:
        private, exact = plan.independent
        yield (
            f"That is for correlated columns, as most tables have. For independent ones: {private:.1%} against "
            f"{exact:.1%}, {100 * (exact - private):.1f} points."
        )
    if target is not None and mean < target:
        enough = plan.sufficient_epsilon
        more = "none of the budgets tried does" if enough is None else f"this setting would with epsilon = {enough:g}"
        yield f"The target of {target:.1%} is NOT reached with epsilon = {plan.privacy.epsilon:g}; {more}."


def _limits(plan: Plan) -> Iterator[str]:
    delta, simulated, sizes = plan.privacy.delta, plan.problem.simulated_sizes, plan.problem.sizes
    if len(simulated) < len(sizes):
        yield (
            f"Simulated {len(simulated)} of {len(sizes)} clients, to be quick: with all of them noise averages out "
            "better, so expect more than is said here."
        )
    elif sum(simulated) < sum(sizes):
        some = f"Simulated {sum(simulated)} of {sum(sizes)} rows"
        yield f"{some}, to be quick, under the noise that all of them will have."
    if plan.privacy.unit == "record" and delta >= 1 / max(sizes):
        yield (
            f"delta = {delta:g} is not below 1/rows of the largest client: such a delta would allow giving one "
            "record away; use a smaller one."
        )
    yield from (f"Left out {each}" for each in plan.left_out)


def to_dict(plan: Plan) -> Json:
    """Plain values, for JSON."""
    problem, target, independent = plan.problem, plan.problem.target, plan.independent
    return {
        "clients": len(problem.sizes),
        "rows": int(sum(problem.sizes)),
        "features": problem.features,
        "measure": measure(problem.objective),
        "target": target,
        "target_reached": None if target is None else bool(plan.expected.mean >= target),
        "epsilon_for_target": plan.sufficient_epsilon,
        "algorithm": _algorithm(plan.task),
        "rounds": plan.task.rounds,
        "privacy": plain_fields(plan.privacy),
        "noise_multiplier": plan.noise_multiplier,
        "noise_std": plan.noise_std,
        "expected": plan.expected.plain(),
        "without_privacy": plan.without_privacy,
        "constant": plan.constant,
        "balance": problem.balance,
        "auc": plan.trials[0].auc,
        "auc_without_privacy": plan.auc_without_privacy,
        "why": plan.chosen.why,
        "warning": plan.chosen.warning,
        "expected_loss": plan.loss,
        "losses_in_other_worlds": list(plan.losses),
        "independent_columns": independent and {"expected": independent[0], "without_privacy": independent[1]},
        "curve": [{"epsilon": epsilon, "expected": quality} for epsilon, quality in plan.curve],
        "tried": [
            {
                "algorithm": _algorithm(trial.task),
                "words": method(trial.task),
                "rounds": trial.task.rounds,
                "clip": trial.task.privacy.cut[1],
                "mean": trial.mean,
                "auc": trial.auc,
                "seeds": len(trial.qualities),
            }
            for trial in plan.trials
        ],
        "left_out": list(plan.left_out),
        "reasons": reasons(plan),
        "cannot_know": list(CANNOT_KNOW),
    }


def method(task: Task) -> str:
    """A method with its constants."""
    constants = {name: value for name, value in plain_fields(task.algorithm).items() if name in _NAMED}
    listed = ", ".join(f"{name} {value:.3g}" for name, value in constants.items() if not isinstance(value, str))
    return f"{task.algorithm.name} ({listed})" if listed else task.algorithm.name


def _algorithm(task: Task) -> dict[str, object]:
    return {"name": task.algorithm.name, **plain_fields(task.algorithm)}

"""What `sottovoce plan` says: why a setting was chosen, what cannot be known, and all of it as plain values."""

from typing import Any

import numpy as np

from sottovoce.experiment.tables import plain_fields
from sottovoce.planning.forecast import LEFT_AFTER, REPEATS, Plan
from sottovoce.problems.objective import Objective

CANNOT_KNOW = (
    "The rows were made up: columns without meaning, labels that follow a model of the chosen kind, clients that are "
    "alike. Yours may be easier (a few columns decide) or harder (clients disagree, labels follow no such model).",
    "The accuracy without privacy is assumed (--best, 0.85 unless stated); what your data allow is not known.",
    "The constants cost no privacy because no private row was read. Trying several on private rows and keeping the "
    "best would, and no guarantee here covers that.",
)


def measure(objective: Objective) -> str:
    return "accuracy" if objective.loss.classification else "R²"


def reasons(plan: Plan) -> list[str]:
    """Why this setting, in sentences."""
    problem, setting, what = plan.problem, plan.setting, measure(plan.problem.objective)
    mean, target = float(plan.expected.mean), problem.target
    methods = sorted({trial.setting.algorithm.name for trial in plan.trials})
    said = [
        f"Tried {len(plan.trials)} settings of {', '.join(methods)} on made-up rows of this shape; the last "
        f"{LEFT_AFTER[1]} with {REPEATS} seeds each."
    ]
    best = max((trial for trial in plan.trials if len(trial.qualities) == REPEATS), key=lambda trial: trial.mean)
    if target is not None and mean >= target:
        said.append(f"{setting} reaches the target of {target:.1%} with the fewest rounds.")
    elif best.setting == setting:
        said.append(f"{setting} was the best, or as good as the best and with fewer rounds.")
    else:
        said.append(f"{setting} has fewer rounds than the best, {best.setting}, and is at most half a point behind it.")
    clips: dict[float, float] = {}
    for trial in plan.trials:
        clips[trial.setting.clip] = max(trial.mean, clips.get(trial.setting.clip, -np.inf))
    listed = ", ".join(f"{clip:.3g}: {quality:.1%}" for clip, quality in sorted(clips.items()))
    said.append(
        f"Clip: noise grows with it and bias shrinks. The best {what} that any setting reached by clip: {listed}."
    )
    unit = f"each coordinate of a client's {'upload' if problem.unit == 'client' else 'answer'}"
    said.append(
        f"Noise: {plan.noise_multiplier:.4g} times the sensitivity, a deviation of {plan.noise_std:.3g} on {unit} and "
        f"of {plan.noise_std / np.sqrt(len(problem.sizes)):.2g} on the mean over {len(problem.sizes)} clients."
    )
    said.append(
        f"Expected {what}: {mean:.1%}, against {plan.without_privacy:.1%} without privacy; privacy costs "
        f"{100 * plan.loss:.1f} points."
    )
    if plan.losses:
        low, high = (100 * loss for loss in (min(plan.losses), max(plan.losses)))
        said.append(f"In {len(plan.losses)} other made-up worlds (--seed) it cost {low:.1f} to {high:.1f} points.")
    if plan.independent is not None:
        there, without = plan.independent
        said.append(
            f"That is for correlated columns, as most tables have. For independent ones: {there:.1%} against "
            f"{without:.1%}, {100 * (without - there):.1f} points."
        )
    if target is not None and mean < target:
        more = "none of the budgets tried does"
        if plan.enough is not None:
            more = f"this setting would with epsilon = {plan.enough:g}"
        said.append(f"The target of {target:.1%} is NOT reached with epsilon = {problem.epsilon:g}; {more}.")
    if len(problem.rehearsed) < len(problem.sizes):
        said.append(
            f"Simulated {len(problem.rehearsed)} of {len(problem.sizes)} clients, to be quick: with all of them noise "
            "averages out better, so expect more than is said here."
        )
    elif sum(problem.rehearsed) < sum(problem.sizes):
        said.append(
            f"Made up {sum(problem.rehearsed)} rows for {sum(problem.sizes)}, to be quick, under the noise that all of "
            "them will have."
        )
    if problem.unit == "record" and problem.delta >= 1 / max(problem.sizes):
        said.append(
            f"delta = {problem.delta:g} is not below 1/rows of the largest client: such a delta would allow giving one "
            "record away; use a smaller one."
        )
    said += [f"Left out {each}" for each in plan.left_out]
    return said


def to_dict(plan: Plan) -> dict[str, Any]:
    """Plain values, for JSON."""
    problem = plan.problem
    return {
        "clients": len(problem.sizes),
        "rows": int(sum(problem.sizes)),
        "features": problem.features,
        "measure": measure(problem.objective),
        "target": problem.target,
        "target_reached": None if problem.target is None else bool(plan.expected.mean >= problem.target),
        "epsilon_for_target": plan.enough,
        "algorithm": {"name": plan.algorithm.name, **plain_fields(plan.algorithm)},
        "rounds": plan.rounds,
        "privacy": plain_fields(plan.privacy),
        "noise_multiplier": plan.noise_multiplier,
        "noise_std": plan.noise_std,
        "expected": plan.expected.plain(),
        "without_privacy": plan.without_privacy,
        "expected_loss": plan.loss,
        "losses_in_other_worlds": list(plan.losses),
        "independent_columns": None
        if plan.independent is None
        else {"expected": plan.independent[0], "without_privacy": plan.independent[1]},
        "curve": [{"epsilon": epsilon, "expected": quality} for epsilon, quality in plan.curve],
        "tried": [
            {
                "algorithm": {"name": trial.setting.algorithm.name, **plain_fields(trial.setting.algorithm)},
                "words": trial.setting.method,
                "rounds": trial.setting.rounds,
                "clip": trial.setting.clip,
                "mean": trial.mean,
                "seeds": len(trial.qualities),
            }
            for trial in plan.trials
        ],
        "left_out": list(plan.left_out),
        "reasons": reasons(plan),
        "cannot_know": list(CANNOT_KNOW),
    }

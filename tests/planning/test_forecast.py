"""Plans: chosen without data, the same every time, honest about targets; and files that run."""

import json
import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from sottovoce import rules
from sottovoce.algorithms import ALGORITHMS, DPSGD, FedPLT, NoisyGD
from sottovoce.core.check import InvalidInput
from sottovoce.experiment import run_file
from sottovoce.experiment.tables import read_tables, to_toml
from sottovoce.experiment.task import Task
from sottovoce.planning import forecast, synthetic, words
from sottovoce.planning import problem as problems
from sottovoce.planning.problem import GOAL, Plan, Problem
from sottovoce.privacy.modes import Proven
from sottovoce.problems.losses import Logistic, Softmax, Squared
from sottovoce.problems.objective import Objective
from sottovoce.problems.penalties import L2
from sottovoce.rules import PublicNumbers
from tests.command_line import invoke

SIZES, FEATURES = (30,) * 4, 3
BUDGET: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-3}
GOALS = [Objective(loss, scale="records") for loss in (Logistic(), Softmax(3), Squared())]


def a_problem(**known: Any) -> Problem:
    """One with this promise and these public numbers; for the rest there are usual ones."""
    promise = {field.name: known.pop(field.name) for field in fields(Proven) if field.name in known}
    return Problem(**({"sizes": SIZES, "features": FEATURES} | known), privacy=Proven(**promise))


def choose(**known: Any) -> Plan:
    return forecast.choose(a_problem(**known))


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few test rows, and three methods beside the chosen one; `test_every_method_is_tried` has all."""
    monkeypatch.setattr(synthetic, "TEST_ROWS", 400)
    monkeypatch.setattr(forecast, "METHODS", ("auto", "noisy-gd", "dp-sgd", "dp-admm", "moments"))
    synthetic.world_of.cache_clear()


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.loss.name)
def test_synthetic_rows_are_as_hard_as_asked_and_as_long_as_promised(goal: Objective) -> None:
    for spectrum in ("correlated", "independent"):
        problem = Problem([300, 200], 4, Proven(1.0, 1e-5), goal, row_bound=2.0, best=0.8, seed=1)
        world = synthetic.world_of(problem, spectrum)
        assert world.federation.sizes.tolist() == [300, 200]
        np.testing.assert_allclose(np.linalg.norm(world.federation.X, axis=1), 2.0, rtol=1e-8)
        truth = world.truth.max(axis=1).mean() if goal.loss.classification else 9 * world.truth.var()
        assert truth == pytest.approx(0.8, abs=0.05 if goal.loss.classification else 0.2)
        reached = world.quality(world.optimum())
        assert 0.7 < reached <= 0.8 + (0.001 if goal.loss.classification else 0.05)
        assert world.quality(0 * world.optimum()) < 0.65


def test_classes_are_balanced_as_asked_and_as_hard() -> None:
    world = synthetic.world_of(Problem([3000], 4, Proven(1.0, 1e-5), best=0.9, seed=1, balance=0.2))
    assert world.truth[:, 1].mean() == pytest.approx(0.2, abs=1e-6)
    assert world.truth.max(axis=1).mean() == pytest.approx(0.9, abs=1e-6)
    assert world.constant() == pytest.approx(0.8, abs=1e-6)
    assert world.quality(world.optimum()) == pytest.approx(0.9, abs=0.01)


def test_quality_and_auc_are_what_drawn_labels_say_on_average() -> None:
    goal = Objective(Logistic(), scale="records")
    world = synthetic.world_of(Problem([500], 4, Proven(1.0, 1e-5), goal, best=0.8, seed=2))
    model = world.optimum() + np.array([3.0, 0.0, -2.0, 0.0])
    rng = np.random.default_rng(0)
    said = goal.loss.predict(goal.loss.scores(world.test, model))
    labels = np.where(rng.random((2000, len(world.test))) < world.truth[:, 1], 1.0, -1.0)
    assert (labels == said).mean() == pytest.approx(world.quality(model), abs=3e-3)
    scores = goal.loss.scores(world.test, model)
    drawn = np.mean([roc_auc_score(one, scores) for one in labels[:300]])
    assert world.auc(model) == pytest.approx(drawn, abs=5e-3)


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.loss.name)
def test_a_plan_is_what_the_rules_choose_and_runs_as_a_file(goal: Objective) -> None:
    chosen = choose(objective=goal, **BUDGET)
    assert (chosen.privacy.epsilon, chosen.privacy.delta) == (4.0, 1e-3)
    by_rule = rules.choose(PublicNumbers(120, 4, 3, 4.0, 1e-3, loss=goal.loss, largest=30))
    assert (chosen.task.algorithm, chosen.task.rounds, chosen.privacy.clip) == (
        by_rule.algorithm,
        by_rule.rounds,
        by_rule.clip,
    )
    assert chosen.trials[0].task == chosen.task
    assert len(chosen.trials[0].qualities) == forecast.REPEATS
    tables = tomllib.loads(to_toml(chosen.tables()))
    task, settings = run_file.build_task(tables, "plan")
    assert (task.algorithm, task.privacy, task.objective) == (chosen.task.algorithm, chosen.privacy, goal)
    assert settings.rounds == task.rounds == chosen.task.rounds
    assert task.chosen == by_rule.chosen
    events = chosen.privacy.plan(chosen.task.algorithm.asks(), chosen.task.rounds, np.array(SIZES))
    assert chosen.noise_multiplier == events[-1].noise_multiplier


def test_every_method_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the registry: what is proven for rows is tried, or it is said why not."""
    monkeypatch.setattr(forecast, "METHODS", rules.METHODS)
    chosen = choose(**BUDGET)
    tried = {trial.task.algorithm.name for trial in chosen.trials} | {said.split(":")[0] for said in chosen.left_out}
    assert tried == {name for name, kind in ALGORITHMS.items() if kind.layout == "rows" and "proven" in kind.modes}


def test_the_same_question_gets_the_same_answer_and_another_seed_its_own() -> None:
    first = words.to_dict(choose(**BUDGET))
    synthetic.world_of.cache_clear()
    assert words.to_dict(choose(sizes=list(SIZES), **BUDGET)) == first
    assert words.to_dict(choose(seed=1, **BUDGET))["tried"] != first["tried"]


def test_fewer_rows_are_simulated_sizes_under_the_noise_that_all_will_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problems, "QUICK", 600)
    monkeypatch.setattr(problems, "ROWS_PER_PARAMETER", 1)
    problem = Problem((100, 300), 3, Proven(1.0, 1e-4))
    assert problem.simulated_sizes == (50, 150)
    for method in (DPSGD(), FedPLT(variant="B")):
        task = Task(method, GOAL, Proven(1.0, 1e-4, 0.5), rounds=20)
        noises = []
        for own, sizes in ((task, problem.sizes), (problem.simulated(task), problem.simulated_sizes)):
            event = own.privacy.plan(method.asks(), 20, np.array(sizes), row_bound=1.0)[0]
            noises.append(event.noise_multiplier / np.array(sizes))
        np.testing.assert_allclose(noises[1], noises[0], rtol=1e-6)
    whole = Problem((100, 300), 3, Proven(1.0, 1e-4, unit="client"))
    task = replace(task, privacy=Proven(1.0, 1e-4, 0.5, unit="client"))
    assert whole.simulated(task) == task


def test_a_budget_per_client_is_planned_with_clipped_uploads() -> None:
    chosen = choose(unit="client", **BUDGET)
    assert chosen.task.algorithm.name == "noisy-gd"
    assert chosen.privacy == Proven(4.0, 1e-3, 0.25, unit="client")


def test_secure_noise_is_planned_for() -> None:
    chosen = choose(noise="secure", **BUDGET)
    assert chosen.privacy.noise == "secure"
    event = chosen.problem.events(chosen.task)[-1]
    assert event.mechanism == "discrete-gaussian"
    assert chosen.noise_multiplier == event.noise_multiplier


def test_a_target_that_cannot_be_reached_is_told() -> None:
    chosen = forecast.forecast(choose(epsilon=0.01, delta=1e-3, target=0.84))
    said = " ".join(words.reasons(chosen))
    assert "NOT reached with epsilon = 0.01" in said
    assert words.to_dict(chosen)["target_reached"] is False
    assert chosen.loss > 0.1
    easy = choose(epsilon=1000.0, delta=1e-3, target=0.7)
    assert words.to_dict(easy)["target_reached"] is True


def test_what_a_constant_prediction_reaches_is_told() -> None:
    chosen = choose(epsilon=0.05, delta=1e-3, balance=0.2, best=0.9)
    said = " ".join(words.reasons(chosen))
    assert "A constant prediction reaches 80.0%" in said
    assert "with 120 records at epsilon = 0.05 a constant prediction may do as well" in said
    assert "Expected AUC: " in said
    assert words.to_dict(chosen)["constant"] == pytest.approx(0.8, abs=1e-3)


@pytest.mark.parametrize("features", [1, 3])
def test_a_stated_balance_is_the_base_rate_that_the_intercept_leans_on(features: int) -> None:
    """With one column too; and the run file has the intercept that leans."""
    known: dict[str, Any] = {"features": features, "epsilon": 0.05, "delta": 1e-3, "best": 0.79}
    chosen, plain = choose(balance=0.3, **known), choose(**known)
    public = PublicNumbers(120, 4, features + 1, 0.05, 1e-3, row_bound=np.sqrt(2), largest=30, base_rate=0.3)
    assert chosen.task.algorithm == rules.choose(public).algorithm
    assert isinstance(chosen.task.algorithm, NoisyGD)
    assert chosen.task.algorithm.lean == pytest.approx(np.log(0.3 / 0.7), rel=0.1)
    assert isinstance(plain.task.algorithm, NoisyGD)
    assert plain.task.algorithm.lean == 0
    assert chosen.expected.mean > 0.65
    task = run_file.build_task(tomllib.loads(to_toml(chosen.tables())), "plan")[0]
    assert task.objective.intercept
    assert task.algorithm == chosen.task.algorithm


def test_a_forecast_is_made_in_the_world_of_the_choice_and_in_others() -> None:
    chosen = forecast.forecast(choose(**BUDGET))
    assert [budget for budget, _ in chosen.curve] == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert chosen.curve[2][1] == chosen.expected.mean
    here = synthetic.world_of(chosen.problem, "correlated")
    assert chosen.without_privacy == here.quality(here.optimum())
    for epsilon, quality in (chosen.curve[0], chosen.curve[-1]):
        other_budget = replace(chosen.problem, privacy=replace(chosen.problem.privacy, epsilon=epsilon))
        assert quality == forecast._tried(other_budget.task("auto"), here, other_budget, 2).mean
    other = synthetic.world_of(chosen.problem, "independent")
    assert chosen.independent is not None
    assert chosen.independent[1] == other.quality(other.optimum()) != chosen.without_privacy
    assert len(set(chosen.losses)) == forecast.OTHER_WORLDS


def test_a_delta_that_gives_a_record_away_is_told() -> None:
    said = words.reasons(choose(epsilon=4.0, delta=0.1))
    assert any("giving one record away" in line for line in said)


BAD = {
    "sizes": ({"sizes": []}, "sizes must be"),
    "a size": ({"sizes": [3, 0]}, "sizes must be"),
    "features": ({"features": 0}, "features must be a whole number"),
    "epsilon": ({"epsilon": -1.0}, "epsilon must be > 0"),
    "unit": ({"unit": "records"}, "Did you mean 'record'"),
    "best": ({"best": 0.4}, r"best must lie in \(0.5, 1\)"),
    "target": ({"target": 0.9}, "target must be below best"),
    "scale": ({"objective": Objective(Logistic(), L2(1.0), "sum")}, "scale must be 'records'"),
    "balance": ({"balance": 0.1}, "best must exceed 0.9, what a constant prediction reaches"),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_questions_are_refused(case: str) -> None:
    change, rule = BAD[case]
    with pytest.raises(InvalidInput, match=rule):
        choose(**(BUDGET | change))


def command(*more: str) -> list[str]:
    return ["plan", "--clients", "4", "--rows", "30", "--features", "3", "--epsilon", "4", "--delta", "1e-3", *more]


def test_the_command_writes_what_it_says(tmp_path: Path) -> None:
    out = tmp_path / "plan"
    done = invoke(command("--target", "0.8", "--json", "--out", str(out)))
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    saved = json.loads((out / "plan.json").read_text())
    assert {"folder": str(out), **saved} == said
    assert [point["epsilon"] for point in said["curve"]] == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert (out / "plan.png").read_bytes()[:4] == b"\x89PNG"
    task = run_file.build_task(read_tables(out / "run.toml", run_file.TABLES), "run.toml")[0]
    assert task.algorithm.name == said["algorithm"]["name"]
    assert (out / "run.toml").read_text().startswith("# Before it runs, put your own file")
    shown = invoke(command("--out", str(tmp_path / "again")))
    assert "synthetic rows" in shown.output
    assert "cannot know" in shown.output
    assert "without privacy" in shown.output
    for text in (" ".join(shown.output.split()), (out / "run.toml").read_text()):
        assert "ranges = { column = [low, high] }" in text
        assert "csv is looked for from the folder of the run file" in text
        assert "name all labels there can be" in text
    assert tomllib.loads((out / "run.toml").read_text())["data"]["labels"] == ["no", "yes"]
    assert "without privacy is assumed (--best, 0.85 unless stated)" in " ".join(shown.output.split())


def test_the_run_file_runs_on_a_table_of_one_s_own(tmp_path: Path) -> None:
    out = tmp_path / "plan"
    assert invoke(command("--quiet", "--out", str(out))).exit_code == 0
    rng = np.random.default_rng(0)
    rows = [",".join(["a", "b", "c", "label", "owner"])]
    rows += [
        f"{x[0]},{x[1]},{x[2]},{'yes' if x.sum() > 0 else 'no'},h{i % 4}"
        for i, x in enumerate(rng.normal(size=(80, 3)))
    ]
    (out / "rows.csv").write_text("\n".join(rows))
    known = "ranges = { a = [-3, 3], b = [-3, 3], c = [-3, 3] }"
    text = (out / "run.toml").read_text()
    (out / "run.toml").write_text(text.replace("[data]\n", f"[data]\n{known}\n"))
    done = invoke(["run", str(out / "run.toml"), "--out", str(tmp_path / "run"), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["guarantee"]["epsilon"] <= 4.0


def test_bad_input_ends_with_code_2_and_leaves_nothing(tmp_path: Path) -> None:
    for more in (("--clients", "0"), ("--loss", "logistik"), ("--target", "0.99"), ("--unit", "person")):
        done = invoke(command(*more, "--out", str(tmp_path / "no")))
        assert done.exit_code == 2, done.output
        assert not (tmp_path / "no").exists()


def test_a_plan_for_sums_says_who_is_trusted_and_its_file_runs_with_less_noise(tmp_path: Path) -> None:
    known: dict[str, Any] = BUDGET | {"sizes": (40,) * 6}
    plan, alone = choose(**known, observer="sums"), choose(**known)
    assert "over at least 6 of 6 clients, of which at most 2 share" in " ".join(words.reasons(plan))
    assert plan.noise_std < alone.noise_std
    assert {trial.task.algorithm.name for trial in plan.trials} <= {
        *("noisy-gd", "dp-sgd", "moments", "moments-then-gradients")
    }
    told = tomllib.loads(plan.run_file())["privacy"]
    assert (told["observer"], told["least"], told["colluders"], told["roster"]) == ("sums", 6, 2, 6)
    with pytest.raises(InvalidInput, match="colluders must be fewer than least"):
        a_problem(**known, observer="sums", least=3, colluders=3)

"""The private estimate on held-out records: who is held out, how far a record moves the counts, what it costs."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.algorithms import DPADMM, DPSGD, FedPLT, NoisyGD
from sottovoce.auditing.verify import BROKEN
from sottovoce.core.check import InvalidInput, NoGuarantee
from sottovoce.core.histogram import Evaluation, sensitivity
from sottovoce.core.random.streams import Streams
from sottovoce.experiment.task import Task
from sottovoce.experiment.train import local_clients
from sottovoce.ledger.budget import LedgerError
from sottovoce.ledger.split_key import KEY
from sottovoce.privacy import accounting
from sottovoce.privacy.discrete_noise import GRID_STEPS
from sottovoce.problems.metrics import class_numbers
from sottovoce.problems.rows.held_out import HeldOut

GOAL = sv.Objective(sv.Logistic(), sv.L2(0.01))
PRIVACY = sv.Proven(epsilon=2.0, delta=1e-5, clip=1.0)


def rows(records: int = 300, clients: int = 3, seed: int = 0) -> sv.Federation:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.5, 0.5, (records, 3))
    X[:, 2] = 0.5
    y = np.where(X[:, 0] + 0.2 * rng.normal(size=records) > 0.1, 1.0, -1.0)
    return sv.Federation.from_arrays(X, y, groups=np.arange(records) % clients, row_bound=1.0)


def trained(federation: sv.Federation | None = None, privacy: Any = PRIVACY, **given: Any) -> sv.Result:
    asked: dict[str, Any] = {"rounds": 4, "seed": 0, "evaluate": True, "engine": "numpy"} | given
    return sv.train(NoisyGD(), federation or rows(), GOAL, privacy=privacy, **asked)


def clients_of(federation: sv.Federation, privacy: Any = PRIVACY, evaluate: Evaluation | None = None) -> Any:
    task = Task(NoisyGD(), GOAL, privacy, rounds=4, engine="numpy", evaluate=evaluate or Evaluation())
    return local_clients(task, federation, Streams(0))


# -------------------------------------------------------------------------------------------------- who is held out


def test_positions_follow_from_the_key_and_the_size_alone() -> None:
    evaluation = Evaluation(held_out=0.3)
    chosen = evaluation.positions(b"secret", 1000)
    assert np.count_nonzero(chosen) == 300 == 1000 - evaluation.training_sizes(np.array([1000]))[0]
    assert np.array_equal(chosen, evaluation.positions(b"secret", 1000))
    assert not np.array_equal(chosen, evaluation.positions(b"other", 1000))
    more = Evaluation(held_out=0.5).positions(b"secret", 1000)
    assert np.all(more[chosen])  # what a smaller share holds out, a larger one does too
    halves = chosen.reshape(2, -1).sum(axis=1)
    assert abs(halves[0] - halves[1]) < 60  # four deviations: no matter how rows are sorted


def test_these_positions_stay_the_same_over_versions() -> None:
    """Else a later version would train on records that an earlier one held out."""
    chosen = Evaluation(held_out=0.25).positions(b"secret", 20)
    assert np.flatnonzero(chosen).tolist() == POSITIONS


POSITIONS = [2, 4, 12, 15, 16]


@pytest.mark.parametrize("size", [2, 3, 7])
def test_small_owners_keep_a_record_on_each_side(size: int) -> None:
    for share in (0.01, 0.5, 0.99):
        assert 0 < np.count_nonzero(Evaluation(held_out=share).positions(b"", size)) < size


def test_training_does_not_see_held_out_records() -> None:
    place = clients_of(rows())
    held: HeldOut = place.door.held
    together = np.concatenate([place.exact.X, held.X])
    assert len(held.X) == 60
    assert np.array_equal(np.unique(together, axis=0), np.unique(rows().X, axis=0))


# ------------------------------------------------------------------------------------------------------- sensitivity


@pytest.mark.parametrize("relation", ["replace-one", "add-remove"])
@pytest.mark.parametrize("noise", ["seeded", "discrete"])
def test_one_record_moves_the_counts_or_the_training_never_both_and_no_further_than_is_charged(
    relation: Any, noise: Any
) -> None:
    """Every record in turn, replaced by its worst neighbour, behind the true door."""
    privacy, federation = replace(PRIVACY, relation=relation, noise=noise), rows(20, 1)
    w, farthest = np.array([[3.0, -1.0, -0.2]]), 0.0
    first = exact_answers(federation, privacy, w)
    for record in range(20):
        X, y = federation.X.copy(), federation.y.copy()
        if relation == "replace-one":
            X[record, :2], y[record] = -X[record, :2] + 0.1, -y[record]
        else:
            X[record] = 0.0
        other = exact_answers(replace(federation, X=X, y=y), privacy, w)
        moved = [float(np.linalg.norm(a - b)) for a, b in zip(first, other, strict=True)]
        assert min(moved) == 0.0  # a record is on one side
        farthest = max(farthest, moved[1])
    reach = sensitivity(relation == "replace-one")
    assert farthest == pytest.approx(reach)  # attained
    assert reach == {"replace-one": 2.0, "add-remove": math.sqrt(2)}[relation]


def exact_answers(federation: sv.Federation, privacy: Any, w: np.ndarray) -> list[np.ndarray]:
    """A gradient and the counts as they are before noise, in units of records."""
    place, exact = clients_of(federation, privacy), []
    place.door.intercept = lambda answer, *made_of: exact.append(made_of[0]) or answer
    everyone = np.ones(1, dtype=bool)
    place.door.open(np.arange(1), everyone, 1)[0].grad(w)
    place.evaluate(w)
    return exact


def test_noise_has_the_deviation_that_is_stated() -> None:
    for noise in ("seeded", "discrete"):
        place = clients_of(rows(), replace(PRIVACY, noise=noise))
        gone: list[float] = []
        place.door.intercept = lambda answer, exact, scale, kind, gone=gone: (
            gone.extend(((answer - exact) / scale).ravel()) or answer
        )
        place.evaluate(np.zeros((1, 3)))
        event = place.door.events[-1]
        assert len(gone) == 3 * 24
        assert 0.75 < np.std(gone) < 1.25
        if noise == "discrete":
            assert event.sensitivity == 2 * GRID_STEPS
            assert event.coordinates == 24


# -------------------------------------------------------------------------------------------------------------- cost


@pytest.mark.parametrize(
    "method", [NoisyGD(), DPADMM(), DPSGD(batch=10), FedPLT(variant="B")], ids=lambda method: method.name
)
@pytest.mark.parametrize("share", [0.05, 0.5])
def test_the_whole_run_costs_the_budget(method: Any, share: float) -> None:
    result = sv.train(method, rows(), GOAL, rounds=3, privacy=PRIVACY, seed=0, evaluate=Evaluation(share=share))
    assert result.charges is not None
    assert result.guarantee.epsilon is not None
    assert 2.0 * (1 - 1e-3) <= result.guarantee.epsilon <= 2.0
    *_, counts = result.charges.planned
    assert 1 / counts.noise_multiplier**2 == pytest.approx(share / one_answer() ** 2, rel=1e-6)  # of mu²
    assert sum((result.charges.histories[0].spent() or {}).values()) == 4
    assert "noisy counts of held-out records" in result.guarantee.theorem


def one_answer() -> float:
    """The noise multiplier of a single answer for the whole budget."""
    from sottovoce.privacy.events import Event

    return accounting.with_least_noise(Event("gaussian", 1.0), 2.0, 1e-5, 1).noise_multiplier


def test_an_owner_without_budget_left_is_not_counted(tmp_path: Path) -> None:
    folder = tmp_path / "ledgers"
    first = trained(ledgers=folder)
    assert first.evaluation is not None
    assert first.evaluation.owners == 3
    again = trained(ledgers=folder)
    assert again.rounds == 0
    assert again.evaluation is None


# ------------------------------------------------------------------------------------------------------- the estimate


def test_intervals_cover_the_exact_numbers_end_to_end() -> None:
    """Many runs of the true code, each with a model and noise of its own, beside exact counts of the same records."""
    federation, privacy = rows(1200), sv.Proven(epsilon=8.0, delta=1e-5, clip=1.0)
    result = trained(federation, privacy, runs=400, measure_training=False)
    held: HeldOut = clients_of(federation).door.held
    hits = dict.fromkeys(result.evaluations[0].estimates, 0)
    for w, found in zip(result.model, result.evaluations, strict=True):
        exact = replace(found, counts=held.counts(w[None], np.arange(3), False).sum(axis=0), deviation=0.0)
        for name, estimate in found.estimates.items():
            number = exact.estimates[name].value
            hits[name] += bool(estimate.low - 1e-12 <= number <= estimate.high + 1e-12)
    assert min(hits.values()) >= 0.925 * 400, hits  # 95 % less two deviations


def test_counts_by_hand() -> None:
    X = np.array([[2.0], [-2.0], [0.1], [0.0]])
    held = HeldOut(X, np.array([1.0, 1.0, -1.0, -1.0]), np.array([0, 4]), sv.Logistic(), Evaluation(bins=4))
    table, bins = np.split(held.counts(np.ones((1, 1)), np.arange(1), False)[0], [4])
    assert table.tolist() == [0, 2, 1, 1]  # probabilities 0.88, 0.12, 0.52, 0.5
    assert bins.reshape(2, 2, 2).tolist() == [[[0, 0], [2, 0]], [[0, 1], [0, 1]]]
    without = held.counts(np.ones((1, 1)), np.arange(1), True)[0]
    assert without.sum() == 6  # the row of zeros is a blank where records are there or not
    strict = HeldOut(X, held.y, held.offsets, held.loss, Evaluation(bins=4, threshold=0.9))
    assert strict.counts(np.ones((1, 1)), np.arange(1), False)[0, :4].tolist() == [2, 0, 2, 0]


@pytest.mark.parametrize("loss", [sv.Logistic(), sv.SmoothedHinge(), sv.Softmax(2), sv.Softmax(3)], ids=str)
@pytest.mark.parametrize("calibration", [1.0, 0.7])
def test_counts_are_of_the_classes_that_the_loss_predicts(loss: Any, calibration: float) -> None:
    """Also where scores are equal, or so close that their probabilities are."""
    X = np.array([[0.0], [1e-18], [-1e-18], [1.0], [-1.0]])
    w = np.arange(loss.outputs, dtype=np.float64)[None] if loss.outputs > 1 else np.ones((1, 1))
    labels = np.zeros(5) if loss.outputs > 1 else -np.ones(5)
    held = HeldOut(X, labels, np.array([0, 5]), loss, Evaluation(bins=4), None, calibration)
    classes = max(2, loss.outputs)
    table = held.counts(w, np.arange(1), False)[0, : classes**2].reshape(classes, classes)
    predicted = class_numbers(loss, loss.predict(loss.scores(X, w[0])))
    assert table[0].tolist() == np.bincount(predicted, minlength=classes).tolist()


def test_several_classes_and_no_probabilities() -> None:
    federation = replace(rows(), y=np.arange(300) % 3)
    goal = sv.Objective(sv.Softmax(3), sv.L2(0.01))
    found = sv.train(NoisyGD(), federation, goal, rounds=3, privacy=PRIVACY, seed=0, evaluate=True).evaluation
    assert found is not None
    assert found.table.shape == (3, 3)
    assert "auc" not in found.estimates
    assert "calibration_gap" in found.estimates
    two = sv.Objective(sv.Softmax(2), sv.L2(0.01))
    halves = replace(rows(), y=np.arange(300) % 2)
    found = sv.train(NoisyGD(), halves, two, rounds=3, privacy=PRIVACY, seed=0, evaluate=True).evaluation
    assert found is not None
    assert {"auc", "calibration_gap"} <= set(found.estimates)
    hinge = sv.Objective(sv.SmoothedHinge(), sv.L2(0.01))
    found = sv.train(NoisyGD(), rows(), hinge, rounds=3, privacy=PRIVACY, seed=0, evaluate=True).evaluation
    assert found is not None
    assert "auc" in found.estimates
    assert "calibration_gap" not in found.estimates


def test_a_saved_run_keeps_its_estimate_and_verifies(tmp_path: Path) -> None:
    result = trained()
    folder = result.save(tmp_path / "run")
    again = sv.load_result(folder)
    assert again.evaluation is not None
    assert result.evaluation is not None
    assert str(again.evaluation) == str(result.evaluation)
    assert again.config["evaluate"] == {"share": 0.05, "held_out": 0.2, "bins": 10, "threshold": 0.5}
    assert sv.verify(folder).holds
    said = json.loads((folder / "evaluation.json").read_text())
    said["runs"][0]["estimates"]["accuracy"]["value"] = 0.99
    (folder / "evaluation.json").write_text(json.dumps(said))
    broken = {check.about for check in sv.verify(folder).checks if check.status == BROKEN}
    assert broken == {"files", "seal", "evaluation"}


def test_the_same_run_has_the_same_estimate_and_another_seed_holds_out_others() -> None:
    one, same, other = trained(), trained(), trained(seed=1)
    assert one.evaluation is not None
    assert same.evaluation is not None
    assert other.evaluation is not None
    assert np.array_equal(one.evaluation.counts, same.evaluation.counts)
    assert not np.array_equal(one.evaluation.counts, other.evaluation.counts)


def test_a_resumed_run_ends_with_the_same_estimate() -> None:
    kept: list[Any] = []
    whole = trained(after_round=kept.append)
    again = trained(resume=kept[1])
    assert whole.evaluation is not None
    assert again.evaluation is not None
    assert np.array_equal(whole.evaluation.counts, again.evaluation.counts)


def held_by(folder: Path, streams: Streams) -> np.ndarray:
    task = Task(NoisyGD(), GOAL, PRIVACY, rounds=4, engine="numpy", evaluate=Evaluation())
    place = local_clients(task, rows(), streams, ledgers=folder)
    place.close()
    return place.door.held.X


def test_all_runs_on_one_folder_of_ledgers_hold_out_the_same_records(tmp_path: Path) -> None:
    first = held_by(tmp_path / "ledgers", Streams(0))
    for streams in (Streams(1), Streams.unpredictable()):
        assert np.array_equal(held_by(tmp_path / "ledgers", streams), first)
    assert not np.array_equal(held_by(tmp_path / "others", Streams(0)), first)
    assert (tmp_path / "ledgers" / KEY).stat().st_mode & 0o777 == 0o600
    assert [file.name for file in (tmp_path / "ledgers").iterdir() if file.name.startswith(".")] == []


def test_a_run_does_not_go_on_with_other_held_out_records(tmp_path: Path) -> None:
    kept: list[Any] = []

    def killed(checkpoint: Any) -> None:
        kept.append(checkpoint)
        if checkpoint.k == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(ledgers=tmp_path, seed=None, after_round=killed)
    again = trained(ledgers=tmp_path, seed=None, resume=kept[-1])
    assert again.rounds == 4
    assert again.evaluation is not None
    key = (tmp_path / KEY).read_bytes()
    (tmp_path / KEY).unlink()
    with pytest.raises(LedgerError, match=r"held-out\.key: is gone, and records were held out by it\. Put it back"):
        trained(ledgers=tmp_path, seed=None, resume=kept[1])
    (tmp_path / KEY).write_bytes(key[::-1])
    with pytest.raises(LedgerError, match="is not the key by which records were held out before"):
        trained(ledgers=tmp_path)
    (tmp_path / KEY).write_bytes(key[:-1])
    with pytest.raises(LedgerError, match="must hold 32 bytes"):
        trained(ledgers=tmp_path)


def test_a_checkpoint_of_another_seed_is_refused_and_one_without_a_seed_keeps_the_split() -> None:
    kept: list[Any] = []
    trained(after_round=kept.append)
    with pytest.raises(InvalidInput, match="belongs to another task, engine, rows or held-out records"):
        trained(resume=replace(kept[1], seed=None), seed=1)
    whole = trained(privacy=sv.NoPrivacy(), seed=None, after_round=kept.append)
    again = trained(privacy=sv.NoPrivacy(), seed=None, resume=kept[-2])
    assert whole.evaluation is not None
    assert again.evaluation is not None
    assert np.array_equal(whole.evaluation.counts, again.evaluation.counts)


# ---------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"privacy": sv.Proven(epsilon=1.0, delta=1e-5, clip=1.0, unit="client")}, "no proof for this privacy mode"),
        ({"privacy": sv.Proven(epsilon=1.0, delta=0.0, clip=1.0, mechanism="laplace")}, "no proof for this privacy"),
        ({"privacy": sv.Published(epsilon=1.0, delta=1e-5)}, "no proof|has no"),
        ({"evaluate": 0.05}, r"evaluate must be an object such as Evaluation\(share=0.05\), or True, got"),
        ({"federation": rows(3, 3)}, "every owner needs at least 2 records"),
    ],
)
def test_what_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises((InvalidInput, NoGuarantee), match=words):
        trained(**change)


def test_regression_is_refused_in_one_sentence() -> None:
    goal = sv.Objective(sv.Squared(), sv.L2(0.01))
    with pytest.raises(InvalidInput, match=r"evaluate: counts classes, and this loss is for numbers, got 'squared'\. "):
        sv.train(NoisyGD(), rows(), goal, rounds=3, privacy=PRIVACY, evaluate=True)


@pytest.mark.parametrize("name", ["share", "held_out", "threshold"])
@pytest.mark.parametrize("value", [0, 1, -0.1, math.nan, "x"])
def test_numbers_are_checked(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=f"evaluate: {name} must"):
        Evaluation(**{name: value})

"""The part of `verify` about private estimates: what they are made from follows from charges, config and model."""

from pathlib import Path

import numpy as np

from sottovoce.core import check
from sottovoce.core.histogram import Evaluation
from sottovoce.core.plain import Json
from sottovoce.experiment import run_file, store, tables, whole_files
from sottovoce.experiment.evaluation import PrivateEvaluation, deviation_of
from sottovoce.experiment.result import Result
from sottovoce.ledger.histories import Counted, History, Kept
from sottovoce.problems.rows.held_out import longest, number_of_classes

_FAR = 8.0  # deviations: noise is as far off once in 10^15 sums


def evaluation(path: Path, result: Result) -> str:
    """The estimates follow from their counts, and all else in them from what was charged, the config and the model."""
    saved_runs, models = whole_files.read_json(path / store.EVALUATION)["runs"], np.atleast_2d(result.model)
    one_each = len(saved_runs) == len(result.evaluations) == len(models)
    check.require(one_each, store.EVALUATION, f"must hold an estimate for each of {len(models)} runs", len(saved_runs))
    check.require("evaluate" in result.config, store.CONFIG, "asks for no private estimate, and there is one")
    asked = tables.from_table(Evaluation, result.config["evaluate"], f"{store.CONFIG}, [evaluate]")
    for run, made in enumerate(result.evaluations):
        same = saved_runs[run]["estimates"] == whole_files.finite(made.to_dict()["estimates"])
        check.require(same, store.EVALUATION, "has estimates that do not follow from its counts")
        _owners(result, run, made)
        _noise(result, made)
        _records(result.config, asked, made)
        _bins(result, asked, models[run], made)
    return "the private estimates and their intervals follow from noisy counts of the owners that were charged for them"


def _owners(result: Result, run: int, made: PrivateEvaluation) -> None:
    """Who answered was charged for it. An answer of another machine may be charged and lost on its way."""
    clients = result.config.get("clients")
    if result.charges is None:
        least = most = len(clients["names"]) if clients else result.config["data"]["clients"]
    else:
        charged = [_charged(result, result.charges.histories[place]) for place in result.charges.who[run]]
        least, most = charged.count(True), len(charged) - charged.count(False)
    least = 1 if clients else least
    rule = f"{most if least == most else f'{least} to {most}'} owners were asked for counts, and charged"
    check.require(least <= made.owners <= most, store.EVALUATION, rule, made.owners)


def _charged(result: Result, history: History) -> bool | None:
    """Whether an owner was charged for its counts; None where what it shows does not say."""
    assert result.charges is not None
    charges, last = result.charges, result.config["run"]["rounds"] + 1
    if isinstance(history, Kept):
        return any((row.kind, row.run, row.round) == ("charge", charges.run, last) for row in history.rows)
    *others, counts = charges.planned
    if isinstance(history, Counted) and not charges.run and counts not in others:
        return counts in history.spent()
    return None


def _noise(result: Result, made: PrivateEvaluation) -> None:
    planned = () if result.charges is None else result.charges.planned
    deviation = deviation_of(planned, _replaced(result.config)) * float(np.sqrt(made.owners))
    rule = f"the noise that was charged for has deviation {deviation:g}"
    check.require(bool(np.isclose(made.deviation, deviation)), store.EVALUATION, rule, made.deviation)


def _records(config: Json, asked: Evaluation, made: PrivateEvaluation) -> None:
    """How many records were counted, as far as public sizes and the sum of the counts tell."""
    public = _replaced(config)
    check.require(public == (made.records is not None), store.EVALUATION, "records must be stated where it is public")
    if made.records is None:
        return
    data = config.get("data", {})
    if "smallest_client" in data and "largest_client" in data:
        sizes = np.array([data["smallest_client"], data["largest_client"]])
        least, most = (made.owners * (sizes - asked.training_sizes(sizes))).tolist()
        rule = f"so many owners hold out {least} to {most} records"
        check.require(least <= made.records <= most, store.EVALUATION, rule, made.records)
    for counts in (made.table, made.bins):
        apart = abs(float(counts.sum()) - made.records)
        fits = apart <= _FAR * made.deviation * np.sqrt(counts.size) + 1e-6
        check.require(bool(fits), store.EVALUATION, "its counts do not add up to its records", made.records)


def _bins(result: Result, asked: Evaluation, model: np.ndarray, made: PrivateEvaluation) -> None:
    """Where bins end follows from the model and the bound on rows.

    The loss of a neural model is in no file, and neither is a bound that the loader of a named data set stated.
    """
    config, data = result.config, result.config.get("clients") or result.config.get("data", {})
    bound = 1.0 if "schema" in config else data.get("row_bound")
    if config["objective"]["loss"] == "module" or (bound is None and data.get("name")):
        return
    loss = run_file.build_objective(config["objective"], store.CONFIG).loss
    added = int(adds_intercept(config))
    if bound is None and data.get("ranges"):  # every column is within -1 and 1
        bound = float(np.sqrt(model.shape[-1] // loss.outputs - added))
    if bound is not None and added:
        bound = float(np.hypot(bound, 1.0))
    edges = asked.edges(number_of_classes(loss), result.calibration * longest(loss, model, bound))
    same = edges.shape == made.edges.shape and bool(np.allclose(made.edges, edges, rtol=1e-9, atol=0))
    check.require(same, store.EVALUATION, "its bins do not end where model and config say")
    same = made.calibrated == loss.probabilities
    check.require(same, store.EVALUATION, "calibrated does not follow from the loss", made.calibrated)


def _replaced(config: Json) -> bool:
    return config["privacy"].get("relation", "replace-one") == "replace-one"


def adds_intercept(config: Json) -> bool:
    """Whether training adds a column for the intercept. Rows that a schema encoded, or nodes have, have one already."""
    return "schema" not in config and not config.get("clients") and config["objective"].get("fit_intercept", False)

"""A trained model for use elsewhere: as JSON, and as one Python file that needs NumPy only."""

import json
import re

import numpy as np

from sottovoce.core import check
from sottovoce.core.files import packaged_text
from sottovoce.core.plain import Json
from sottovoce.experiment.result import Result
from sottovoce.experiment.whole_files import finite

_PLACE = 'json.loads("{}")'
_BORROWED = re.compile(
    r"from sottovoce\.problems\.schema\.encoding import \([^)]*\)\n"
)  # what takes its place: that file
_LINE = 88  # characters of the model's text on one line of the Python file


def plain_model(result: Result) -> Json:
    """All that predictions follow from: the columns as a schema states them, and the weights, one list per output."""
    rule = "this run keeps no schema to prepare rows with"
    hint = "Train with a [schema], or on a data set that comes with one"
    schema = check.given(result.schema, "export", rule, hint)
    label = check.given(schema.label, "export", rule, hint)
    rule = "this folder holds several runs of one task, with a model each. Train with [run] runs = 0"
    check.require(result.model.ndim == 1, "export", rule, result.model.shape)
    result.effects()  # refuses a run that released no model
    parts = [schema.part(party) for party in schema.parties] if schema.parties else [schema]
    loss = result.objective.loss
    return {
        "columns": {name: column.to_table() for name, column in schema.columns.items()},
        "missing_values": list(schema.missing_values),
        "parts": [{"columns": list(part.columns), "bias": part.bias} for part in parts],
        "weights": result.model.reshape(loss.outputs, -1).tolist(),
        "calibration": result.calibration if loss.probabilities else 1.0,  # as `predict_proba` scales scores
        "cut": float(np.log(result.threshold / (1 - result.threshold))),
        "classes": list(label.classes),
        "range": None if label.range is None else list(label.range),
        "probabilities": loss.probabilities,
    }


def to_json(result: Result) -> str:
    """The model, its coefficients by column and level, and its guarantee."""
    model = plain_model(result)
    names = result.schema.get_feature_names_out().tolist() if result.schema and not result.schema.parties else []
    exported = {
        "model": model | ({"features": names} if names else {}),
        "coefficients": {name: [each._asdict() for each in listed] for name, listed in result.effects().items()},
        "coefficients_are": "per unit of the table and before a row is divided by its length; as noisy as the model",
        "guarantee": result.guarantee.to_dict(),
    }
    return json.dumps(finite(exported), indent=2, allow_nan=False) + "\n"


def to_python(result: Result) -> str:
    """A Python file that predicts raw rows of a CSV file."""
    text = json.dumps(plain_model(result), allow_nan=False)  # ASCII alone: whatever the names, its repr is one string
    lines = [text[start : start + _LINE] for start in range(0, len(text), _LINE)]
    literal = "\n".join(f"    {line!r}" for line in lines)
    _, imports, encoding = packaged_text("problems.schema", "encoding.py").partition("import datetime\n")
    source, borrowed = _BORROWED.subn(lambda _: imports + encoding, packaged_text("report", "scorer.py"))
    assert borrowed == source.count(_PLACE) == 1
    return source.replace(_PLACE, f"json.loads(\n{literal}\n)")

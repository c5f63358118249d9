"""A trained model for use elsewhere: as JSON, as one Python file that needs NumPy only, and its model card.

The card says what a model is for, what it was trained on, what is promised, how good it is, and where it ends.
"""

import json
import re
from collections.abc import Iterator

import numpy as np

from sottovoce.core import check
from sottovoce.core.files import packaged_text
from sottovoce.core.plain import Json
from sottovoce.experiment.publishable import released
from sottovoce.experiment.result import Result
from sottovoce.experiment.whole_files import finite
from sottovoce.report import words
from sottovoce.report.numbers import MEASURES, METRICS, of_parties_alone
from sottovoce.report.tables import markdown_table

_PLACE = 'json.loads("{}")'
# The file itself takes the place of this import.
_BORROWED = re.compile(r"from sottovoce\.problems\.schema\.encoding import \([^)]*\)\n")
_NOT_STATED = "Not stated. Whoever gives this model to others should say what it is for, and what it is not for."
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


# ---------------------------------------------------------------------------------------------------------- model card


def model_card(result: Result, purpose: str = "") -> str:
    """The card of a run, as Markdown. Nothing in it was read off private rows, but for what the guarantee covers."""
    sections = {"data": _data, "model": _model, "privacy": _privacy, "quality": _quality}
    return packaged_text("report", "model_card.md").format(
        title=result.config.get("run", {}).get("name") or "A model",
        purpose=purpose or _NOT_STATED,
        **{name: "\n\n".join(texts(result)) for name, texts in sections.items()},
    )


def _data(result: Result) -> Iterator[str]:
    data, schema = result.config.get("data", {}), result.schema
    owners = len(result.guarantee.epsilon_of_client)
    source = f"The data set {data['name']!r}." if data.get("name") else "Rows of their owners, which stay with them."
    yield source + (f" {owners} owners took part." if owners else "")
    if schema is None:
        yield "Rows were prepared before training; this run does not say how."
        return
    dropped = f" Left out: {', '.join(schema.drop)}." if schema.drop else ""
    yield f"A public schema, stated and not read off the rows, says what they hold.{dropped}"
    rows = [[f"`{name}`", *_stated(column.to_table())] for name, column in schema.columns.items()]
    yield markdown_table(["column", "kind", "stated"], rows)
    if schema.label is not None:
        what = "a number" if schema.label.range else " or ".join(f"`{name}`" for name in schema.label.classes)
        yield f"What is predicted: `{schema.label.column}`, {what}."


def _stated(table: Json) -> tuple[str, str]:
    gaps = ", or missing" if table.get("missing") else ""
    if "range" in table:
        low, high = table["range"]
        return "number", f"{low} to {high}{', by its logarithm' if table.get('log') else ''}{gaps}"
    if "dates" in table:
        return "date", f"{table['dates'][0]} to {table['dates'][1]}{gaps}"
    kind = "levels" if "levels" in table else "one_hot"
    return "category", ", ".join(f"`{level}`" for level in table[kind]) + gaps


def _model(result: Result) -> Iterator[str]:
    method, loss = result.config.get("algorithm", {}).get("name", "a method"), result.objective.loss.name
    yield f"Linear, {loss} loss, trained with {method} in {result.rounds} rounds."
    if result.schema is None or result.model.ndim > 1 or not result.model.size:
        return
    yield words.EFFECTS
    for name, effects in result.effects().items():
        rows = [[f"`{each.column}`", each.what, f"{each.change:+.4g}"] for each in effects]
        yield f"Score of `{name}`:"
        yield markdown_table(["column", "for", "change"], rows)


def _privacy(result: Result) -> Iterator[str]:
    guarantee = result.guarantee
    yield f"**{words.headline(guarantee)}.**"
    yield from words.meaning(guarantee)
    if guarantee.noise.startswith("simulation"):
        yield "A simulation: whoever has the seed of the run can compute its noise and take it off again."
    if guarantee.not_covered:
        yield "Not covered:\n\n" + "\n".join(f"- {each}" for each in guarantee.not_covered)


def _quality(result: Result) -> list[str]:
    ends = {name: values[-1] for name, values in released(result).ends.items() if len(values)}
    known = [each for each in (*MEASURES, *METRICS, *of_parties_alone(ends)) if each.column in ends]
    shown = [[each.words, each.text(float(ends[each.column]))] for each in known]
    texts = ["Measured on public test rows:", markdown_table(["measure", "value"], shown)] if shown else []
    for evaluation in result.evaluations[:1]:
        rows = [list(line) for line in evaluation.lines()]
        texts += [f"{evaluation.about}.", markdown_table(["measure", "estimate", "95 % interval"], rows)]
    return texts or ["Nothing that may be published was measured: there were no public test rows, and no [evaluate]."]

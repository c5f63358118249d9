"""Calls in Python that are wrong, on rows, labels, owners and settings in which every cell is a marker."""

import datetime
import inspect
import itertools
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import sottovoce as sv
from sottovoce.algorithms import ALGORITHMS, ADMMSharing
from sottovoce.core.participation import KOfN
from sottovoce.estimators.scalers import RowClipper
from sottovoce.problems import data as datasets
from sottovoce.problems import losses, partition, penalties
from sottovoce.problems.vertical import matrices
from tests.attacks.markers import COLUMNS, NUMBER, OWNERS, ROWS, SIGNS, TAME, TEXT, WORDS, X

Case = tuple[str, str, Callable[[], Any]]  # what is called, what is wrong, and the call
NOT_CHECKED = ("by_size", "replacement", "solver")  # fields that take anything until they are used

LOSSES = {"Logistic": sv.Logistic(), "SmoothedHinge": losses.SmoothedHinge(), "Softmax": sv.Softmax(3),
          "Squared": sv.Squared(), "Huber": losses.Huber()}  # fmt: skip
GOAL = sv.Objective(sv.Logistic(), sv.L2(0.1))


def with_entry(entry: Any) -> np.ndarray:
    """The marked rows with another entry in one place."""
    rows = X.astype(object)
    rows[3, 1] = entry
    return rows


def tables() -> dict[str, Any]:
    """Rows that are wrong."""
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    gap, endless = X.copy(), X.copy()
    gap[3, 1], endless[3, 1] = np.nan, np.inf
    named = [f"x{column}" for column in range(COLUMNS)]
    return {
        "text in a cell": with_entry(f"{TEXT}cell"),
        "text in all cells": WORDS,
        "bytes": WORDS.astype("S"),
        "a gap": gap,
        "a gap, frame": pd.DataFrame(gap, columns=named),
        "a gap, polars": pl.DataFrame(gap, schema=named),
        "a gap, list": gap.tolist(),
        "None in a cell": with_entry(None),
        "infinity": endless,
        "infinity, frame": pd.DataFrame(endless, columns=named),
        "text, frame": pd.DataFrame(WORDS, columns=named),
        "text, polars": pl.DataFrame(WORDS, schema=named),
        "text, list": WORDS.tolist(),
        "rows of unequal length": [*X.tolist(), X[0, :1].tolist()],
        "complex": X + 1j * X,
        "a list in a cell": with_entry(X[0].tolist()),
        "a table in a cell": with_entry({TEXT: NUMBER}),
        "a date in a cell": with_entry(datetime.date(2020, 1, 1)),
        "one axis": X[:, 0],
        "three axes": X[None],
        "one number": NUMBER,
        "no column": X[:, :0],
        "a table of columns": {"x0": X[:, 0], "x1": X[:, 1]},
        "text alone": f"{TEXT}whole",
        "a gap, sparse": csr_array(gap),
    }


def labels() -> dict[str, Any]:
    """Labels that are wrong for every loss, or at least for classification."""
    gap = X[:, 0].copy()
    gap[2] = np.nan
    return {
        "marked numbers": X[:, 0],
        "marked text": WORDS[:, 0],
        "marked text of one class": np.full(ROWS, WORDS[0, 0]),
        "one class": np.full(ROWS, NUMBER),
        "a gap": gap,
        "infinity": np.where(np.arange(ROWS) == 2, np.inf, X[:, 0]),
        "text and numbers": np.array([*X[:4, 0].tolist(), *WORDS[:4, 0]], dtype=object),
        "None": np.array([None, *X[1:, 0].tolist()], dtype=object),
        "complex": X[:, 0] * 1j,
        "two axes": X,
        "too few": X[:5, 0],
        "unequal length": [*X[:7, 0].tolist(), X[0].tolist()],
        "a frame": pytest.importorskip("pandas").DataFrame(X),
        "text alone": f"{TEXT}label",
        "one number": NUMBER,
    }


def owners() -> dict[str, Any]:
    return {
        "two axes": WORDS,
        "too few": WORDS[:5, 0],
        "unequal length": [*WORDS[:7, 0].tolist(), WORDS[0].tolist()],
        "None": np.array([None, *WORDS[1:, 0].tolist()], dtype=object),
        "a gap": np.where(np.arange(ROWS) == 2, np.nan, X[:, 0]),
        "text and numbers": np.array([*X[:4, 0].tolist(), *WORDS[:4, 0]], dtype=object),
        "one number": NUMBER,
        "a frame": pytest.importorskip("pandas").DataFrame({"id": WORDS[:, 0]}),
    }


def settings() -> dict[str, Any]:
    """Data where a setting belongs."""
    frame = pytest.importorskip("pandas").DataFrame(X)
    whole = (int(NUMBER), int(NUMBER) + 1)
    return {"rows": X, "rows and labels": (X, SIGNS), "rows as lists": X.tolist(), "a frame": frame, "a row": X[0],
            "a row of whole numbers": whole, "texts": WORDS[0].tolist(), "a table": {"x0": X}}  # fmt: skip


def fitted() -> dict[str, Any]:
    frame = pytest.importorskip("pandas").DataFrame(TAME, columns=["x0", "x1", "x2"])
    plain: dict[str, Any] = {"privacy": "none", "rounds": 2}
    return {
        "FederatedClassifier": sv.FederatedClassifier(**plain, engine="numpy").fit(frame, SIGNS),
        "FederatedRegressor": sv.FederatedRegressor(**plain, engine="numpy").fit(frame, SIGNS),
        "VerticalClassifier": sv.VerticalClassifier([1, 2], **plain).fit(TAME, SIGNS),
        "VerticalRegressor": sv.VerticalRegressor([1, 2], **plain).fit(TAME, SIGNS),
    }


def federation(y: Any = SIGNS) -> Any:
    return sv.Federation.from_arrays(TAME, y, OWNERS)


def trained(**options: Any) -> Any:
    given = {"algorithm": sv.DPADMM(), "federation": federation(), "objective": GOAL, "rounds": 2,
             "privacy": sv.NoPrivacy(), "engine": "numpy", "seed": 0} | options  # fmt: skip
    return sv.train(**given)


def trained_columns(**options: Any) -> Any:
    parts = sv.VerticalFederation.from_arrays([TAME[:, :1], TAME[:, 1:]], SIGNS)
    return trained(**({"algorithm": ADMMSharing(), "federation": parts} | options))


def cases_of_rows() -> Iterator[Case]:
    models, result, parties = fitted(), trained(), trained_columns()
    uses: dict[str, Callable[[Any], Any]] = {
        "Federation.from_arrays": lambda rows: sv.Federation.from_arrays(rows, SIGNS, OWNERS),
        "Federation.from_clients": lambda rows: sv.Federation.from_clients([(TAME, SIGNS), (rows, SIGNS)]),
        "VerticalFederation.from_arrays": lambda rows: sv.VerticalFederation.from_arrays([TAME, rows], SIGNS),
        "VerticalFederation.from_columns": lambda rows: sv.VerticalFederation.from_columns(rows, SIGNS, [1, 2]),
        "matrices": lambda rows: matrices("test", [rows], [COLUMNS]),
        "train, test": lambda rows: trained(test=(rows, SIGNS)),
        "train, test of columns": lambda rows: trained_columns(test=([rows, TAME[:, 1:]], SIGNS)),
        "Result.predict": result.predict,
        "VerticalResult.predict": lambda rows: parties.predict([TAME[:, :1], rows]),
        "VerticalResult.partial_scores": lambda rows: parties.partial_scores(1, rows),
        "PublicScaler.fit": sv.PublicScaler((0, 1)).fit,
        "PublicScaler.transform": sv.PublicScaler((0, 1)).fit(TAME).transform,
        "PrivateScaler.fit": lambda rows: sv.PrivateScaler(random_state=0).fit(rows),
        "RowClipper.fit": RowClipper().fit,
    }
    for name, model in models.items():
        uses[f"{name}.fit"] = lambda rows, model=model: type(model)(**model.get_params()).fit(rows, SIGNS)
        uses[f"{name}.predict"] = model.predict
        uses[f"{name}.score"] = lambda rows, model=model: model.score(rows, SIGNS)
    for (use, call), (wrong, rows) in itertools.product(uses.items(), tables().items()):
        yield use, wrong, partial(call, rows)


def cases_of_labels() -> Iterator[Case]:
    fits_squares = ("marked numbers", "one class", "too few")  # numbers, which is all that a regression asks for
    for (name, loss), (wrong, y) in itertools.product(LOSSES.items(), labels().items()):
        if name in ("Squared", "Huber") and wrong in fits_squares:
            continue
        yield f"{name}.check_labels", wrong, partial(loss.check_labels, y)
    for (wrong, y), name in itertools.product(labels().items(), ("Logistic", "Softmax", "Huber")):
        if name != "Huber" or wrong not in fits_squares:
            objective = sv.Objective(LOSSES[name])
            yield f"train, {name}", wrong, lambda y=y, goal=objective: trained(federation=federation(y), objective=goal)
            yield f"train, test, {name}", wrong, lambda y=y, goal=objective: trained(objective=goal, test=(TAME, y))
    for wrong, y in labels().items():
        yield (
            "VerticalFederation",
            wrong,
            lambda y=y: trained_columns(federation=sv.VerticalFederation.from_arrays([TAME, TAME], y)),
        )
        for name, model in fitted().items():
            regression = name.endswith("Regressor")
            new = type(model)(**model.get_params())
            if wrong not in ("marked text", "marked numbers") and not (regression and wrong == "one class"):
                yield f"{name}.fit", wrong, partial(new.fit, TAME, y)
            if not (regression and wrong in ("marked numbers", "one class")):
                yield f"{name}.score", wrong, partial(model.score, TAME, y)
        for kind in ("dirichlet", "iid"):
            if wrong not in ("marked numbers", "marked text", "marked text of one class", "one class", "too few",
                             "infinity", "complex"):  # fmt: skip
                yield f"partition {kind}", wrong, partial(made, kind, y)
    declared = sv.FederatedClassifier(classes=["ill", "well"], privacy="none")
    yield "FederatedClassifier.fit", "labels that were not declared", partial(declared.fit, TAME, WORDS[:, 0])
    yield (
        "FederatedClassifier.score",
        "weights",
        lambda: fitted()["FederatedClassifier"].score(TAME, SIGNS, WORDS[:, 0]),
    )
    yield "FederatedRegressor.score", "weights", lambda: fitted()["FederatedRegressor"].score(TAME, SIGNS, WORDS[:, 0])


def made(kind: str, y: Any) -> Any:
    options = {"alpha": 1.0} if kind == "dirichlet" else {}
    return partition.make(kind, y, clients=2, seed=0, **options)


def cases_of_owners() -> Iterator[Case]:
    model = sv.FederatedClassifier(privacy="none", rounds=2)
    uses: dict[str, Callable[[Any], Any]] = {
        "Federation, groups": lambda who: sv.Federation.from_arrays(X, SIGNS, who),
        "FederatedClassifier.fit, groups": lambda who: model.fit(TAME, SIGNS, groups=who),
        "PrivateScaler.fit, groups": lambda who: sv.PrivateScaler(random_state=0).fit(TAME, groups=who),
        "VerticalFederation, ids": lambda who: sv.VerticalFederation.from_arrays([X, X], SIGNS, ids=[who, WORDS[:, 1]]),
        "VerticalFederation, label_ids": lambda who: sv.VerticalFederation.from_arrays(
            [X, X], SIGNS, ids=[WORDS[:, 0], WORDS[:, 0]], label_ids=who
        ),
    }
    for (use, call), (wrong, who) in itertools.product(uses.items(), owners().items()):
        if (use, wrong) != ("VerticalFederation, label_ids", "text and numbers"):  # ids may be both
            yield use, wrong, partial(call, who)
    arrays, parties = sv.Federation.from_arrays, sv.VerticalFederation.from_arrays
    yield "Federation, owners", "a column of features", lambda: arrays(X, SIGNS, X[:, 0], owners=["a", "b"])
    yield "Federation, owners", "a column of text", lambda: arrays(X, SIGNS, WORDS[:, 0], owners=["a", "b"])
    yield "Federation, row_bound", "broken", lambda: arrays(X, SIGNS, OWNERS, row_bound=1.0)
    yield "Federation, float32", "too large", lambda: arrays(X * 1e90, SIGNS, OWNERS).in_float32()
    yield "Federation", "too large", lambda: arrays(X * 1e200, SIGNS, OWNERS)
    yield "Federation.from_clients", "no pairs", lambda: sv.Federation.from_clients([X, X, X])  # type: ignore[list-item]
    yield "Federation.from_clients", "no y", lambda: sv.Federation.from_clients([(X, SIGNS[:3])])
    yield "VerticalFederation, ids", "no id in common", lambda: parties([X, X], SIGNS, ids=[WORDS[:, 0], WORDS[:, 1]])
    yield "VerticalFederation, ids", "twice", lambda: parties([X, X], SIGNS, ids=[np.full(ROWS, TEXT), WORDS[:, 1]])
    yield "VerticalFederation", "one array", lambda: parties(X, SIGNS)  # type: ignore[arg-type]
    yield "split", "rows", lambda: sv.VerticalFederation.from_columns(X, SIGNS, X[0].tolist())
    yield "split", "whole numbers", lambda: sv.VerticalFederation.from_columns(X, SIGNS, [int(each) for each in X[0]])
    yield "datasets.split", "labels", lambda: datasets.split(X, X[:3, 0], 2, 0)
    yield "datasets.split", "test", lambda: datasets.split(X, SIGNS, X, 0)  # type: ignore[arg-type]
    yield "by_size", "rows", lambda: partition.by_size(X[0], 0)
    yield "by_column", "a gap", lambda: partition.by_column([NUMBER, np.nan])


def cases_of_settings() -> Iterator[Case]:
    wrong = settings()
    for (what, value), name in itertools.product(wrong.items(), inspect.signature(sv.train).parameters):
        if name not in ("after_round", "measure_training") and not (what == "rows and labels" and name == "test"):
            yield f"train, {name}", what, lambda name=name, value=value: trained(**{name: value})
            if name != "engine":  # there is one engine for columns
                yield f"train of columns, {name}", what, lambda name=name, value=value: trained_columns(**{name: value})
    kinds: dict[Any, dict[str, Any]] = {
        **{kind: {} for kind in penalties.PENALTIES.values()},
        **{kind: {} for kind in losses.LOSSES.values()},
        **{kind: {} for kind in ALGORITHMS.values()},
        sv.Objective: {"loss": sv.Logistic()},
        KOfN: {},
        sv.Proven: {"epsilon": 1.0, "delta": 1e-5, "clip": 1.0},
        sv.Published: {"epsilon": 1.0},
        sv.ProvenColumns: {"epsilon": 1.0, "delta": 1e-5, "unit": "record", "bound": 1.0},
    }
    for kind, given in kinds.items():
        for each, what in itertools.product(fields(kind), ("rows", "a row of whole numbers", "texts")):
            one_each = each.name in ("step", "local_steps") and what != "texts"  # may be one number per client
            if each.init and not one_each and each.name not in NOT_CHECKED:
                options = {other.name: 1.0 for other in fields(kind) if other.init and not has_default(other)}
                value = wrong[what]
                yield f"{kind.__name__}({each.name})", what, partial(kind, **(options | given | {each.name: value}))
    models = (sv.FederatedClassifier, sv.FederatedRegressor, sv.VerticalClassifier, sv.VerticalRegressor)
    for kind, (what, value) in itertools.product(models, wrong.items()):
        for name in inspect.signature(kind).parameters:
            options = {"rounds": 2, "earlier_steps": "public", name: value}
            # Classes that were declared are public, so they may be told.
            pair = name == "y_range" and what == "a row of whole numbers"
            if name not in ("fit_intercept", "ledgers", "classes") and not pair:
                yield f"{kind.__name__}({name})", what, lambda kind=kind, o=options: kind(**o).fit(TAME, SIGNS)
    for what, value in wrong.items():
        if what != "a row of whole numbers":  # which is a range
            yield "PublicScaler(ranges)", what, lambda value=value: sv.PublicScaler(value).fit(X)
        yield "PublicScaler({...})", what, lambda value=value: sv.PublicScaler({"x0": value}).fit(X)
        yield "RowClipper(bound)", what, lambda value=value: RowClipper(value).fit(X)
        yield "PrivateScaler(epsilon)", what, lambda value=value: sv.PrivateScaler(value).fit(X)
        yield "PrivateScaler(random_state)", what, lambda value=value: sv.PrivateScaler(random_state=value).fit(X)
        yield "datasets.load", what, partial(datasets.load, value)
        yield (
            "VerticalClassifier(parties)",
            f"named, {what}",
            lambda value=value: sv.VerticalClassifier({"bank": value}, privacy="none").fit(TAME, SIGNS),
        )
    yield "PublicScaler(ranges)", "rows of two columns", lambda: sv.PublicScaler(X[:, :2][:COLUMNS, ::-1]).fit(X)


def has_default(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING

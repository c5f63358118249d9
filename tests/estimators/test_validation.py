"""Errors about a table name the place of a wrong entry, never the entry itself."""

import datetime
import re
from typing import Any

import numpy as np
import pytest

import sottovoce as sv
from sottovoce.core.check import InvalidInput

RNG = np.random.default_rng(0)
X = np.column_stack([RNG.normal(size=200), RNG.exponential(size=200), np.ones(200)])
DAY = datetime.date(1871, 2, 3)


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        ("Ada", "text .* 0/1 column"),
        ("1871", "text"),
        (DAY, "a date or a time .* days since"),
        (datetime.time(8, 1), "a date"),
        (np.datetime64("1871-02-03"), "a date"),
        (datetime.timedelta(days=1871), "a date"),
    ],
    ids=repr,
)
def test_other_things_than_numbers_are_named_by_their_place(entry: Any, what: str) -> None:
    pd = pytest.importorskip("pandas")
    rows = X.astype(object)
    rows[7:9, 1] = entry
    frame = pd.DataFrame(rows, columns=["age", "born", 3]).astype({"age": float, 3: float})
    for table, column in ((rows, "1"), (frame, "'born'"), (frame.set_axis([4, 5, 6], axis=1), "5")):
        for use in (sv.PublicScaler((0, 1)).fit, sv.PublicScaler((0, 1)).fit(X).transform):
            message = rf"PublicScaler: column {column} of X must hold numbers, and row 7 holds {what}"
            with pytest.raises(InvalidInput, match=message) as error:
                use(table)
            assert "(2 such rows)" in str(error.value)
            assert not re.search("Ada|1871|8, 1", str(error.value))


def test_columns_of_dates() -> None:
    """Of which scikit-learn makes nanoseconds in some kinds of table."""
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    days = np.arange("2020-01-01", "2020-01-06", dtype="datetime64[D]")
    frame = pd.DataFrame({"age": np.arange(5.0), "born": days})
    zones = frame.assign(born=pd.date_range("2020", periods=5, tz="UTC"))
    spans = frame.assign(born=days - days[0])
    arrow = pytest.importorskip("pyarrow").Table.from_pandas(frame)
    for table in (frame, zones, spans, pl.from_pandas(frame), arrow):
        with pytest.raises(InvalidInput, match=r"column 'born' .*row 0 holds a date or a time \(5 such rows\)"):
            sv.PublicScaler((0, 1)).fit(table)
    with pytest.raises(InvalidInput, match=r"column 0 of X .*row 0 holds a date or a time"):
        sv.PublicScaler((0, 1)).fit(days[:, None])


def test_infinity_is_named_by_its_place() -> None:
    pd = pytest.importorskip("pandas")
    rows = X.copy()
    rows[[3, 5], 1] = [np.inf, -np.inf]
    for table, column in ((rows, "1"), (pd.DataFrame(rows, columns=list("abc")), "'b'")):
        with pytest.raises(
            InvalidInput,
            match=rf"column {column} of X .*, and row 3 contains infinity \(2 such rows",
        ):
            sv.PublicScaler((0, 1)).fit(table)

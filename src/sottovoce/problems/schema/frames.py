"""Tables as people have them, as named Arrow columns: frames, Arrow tables, columns, records, arrays, CSV files."""

import csv
import difflib
import io
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from sottovoce.core import check
from sottovoce.core.arrays import Sparse, SparseLike
from sottovoce.core.files import read_bytes, utf8
from sottovoce.problems.schema import values

_NO_FILE = "there is no such file; paths start from the folder of the file that names them"
KINDS = "a pandas or polars frame, an Arrow table, a dict of columns, a list of dicts, a 2-D array or a CSV file's path"


class Table:
    """Named columns. `who` names the table in errors."""

    def __init__(self, who: str, names: Sequence[str], columns: Sequence[Collection[object]]) -> None:
        self.who, self.names = who, list(names)
        check.require(len(set(self.names)) == len(self.names), who, "column names must be distinct")
        self._columns = dict(zip(self.names, columns, strict=True))
        lengths = {len(column) for column in columns}
        check.require(len(lengths) <= 1, who, "columns must be equally long", tuple(sorted(lengths)))
        self.rows = lengths.pop() if lengths else 0

    def column(self, name: str) -> "values.Array":
        """One column, which must be there."""
        return values.to_arrow(self._columns[name])


def read_table(who: str, data: Any, features: Sequence[str]) -> Table:
    """`data` as a table. An array without names must hold the columns `features`, in this order."""
    if isinstance(data, Table):
        return data
    if isinstance(data, str | Path):
        header, rows, _ = csv_rows(Path(data))
        return Table(Path(data).name, header, list(zip(*rows, strict=True)))
    if isinstance(data, Mapping):
        whole = all(hasattr(column, "__len__") and not isinstance(column, str | Mapping) for column in data.values())
        check.require(whole, who, "a dict must hold columns: lists or arrays, all equally long")
        return Table(who, list(map(str, data)), list(data.values()))
    if hasattr(data, "collect") and hasattr(data, "collect_schema"):  # a lazy frame of polars
        data = data.collect()
    if hasattr(data, "iloc") and hasattr(data, "columns"):  # pandas: one column at a time, for columns of mixed types
        return Table(who, [str(name) for name in data.columns], [data.iloc[:, k] for k in range(data.shape[1])])
    if hasattr(data, "__arrow_c_stream__"):
        import pyarrow as pa

        table = pa.table(data)
        return Table(who, table.column_names, table.columns)
    if isinstance(data, list | tuple) and data and all(isinstance(row, Mapping) for row in data):
        names = list(dict.fromkeys(str(name) for row in data for name in row))
        return Table(who, names, [[row.get(name) for row in data] for name in names])
    return _from_array(who, data, features)


def _from_array(who: str, data: object, features: Sequence[str]) -> Table:
    data = cast(Sparse, data).toarray() if isinstance(data, SparseLike) else data
    usable = isinstance(data, np.ndarray | list | tuple) or hasattr(data, "__array__")
    check.require(usable, who, f"rows must be {KINDS}, got {check.shown(data)}")
    try:
        array: np.ndarray = np.array(data, dtype=object) if isinstance(data, list | tuple) else np.asarray(data)
    except ValueError:
        array = np.zeros(0)
    check.require(array.ndim == 2, who, f"rows must be {KINDS}, got {check.shown(data)}")
    rule = f"an array without names must have the {len(features)} columns of the schema, in its order"
    check.require(array.shape[1] == len(features), who, rule, array.shape[1])
    return Table(who, features, list(array.T))


def must_be_there(who: str, column: str, header: Sequence[str]) -> None:
    """Of a file without a header the first line is a record: only a name nearly equal to the expected one is told."""
    if column in header:
        return
    near = difflib.get_close_matches(column.lower(), [name.lower() for name in header], n=1, cutoff=0.8)
    there = next((name for name in header if near and name.lower() == near[0]), "")
    if there:
        raise check.InvalidInput(f"{who}: unknown column {column!r}. Did you mean {there!r}?")
    raise check.InvalidInput(
        f"{who}: the first line must name the columns, {column!r} among them, and none of its {len(header)} "
        "names is nearly that. Put the columns' names there, or give the name that is there"
    )


def csv_header(path: Path) -> list[str]:
    """The names of the columns of a CSV file: its first line, and nothing else, is read."""
    header = [name.strip() for name in next(csv.reader(io.StringIO(_csv_text(path, first_line=True))), [])]
    check.require(bool(header) and all(header), path.name, "the first line must name every column")
    check.require(len(set(header)) == len(header), path.name, "column names must be distinct")
    return header


def _csv_text(path: Path, first_line: bool = False) -> str:
    content = read_bytes(path, missing=_NO_FILE, first_line=first_line)
    return utf8(str(path), content, "a CSV file").removeprefix("\ufeff")


def csv_rows(path: Path) -> tuple[list[str], list[list[str]], list[int]]:
    """The header of a CSV file, its rows, and the line on which each row ends."""
    rows, lines = [], []
    reader = csv.reader(io.StringIO(_csv_text(path), newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        commas = len(header) != 1 or not any(mark in header[0] for mark in ";\t|")
        check.require(commas, path.name, "fields must be separated by commas; the first line has none")
        for row in reader:
            if row:
                rule = f"must have {len(header)} fields, like the header"
                check.require(len(row) == len(header), f"{path.name}, line {reader.line_num}", rule, len(row))
                rows.append([field.strip() for field in row])
                lines.append(reader.line_num)
    except csv.Error as error:  # it names marks and limits, never a field
        raise check.InvalidInput(f"{path}, line {reader.line_num}: must be a CSV file in UTF-8 ({error})") from None
    check.require(len(rows) > 0, path.name, "needs a header and at least one row")
    check.require(len(set(header)) == len(header), path.name, "column names must be distinct")
    return header, rows, lines


def columns_of_text(table: str, names: Sequence[str]) -> list[Any]:
    """The columns, as Arrow arrays of text, of lines with commas and no header.

    Arrow makes such arrays from lists, too, but imports pandas for that, which takes longer.
    """
    import pyarrow as pa
    from pyarrow import csv

    kinds = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    read = csv.read_csv(pa.py_buffer(table.encode()), csv.ReadOptions(column_names=names), convert_options=kinds)
    return read.columns

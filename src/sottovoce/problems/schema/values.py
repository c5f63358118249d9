"""Columns of a table as numbers, levels or days, whatever they are stored as.

An entry of which no number, level or day can be made counts as missing. It is not an error: a message that depends on
an entry of a private table would tell something about it. An error here names a column and its type, never an entry.
"""

import datetime
import math
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sottovoce.core.arrays import Integers
from sottovoce.core.check import InvalidInput
from sottovoce.problems.schema.encoding import as_number, canonical, day_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import Array as Array


def to_arrow(column: Any) -> "pa.Array":
    """Any column as an Arrow array.

    Lists and object arrays have no type of their own. What they hold is taken for numbers, truth values or text, and
    for text if it is of several types or of another: one entry then never decides how the others are read, nor whether
    the column is refused.
    """
    import pyarrow as pa

    if not isinstance(column, pa.Array | pa.ChunkedArray):
        column = _from_entries(column)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if not isinstance(column, pa.DictionaryArray):
        return _texts(column)
    return pa.DictionaryArray.from_arrays(column.indices, _texts(column.dictionary)).dictionary_decode()


def _texts(column: "pa.Array") -> "pa.Array":
    """Texts of polars as ordinary ones: Arrow cannot take from them, and takes what is missing for an empty one."""
    import pyarrow as pa

    return column.cast(pa.string()) if pa.types.is_string_view(column.type) else column


def _from_entries(column: Any) -> "pa.Array | pa.ChunkedArray":
    import pyarrow as pa

    try:
        array = pa.array(column, from_pandas=True)
        if str(getattr(column, "dtype", "object")) != "object":
            return array
        # Among other numbers Arrow takes True for 1, which is another level than "true".
        numeric = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
        truth_values = numeric and any(isinstance(entry, bool | np.bool_) for entry in column)
        if _is_plain(array.type) and not truth_values:
            return array
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass  # entries of several types
    return pa.array([_entry_text(entry) for entry in column], pa.string())


def numbers(who: str, array: "pa.Array", marks: Collection[str] = ()) -> np.ndarray:
    """float64 numbers, NaN where one is missing: `marks` are the values that stand for a missing one."""
    import pyarrow as pa

    kind = array.type
    if _is_text(kind):
        values = _by_distinct(array, as_number, np.nan)
    elif _is_plain(kind) or pa.types.is_decimal(kind):
        values = _cast(array)
    else:
        raise InvalidInput(f"{who}: must hold numbers, or text that stands for numbers, got the type {kind}")
    for number in {as_number(mark) for mark in marks}:
        values[values == number] = np.nan
    return values


def codes(who: str, array: "pa.Array", code_of: Callable[[str], int], missing: int) -> np.ndarray:
    """The code of each entry's canonical text; `missing` where there is none."""
    import pyarrow as pa

    kind = array.type
    if pa.types.is_nested(kind) or pa.types.is_duration(kind) or pa.types.is_binary(kind):
        raise InvalidInput(f"{who}: must hold text, numbers or truth values, got the type {kind}")

    def coded(entry: object) -> int:
        absent = isinstance(entry, float) and math.isnan(entry)
        return missing if absent else code_of(canonical(entry))

    return _by_distinct(array, coded, missing).astype(np.intp)


def days(who: str, array: "pa.Array", form: str, marks: Collection[str] = ()) -> np.ndarray:
    """Days since 1970-01-01 as float64 numbers, NaN where no date can be read."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    if pa.types.is_null(kind):
        return np.full(len(array), np.nan)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        array = pc.local_timestamp(array)  # type: ignore[attr-defined]
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        dates = array.to_numpy(zero_copy_only=False).astype("datetime64[D]")
        return np.where(np.isnat(dates), np.nan, dates.astype(np.int64).astype(np.float64))
    if not _is_text(kind):
        raise InvalidInput(f"{who}: must hold dates, or text that stands for dates, got the type {kind}")
    return _by_distinct(array, lambda text: math.nan if text in marks else day_of(text, form), np.nan)


def _by_distinct(array: "pa.Array", function: Callable[[Any], float], missing: float) -> np.ndarray:
    """`function` of every entry (text without the spaces around it), computed once for each distinct one."""
    encoded = array.dictionary_encode("encode")  # what is missing is an entry, too: None
    entries = encoded.dictionary.to_pylist()
    texts = (entry.strip() if isinstance(entry, str) else entry for entry in entries)
    values = np.array([missing if entry is None else function(entry) for entry in texts], dtype=np.float64)
    places = cast(Integers, np.from_dlpack(encoded.indices))  # `to_numpy` would import pandas
    return values[places]


def _cast(array: "pa.Array") -> np.ndarray:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    values = pc.cast(array.drop_null(), pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    numbers = np.full(len(array), np.nan)
    numbers[array.is_valid().to_numpy(zero_copy_only=False)] = values
    return numbers


def _is_text(kind: "pa.DataType") -> bool:
    import pyarrow as pa

    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _is_plain(kind: "pa.DataType") -> bool:
    from pyarrow import types

    numbers = types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)
    return numbers or types.is_null(kind) or _is_text(kind)


def _entry_text(entry: object) -> str | None:
    if entry is None or type(entry).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(entry, float | np.floating):
        return None if np.isnan(entry) else repr(float(entry))
    if isinstance(entry, np.datetime64) and np.isnat(entry):
        return None
    text = entry.isoformat() if isinstance(entry, datetime.date) else str(entry)
    return text.encode("utf-8", "replace").decode("utf-8")

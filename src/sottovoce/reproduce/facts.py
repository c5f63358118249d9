"""Numbers in remarks: what is written `{experiment|column|name=value|.3f}` is read from the experiment's data.

It is the mean of the column at the end of all runs that have the named values; with `range` before the format, its
least and its largest; with `root`, the square root of that mean; with `rounds`, the mean over all rounds.
So a reason has the number of the run that supports it, and none is typed.
"""

import re
from collections.abc import Callable

import numpy as np

from sottovoce.reproduce.experiment import Table, Value

_FACT = re.compile(r"\{([\w-]+)\|(\w+)\|([^{}]*?)\|?(?:(range|root|rounds) )?(\.\d[fg])\}")


def filled(text: str, read: Callable[[str], Table | None]) -> str:
    """The text with its numbers; a dash where an experiment was not run."""

    def number(found: re.Match[str]) -> str:
        name, column, where, how, form = found.groups()
        table = read(name)
        if table is None:
            return "–"
        wanted = dict(pair.split("=", 1) for pair in where.split("|") if pair)
        rows = table.where(**{key: _value(one) for key, one in wanted.items()})
        last = rows.at_end() if how != "rounds" else rows
        values = (last if len(last) else rows)[column]  # some rows are of no round
        values = values[~np.isnan(values)]
        if len(values) == 0:
            return "–"
        middle = np.sqrt(values.mean()) if how == "root" else values.mean()
        ends = (values.min(), values.max()) if how == "range" else (middle,)
        return " to ".join(f"{one:{form}}" for one in ends)

    return _FACT.sub(number, text)


def _value(text: str) -> Value:
    try:
        return float(text)
    except ValueError:
        return text

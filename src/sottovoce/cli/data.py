"""`sottovoce data`."""

import os

from sottovoce.cli import terminal
from sottovoce.report import tables


def data(as_json: terminal.Json = False, quiet: terminal.Quiet = False) -> None:
    """Say which data sets are bundled, which were found, and how to get the rest."""
    from dataclasses import asdict

    from sottovoce.problems import data as datasets
    from sottovoce.report import numbers

    known, folder = datasets.available(), os.environ.get(datasets.FOLDER_VARIABLE)

    def text() -> None:
        rows = []
        for one in known:
            sizes = map(numbers.count, (one.rows, one.test_rows, one.features))
            rows.append([one.name, one.status, *sizes, one.where or numbers.MISSING])
        headings = ["name", "status", "rows", "test rows", "features", "where"]
        tables.print_table(headings, rows, {"name", "status", "where"}, "Data sets")
        for one in known:
            if one.status == "missing":
                tables.note(f"{one.name}: {one.how_to_get}")
        value = folder or "not set. It names the folder of data sets that do not come with the package"
        tables.note(f"{datasets.FOLDER_VARIABLE} is {value}.")

    plain = {"folder": folder, "data": [asdict(one) for one in known]}
    terminal.show(as_json, quiet, plain, [f"{one.name} {one.status}" for one in known], text)

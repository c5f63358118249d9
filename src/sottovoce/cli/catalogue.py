"""`sottovoce list` and `sottovoce data`."""

import os

import typer

from sottovoce.cli import terminal
from sottovoce.report import tables as show


def list_(as_json: terminal.Json = False, quiet: terminal.Quiet = False) -> None:
    """Name every algorithm, loss, penalty, participation rule, partition and data set, with their options."""
    with terminal.exit_codes():
        kinds = show.catalogue()
        if as_json:
            show.print_json(kinds)
        elif quiet:
            for kind, entries in kinds.items():
                for entry in entries:
                    typer.echo(f"{kind} {entry['name']}")
        else:
            for kind, entries in kinds.items():
                show.print_catalogue(kind, entries)


def data(as_json: terminal.Json = False, quiet: terminal.Quiet = False) -> None:
    """Say which data sets are bundled, which were found, and how to get the rest."""
    with terminal.exit_codes():
        from dataclasses import asdict

        from sottovoce.problems import data as datasets

        known = [asdict(info) for info in datasets.available()]
        if as_json:
            show.print_json({"folder": os.environ.get(datasets.FOLDER_VARIABLE), "data": known})
        elif quiet:
            for info in known:
                typer.echo(f"{info['name']} {info['status']}")
        else:
            show.print_data(known, datasets.FOLDER_VARIABLE)

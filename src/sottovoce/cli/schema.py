"""`sottovoce schema`."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, echo

from sottovoce.cli import terminal


def schema(
    action: Annotated[str, Argument(metavar="ACTION", help="'new' drafts a schema, 'digest' names one.")],
    file: Annotated[Path, Argument(metavar="FILE", help="A CSV file for 'new', a schema for 'digest'.")],
    label: Annotated[str, Option(help="The column that is to be predicted.")] = "",
    owner: Annotated[str, Option(help="The column that names the owner of each row.")] = "",
    drop: Annotated[list[str] | None, Option(help="A column to leave out, such as an id. Repeatable.")] = None,
    dictionary: Annotated[Path | None, Option(help="A Frictionless Table Schema (JSON) to take it from.")] = None,
    public: Annotated[bool, Option("--public", help="The rows are public: read ranges and levels off.")] = False,
    out: Annotated[Path | None, Option(help="Write a TOML file instead of printing it.")] = None,
) -> None:
    """Draft a schema of a table, or print the digest by which nodes know it.

    Of the CSV file only the first line is read, which names the columns: what they hold is for you to complete from
    what is known without looking at the rows. With --dictionary it comes from a Table Schema, and with --public from
    the rows themselves: never say that of private rows.
    """
    from sottovoce.core import check
    from sottovoce.problems.schema import Schema
    from sottovoce.problems.schema.draft import draft, draft_of_public_rows

    check.one_of("schema", "action", action, ("new", "digest"))
    if action == "digest":
        echo(Schema.from_toml(file).digest())
        return
    check.require(not (public and dictionary), "schema", "give either --public or --dictionary")
    check.require(bool(label) or not (public or dictionary), "schema", "needs --label, the column to be predicted")
    if dictionary is not None:
        text = Schema.from_frictionless(dictionary, label=label, owner=owner, drop=drop or ()).to_toml()
    elif public:
        with terminal.progress(quiet=False) as progress:
            progress("reading rows", 0, 0)
            text = draft_of_public_rows(file, label, owner, drop or (), rows_are_public=True).to_toml()
    else:
        text = draft(file, label, owner, drop or ())
    terminal.print_or_write(text, out)

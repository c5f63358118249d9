"""What the command line prints: tables, notes and JSON. Rich is imported where it is used, so that help is quick."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from sottovoce.core.plain import Json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from sottovoce.report.numbers import Measure


def console(stderr: bool = False) -> "Console":
    """A screen that prints text as it is: paths may contain what Rich takes for markup."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def complain(text: str) -> None:
    """A line on stderr."""
    typer.echo(text, err=True)


def note(text: str) -> None:
    """A paragraph on stdout."""
    console().print(text)


def commands(title: str, *lines: str) -> None:
    """A title, and below it what to type or to read out, each on a line that nothing breaks: it is copied as it is."""
    typer.echo("\n    ".join([title, *lines]))


def print_json(value: Mapping[str, object]) -> None:
    from sottovoce.experiment.whole_files import finite

    typer.echo(json.dumps(finite(value), indent=2, allow_nan=False))


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence["str | Text"]], words: Collection[str], title: str = ""
) -> None:
    """Print rows of text. Columns named in `words` are to the left and wrap; all others hold numbers.

    Without headings ("" for each) only the rows are printed.
    """
    from rich import box
    from rich.table import Table

    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), show_header=any(headings)
    )
    for heading in headings:
        is_text = heading in words
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=not is_text, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console().print(table)


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table for a page of the docs, each cell on one line."""

    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |"

    return "\n".join([line(headings), "|---" * len(headings) + "|", *map(line, rows)])


def emphasised(text: str, alarming: bool = False) -> "Text":
    """A cell that catches the eye."""
    from rich.text import Text

    return Text(text, style="bold red" if alarming else "bold")


def print_summaries(title: str, summaries: Sequence[Json]) -> None:
    """One line for each finished run; it fits 80 columns."""
    from sottovoce.report.numbers import LARGER, MEASURES, MISSING, quality, size

    accuracy, *losses = MEASURES

    def measured_text(summary: Json, measure: "Measure") -> str:
        """The mean over runs and their deviation; beside an accuracy, the share of the larger class."""
        values = [summary.get(measure.column), summary.get(f"{measure.column}_std")]
        text = "\n± ".join(measure.text(value) for value in (values if values[1] else values[:1]))
        larger = summary.get(LARGER.column) if measure is accuracy else None
        return text if larger is None else f"{text}\n{LARGER.words}\n{LARGER.text(larger)}"

    measured = [accuracy] if any(summary.get(accuracy.column) is not None for summary in summaries) else []
    loss = next((each for each in losses if any(each.column in summary for summary in summaries)), losses[-1])
    measured.append(loss)
    words = {"method", "ε, per what,\nagainst whom"}
    names = [measure.column.replace("_", "\n") for measure in measured]
    rows = []
    for summary in summaries:
        texts = [measured_text(summary, measure) for measure in measured]
        rounds = MISSING if summary["rounds"] is None else str(summary["rounds"])
        sent = [size(summary.get(direction)) for direction in ("bytes_up", "bytes_down")]
        seconds = MISSING if summary.get("seconds") is None else f"{summary['seconds']:.1f}"
        rows.append([summary["method"], *texts, rounds, *sent, _privacy(summary), seconds])
    headings = ["method", *names, "rounds", "sent\nup", "sent\ndown", "ε, per what,\nagainst whom", "seconds"]
    print_table(headings, rows, words, title)
    for summary in summaries:
        if LARGER.column in summary or "test_r2" in summary:
            note(f"{summary['method']}: {quality(summary)}")


def _privacy(summary: Json) -> str:
    if summary.get("epsilon") is None:
        return summary["privacy"]
    from sottovoce.privacy.guarantee import short_unit
    from sottovoce.privacy.guarantee_words import of_sums

    against = "sums only" if of_sums(summary["observer"]) else "the server"
    return f"{summary['epsilon']:.4g} per {short_unit(summary['unit'])},\n{against}"

"""The command line: which commands there are. Each has a file in `commands/`; what they share is in `terminal.py`."""

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from sottovoce.cli import (
    account,
    audit,
    catalogue,
    certificates,
    compare,
    demo,
    flower,
    node,
    plan,
    predict,
    report,
    reproduce,
    run,
    schema,
    terminal,
    verify,
)
from sottovoce.cli import app as app_command
from sottovoce.report import tables as show

_EXIT_CODES = """Exit codes:
0    done
1    internal error (SOTTOVOCE_DEBUG=1 shows where)
2    bad input
3    a file or a data set is missing
4    no privacy guarantee supports what was asked, or a budget is spent
5    something cannot be written (full disk, no permission)
7    audit: a claim is refuted
8    audit: something is suspicious
9    verify: what a run folder says does not hold
130  interrupted"""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # this file decides what an error looks like
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train one model over data that stays with its owners, with privacy guarantees that are true.",
    epilog=_EXIT_CODES,
)
app.command(epilog="Example: sottovoce demo --out runs/first")(demo.demo)
app.command(epilog="Examples: sottovoce run examples/adult.toml --rounds 50 · sottovoce run --resume runs/adult-...")(
    run.run
)
app.command(epilog="Examples: sottovoce report runs/adult-... · sottovoce report runs/one runs/two --out both.html")(
    report.report
)
app.command(epilog="Example: sottovoce verify runs/adult-...")(verify.verify)
app.command(epilog="Example: sottovoce predict runs/adult-... new.csv --out predicted.csv")(predict.predict)
app.command(
    epilog="Examples: sottovoce schema new rows.csv --label ill --drop id --out schema.toml · "
    "sottovoce schema digest schema.toml"
)(schema.schema)
app.command(epilog="Example: sottovoce compare ours.toml theirs.toml --seeds 20")(compare.compare)
app.command(
    epilog="Example: sottovoce plan --clients 100 --rows 400 --features 104 --epsilon 1 --delta 1e-5 --target 0.8"
)(plan.plan)
app.command("list", epilog="Example: sottovoce list --json")(catalogue.list_)
app.command(epilog="Example: SOTTOVOCE_DATA=~/data sottovoce data")(catalogue.data)
app.command(
    epilog="Examples: sottovoce account --epsilon 1 --rounds 100 · sottovoce account --noise 37 --rounds 100 "
    "· sottovoce account --noise 2 --batch 10 --size 400 --relation add-remove --epsilon 1"
)(account.account)
app.command(
    epilog="Examples: sottovoce audit fedspd-dp --mode published --epsilon 1 · sottovoce audit dp-admm --runs 20000 "
    "--statistic score · sottovoce audit dp-sgd --path poisson --path float32 · sottovoce audit fedepm --all-paths · "
    "sottovoce audit run.toml --one-run · sottovoce audit --papers"
)(audit.audit)
app.command("app", epilog="Example: sottovoce app hospitals --config run.toml")(app_command.app)
app.command(epilog="Example: sottovoce certificates keys --host server.example --client north --client south")(
    certificates.certificates
)
app.command(epilog="Examples: sottovoce node node.toml · sottovoce node node.toml --gate /run/north/gate")(node.node)
app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": ["--help"]},
    epilog="Examples: sottovoce flower superlink --insecure · sottovoce flower run hospitals local --stream",
)(flower.flower)
app.command(
    epilog="Examples: sottovoce reproduce --list · sottovoce reproduce fed-plt-table-3 · sottovoce reproduce --quick "
    "· sottovoce reproduce all --out docs/results"
)(reproduce.reproduce)


def main() -> None:
    """The console entry."""
    import warnings

    warnings.showwarning = lambda message, *_: show.complain(f"warning: {message}")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal that knows no ε shall not end a run
            stream.reconfigure(errors="replace")
    try:
        app()
    except KeyboardInterrupt:  # before a command has begun
        show.complain("Interrupted.")
        sys.exit(terminal.INTERRUPTED)


def _version(wanted: bool) -> None:
    if wanted:
        import sottovoce

        typer.echo(f"sottovoce {sottovoce.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of the program itself; the text is in `app`."""

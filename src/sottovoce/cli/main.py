"""The command line: which commands there are. Each has its own file; what they share is in `terminal.py`."""

import sys
from collections.abc import Callable
from io import TextIOWrapper
from typing import Annotated

import typer

from sottovoce.cli import (
    account,
    audit,
    catalogue,
    certificates,
    compare,
    data,
    demo,
    flower,
    node,
    plan,
    report,
    reproduce,
    run,
    terminal,
    verify,
)
from sottovoce.cli import app as app_command
from sottovoce.report import tables

_EXIT_CODES = {
    0: "done",
    1: "internal error (SOTTOVOCE_DEBUG=1 shows where)",
    2: "bad input",
    3: "a file or a data set is missing",
    4: "no privacy guarantee supports what was asked, or a budget is spent",
    5: "something cannot be written (full disk, no permission)",
    7: "audit: a claim is refuted",
    8: "audit: something is suspicious",
    9: "verify: what a run folder states does not hold",
    130: "interrupted",
}
_COMMANDS: dict[str, tuple[Callable[..., None], tuple[str, ...]]] = {  # name -> function, examples
    "demo": (demo.demo, ("sottovoce demo --out runs/first",)),
    "run": (run.run, ("sottovoce run examples/adult.toml --rounds 50", "sottovoce run --resume runs/adult-...")),
    "report": (
        report.report,
        ("sottovoce report runs/adult-...", "sottovoce report runs/one runs/two --out both.html"),
    ),
    "verify": (verify.verify, ("sottovoce verify runs/adult-...",)),
    "compare": (compare.compare, ("sottovoce compare ours.toml theirs.toml --seeds 20",)),
    "plan": (
        plan.plan,
        ("sottovoce plan --clients 100 --rows 400 --features 104 --epsilon 1 --delta 1e-5 --target 0.8",),
    ),
    "list": (catalogue.list_, ("sottovoce list --json",)),
    "data": (data.data, ("SOTTOVOCE_DATA=~/data sottovoce data",)),
    "account": (
        account.account,
        (
            "sottovoce account --epsilon 1 --rounds 100",
            "sottovoce account --noise 37 --rounds 100",
            "sottovoce account --noise 2 --batch 10 --size 400 --relation add-remove --epsilon 1",
        ),
    ),
    "audit": (
        audit.audit,
        (
            "sottovoce audit fedspd-dp --mode published --epsilon 1",
            "sottovoce audit dp-admm --runs 20000 --statistic score",
            "sottovoce audit dp-sgd --path poisson --path float32",
            "sottovoce audit fedepm --all-paths",
            "sottovoce audit run.toml --one-run",
            "sottovoce audit --papers",
        ),
    ),
    "app": (app_command.app, ("sottovoce app hospitals --config run.toml",)),
    "certificates": (
        certificates.certificates,
        ("sottovoce certificates keys --host server.example --client north --client south",),
    ),
    "node": (node.node, ("sottovoce node node.toml", "sottovoce node node.toml --gate /run/north/gate")),
    "flower": (
        flower.flower,
        ("sottovoce flower superlink --insecure", "sottovoce flower run hospitals local --stream"),
    ),
    "reproduce": (
        reproduce.reproduce,
        (
            "sottovoce reproduce --list",
            "sottovoce reproduce fed-plt-table-3",
            "sottovoce reproduce --quick",
            "sottovoce reproduce all --out docs/results",
        ),
    ),
}
_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": ["--help"]}


def _lines(heading: str, lines: list[str]) -> str:
    """Typer keeps a line break where a paragraph ends."""
    return "\n\n".join([heading, *lines])


app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # `terminal.exit_codes` decides what an error looks like
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train one model over data that stays with its owners, with privacy guarantees that are true.",
    epilog=_lines("Exit codes:", [f"{code:<3}  {meaning}" for code, meaning in _EXIT_CODES.items()]),
)
for _name, (_function, _examples) in _COMMANDS.items():
    app.command(
        _name,
        epilog=_lines("Examples:" if len(_examples) > 1 else "Example:", list(_examples)),
        context_settings=_PASSED_ON if _name == "flower" else None,
    )(terminal.exit_codes()(_function))


def main() -> None:
    """The console entry."""
    import warnings

    warnings.showwarning = lambda message, *_: tables.complain(f"warning: {message}")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal that cannot print ε must not end a run
            stream.reconfigure(errors="replace")
    try:
        app()
    except KeyboardInterrupt:  # before a command has begun
        tables.complain("Interrupted.")
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

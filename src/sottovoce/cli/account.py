"""`sottovoce account`."""

from typing import Annotated

import typer

from sottovoce.cli import terminal
from sottovoce.report import tables as show


def account(
    noise: Annotated[
        float | None, typer.Option(help="Noise multiplier: deviation (Laplace: scale) / sensitivity.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Total budget; alone, the noise it needs is computed.")] = None,
    delta: Annotated[float, typer.Option(help="Of the whole run; 0 for Laplace noise.")] = 1e-5,
    rounds: Annotated[int, typer.Option(help="Rounds a client takes part in.")] = 100,
    answers: Annotated[int, typer.Option(help="Oracle answers a round, e.g. local steps.")] = 1,
    mechanism: Annotated[str, typer.Option(help="gaussian, discrete-gaussian or laplace.")] = "gaussian",
    relation: Annotated[str, typer.Option(help="replace-one, add-remove or replace-client.")] = "replace-one",
    batch: Annotated[int, typer.Option(help="Records drawn for each answer; 0: all.")] = 0,
    size: Annotated[int, typer.Option(help="Records a client has; needed with --batch.")] = 0,
    as_json: terminal.Json = False,
    quiet: terminal.Quiet = False,
) -> None:
    """What noise costs, what a budget needs, and how many rounds it lasts: for one client, with a table over rounds."""
    with terminal.exit_codes():
        from typing import cast, get_args

        from sottovoce.core import check
        from sottovoce.planning import account as accounts
        from sottovoce.privacy.events import Mechanism, Relation

        check.one_of("account", "mechanism", mechanism, ("gaussian", "discrete-gaussian", "laplace"))
        check.one_of("account", "relation", relation, get_args(Relation))
        result = accounts.account(
            noise=noise,
            epsilon=epsilon,
            delta=delta,
            rounds=rounds,
            answers_per_round=answers,
            mechanism=cast(Mechanism, mechanism),
            relation=cast(Relation, relation),
            batch=batch,
            size=size,
        )
        if as_json:
            show.print_json(result.to_dict())
        elif quiet:
            typer.echo(f"{result.epsilon:.6g}" if noise is not None else f"{result.event.noise_multiplier:.6g}")
        else:
            show.print_account(result)

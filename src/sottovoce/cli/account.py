"""`sottovoce account`."""

from typing import TYPE_CHECKING, Annotated

from typer import Option

from sottovoce.cli import terminal
from sottovoce.core.plain import Json
from sottovoce.report import tables

if TYPE_CHECKING:
    from sottovoce.planning.account import Account


def account(
    noise: Annotated[float | None, Option(help="Noise multiplier: deviation (Laplace: scale) / sensitivity.")] = None,
    epsilon: Annotated[float | None, Option(help="Total budget; alone, the noise it needs is computed.")] = None,
    delta: Annotated[float, Option(help="Of the whole run; 0 for Laplace noise.")] = 1e-5,
    rounds: Annotated[int, Option(help="Rounds a client takes part in.")] = 100,
    answers: Annotated[int, Option(help="Oracle answers a round, e.g. local steps.")] = 1,
    mechanism: Annotated[str, Option(help="gaussian, discrete-gaussian or laplace.")] = "gaussian",
    relation: Annotated[str, Option(help="replace-one, add-remove or replace-client.")] = "replace-one",
    batch: Annotated[int, Option(help="Records drawn for each answer; 0: all.")] = 0,
    size: Annotated[int, Option(help="Records a client has; needed with --batch.")] = 0,
    coordinates: Annotated[
        int | None, Option(help="Numbers of an answer: discrete Gaussian noise as in runs. Left out: by zCDP.")
    ] = None,
    as_json: terminal.Json = False,
    quiet: terminal.Quiet = False,
) -> None:
    """What noise costs, what a budget needs, and how many rounds it lasts: for one client, with a table over rounds."""
    from dataclasses import asdict

    kind: Json = {"mechanism": mechanism, "relation": relation, "coordinates": coordinates}
    spent = {"noise": noise, "epsilon": epsilon, "delta": delta, "rounds": rounds, "answers_per_round": answers}
    with terminal.progress(quiet, as_json) as progress:
        from sottovoce.planning.account import account as compute

        result = compute(**spent, **kind, batch=batch, size=size, progress=progress)
    answer = result.epsilon if noise is not None else result.event.noise_multiplier
    terminal.show(as_json, quiet, asdict(result), [f"{answer:.6g}"], lambda: _print(result))


def _print(result: "Account") -> None:
    event, per_round = result.event, result.answers_per_round
    sampled = {
        "full": "all records",
        "poisson": f"each record with probability {event.rate:.4g}",
        "fixed-size": f"{event.batch} of {event.size} records",
    }[event.sampling]
    tables.note(
        f"{event.mechanism} noise of {event.noise_multiplier:.6g} times the sensitivity ({event.relation}, {sampled}), "
        f"{per_round} answer{'s' if per_round > 1 else ''} a round, δ = {result.delta:g}, by {result.accountant}:"
    )
    tables.print_table(["rounds", "ε"], [[str(rounds), f"{epsilon:.6g}"] for rounds, epsilon in result.table], words=())
    if result.affordable_rounds is not None:
        tables.note(f"The budget lasts for {result.affordable_rounds} rounds.")

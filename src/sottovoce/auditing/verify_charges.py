"""The part of `verify` that is about numbers: charges, what they cost, and the statement that follows from them."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from sottovoce.auditing.second_accountant import agree, second_epsilon, tolerance
from sottovoce.core import check
from sottovoce.experiment import run_file
from sottovoce.experiment.publishable import tested_on_owners
from sottovoce.experiment.result import Result
from sottovoce.experiment.task import Task
from sottovoce.ledger.charges import Charges, Counted, History, Kept, Stated
from sottovoce.privacy.calibration import bound_in_force, column_kind, kind_of_answer
from sottovoce.privacy.events import Event
from sottovoce.privacy.guarantee import (
    LABELS_FOUND,
    TEST_SET_ASIDE,
    Guarantee,
    Statement,
    state_guarantee,
)
from sottovoce.privacy.modes import Proven, ProvenColumns

_LEAST_SAMPLED_NOISE = 0.1  # with so little noise sampling alone is enough, and epsilon may be below the budget
_SAME = ("mechanism", "sampling", "relation", "row_bound")  # of an answer, whatever batches its owner has


def looks(result: Result) -> Iterator[tuple[str, Callable[[], str]]]:
    """What to look at, in order."""
    charges = result.charges
    if charges is None:
        yield "chains", lambda: _nothing_charged()
        return
    yield "chains", lambda: _chains(charges)
    yield "owners", lambda: _owners(result, charges)
    yield "epsilon", lambda: _epsilon(result.guarantee, charges)
    yield "other numbers", lambda: _other_numbers(result.guarantee, charges)
    yield "noise", lambda: _noise(result, charges)
    yield "statement", lambda: _statement(result, charges)
    yield "history", lambda: _history(result, charges)


def _task(config: Mapping[str, Any]) -> Task:
    """What the config asks for; a neural model is code, which no file brings along, and plays no part here."""
    module = config["objective"].get("loss") == "module"
    tables = {**config, **({"objective": {"loss": "squared"}} if module else {})}
    task, _ = run_file.build_task(tables, "config.toml")
    task.privacy.check(task.algorithm.asks(), task.objective.penalty)
    return task


def _nothing_charged() -> str:
    raise check.InvalidInput("charges.json: an epsilon is stated, and nothing says what was charged")


def _chains(charges: Charges) -> str:
    histories = [*charges.histories, *([charges.labels] if charges.labels else [])]
    for number, history in enumerate(histories):
        fault = history.fault()
        check.require(not fault, f"charges, history {number}", fault)
    answers = sum(sum((history.spent() or {}).values()) for history in histories)
    return f"{len(histories)} distinct lists of charges, of {answers} answers, are whole chains of hashes"


def _owners(result: Result, charges: Charges) -> str:
    config = result.config
    data, clients = config.get("data", {}), config.get("clients", {})
    check.require(
        data.get("source", "arrays") == "arrays", "config.toml", "names an unknown source", data.get("source")
    )
    said = len(clients["names"]) if clients else len(data["split"]) if "split" in data else data.get("clients")
    owners = len(result.guarantee.epsilon_of_client)
    check.require(charges.owners == owners, "charges", f"must have one history for each of {owners}", charges.owners)
    if isinstance(said, int):
        check.require(said == owners, "config.toml", f"names another number of owners than {owners}", said)
    runs = config["run"].get("runs") or 1
    rule = f"must be of the {runs} repetitions that the config has"
    check.require(charges.repetitions == runs, "charges", rule, charges.repetitions)
    check.require(charges.rounds == result.rounds, "charges", f"must be of {result.rounds} rounds", charges.rounds)
    check.require(runs == 1 or not charges.run, "charges", "ledgers on disk are for one run at a time")
    if clients:
        check.require(charges.run == clients.get("experiment"), "charges", "are of another experiment", charges.run)
    return f"there is a list for each of {owners} owners, in {runs} repetition{'s' if runs > 1 else ''}"


# -------------------------------------------------------------------------------------------------------------- numbers


def _epsilon(said: Guarantee, charges: Charges) -> str:
    """Every owner's epsilon, and the largest of them."""
    assert said.delta is not None
    found = [_cost(history, said.delta) for history in charges.histories]
    for owner, printed in enumerate(said.epsilon_of_client):
        places = [repetition[owner] for repetition in charges.who]
        worst = max(places, key=lambda place: found[place])
        _compare(f"owner {owner}", printed, found[worst], _spent(charges.histories[worst]))
    check.require(said.epsilon == max(said.epsilon_of_client), "guarantee", "is not of the owner that spent most")
    loosest = max(tolerance(_spent(history)) for history in charges.histories)
    return (
        f"a second accountant finds epsilon = {max(found):.6g} at delta = {said.delta:g}, and {said.epsilon:.6g} is "
        f"printed (they may be apart by {100 * loosest:g} %)"
    )


def _other_numbers(said: Guarantee, charges: Charges) -> str:
    """What all repetitions, all parties and the labels cost."""
    assert said.delta is not None
    checked = []
    if charges.repetitions > 1:
        spent = charges.of_all_repetitions()
        _compare("all models", said.epsilon_of_all, second_epsilon(spent, said.delta), spent)
        checked.append(f"all {charges.repetitions} models together")
    if said.together is not None:
        each = charges.of_all_owners()
        worst = max(each, key=lambda spent: second_epsilon(spent, said.delta or 0.0))
        _compare("all parties", said.together, second_epsilon(worst, said.delta), worst)
        checked.append("a record that changes at all parties")
    if charges.labels is not None:
        flips = set(charges.labels.spent() or ())
        alike = all(kind == Event("randomized-response", kind.noise_multiplier) for kind in flips)
        check.require(alike, "charges", "labels are charged for something else than being flipped", flips)
        on_labels = _cost(charges.labels, 0.0)
        _compare("labels", said.label_epsilon, on_labels, _spent(charges.labels))
        checked.append("labels")
    check.require((charges.labels is None) == (said.label_epsilon is None), "charges", "and statement differ on labels")
    return f"the same holds for {', '.join(checked)}" if checked else "no other number is stated"


def _cost(history: History, delta: float) -> float:
    return history.epsilon if isinstance(history, Stated) else second_epsilon(history.spent(), delta)


def _spent(history: History) -> dict[Event, int]:
    return {} if isinstance(history, Stated) else dict(history.spent())


def _compare(who: str, printed: float | None, found: float, spent: Mapping[Event, int]) -> None:
    """Never more than what is printed, and not less but for grids and rounding: less would be of other charges."""
    number = isinstance(printed, float | int) and not isinstance(printed, bool)
    check.require(number, who, "must have a number", printed)
    assert printed is not None
    rule = f"epsilon {printed:.8g} is printed, and by a second accountant the charges cost"
    check.require(agree(printed, found, spent), who, rule, found)


# ----------------------------------------------------------------------------------------------------- noise and config


def _noise(result: Result, charges: Charges) -> str:
    """What an answer was, how much noise it had, and how many there were, are what the config asks for."""
    task = _task(result.config)
    privacy: Any = task.privacy
    check.require(isinstance(privacy, Proven | ProvenColumns), "config.toml", "has no budget, and one is charged")
    event = charges.event
    for name, wanted in _planned_kind(result.config, task).items():
        there = getattr(event, name)
        check.require(there == wanted, "charges", f"an answer must be of {name} {wanted!r}", there)
    most, done = _planned_answers(task), _answers(task, charges.rounds)
    for history in charges.histories:
        own = sum(count for kind, count in _of_this_run(history, charges.run).items() if _alike(kind, event))
        rule = f"holds more answers than {charges.rounds} rounds have, {min(most, done)}"
        check.require(own <= min(most, done), "charges", rule, own)
    _answered_enough(result, charges, task)
    if charges.run and charges.rounds:
        _answered_in(charges)
    first = _of_this_run(charges.of(0), charges.run)
    planned = {kind: count for kind, count in first.items() if not _alike(kind, event)} | {event: most}
    cost = second_epsilon(planned, privacy.delta)
    rule = f"{most} answers with its noise must cost the budget, epsilon {privacy.epsilon:g}"
    floor = event.sampling != "full" and event.noise_multiplier <= _LEAST_SAMPLED_NOISE * 1.01
    holds = cost <= privacy.epsilon if floor else agree(privacy.epsilon, cost, planned)
    check.require(holds, "charges", rule, cost)
    return f"noise of {event.noise_multiplier:.6g} times the sensitivity is what the config's budget asks for"


def _answered_enough(result: Result, charges: Charges, task: Task) -> None:
    """Who answered, by the history of the run, was charged: as many answers as its recorded rounds had at least."""
    if "answered" not in result.history.columns:
        return
    asks, privacy = task.algorithm.asks(), task.privacy
    each = privacy.costs(asks, asks.only)
    answered = int(np.sum(result.history["answered"])) * each
    places = [place for repetition in charges.who for place in repetition]
    counts = [sum(_of_this_run(history, charges.run).values()) for history in charges.histories]
    stated = any(isinstance(charges.histories[place], Stated) for place in places)
    charged = sum(counts[place] for place in places)
    rule = f"the history of the run tells of {answered} answers, and fewer are charged"
    check.require(stated or charged >= answered, "charges", rule, charged)


def _answered_in(charges: Charges) -> None:
    """Somebody's ledger knows this run, and no round of it that was not done."""
    kept = [history for history in charges.histories if isinstance(history, Kept)]
    charged = [row for history in kept for row in history.rows if row.kind == "charge" and row.run == charges.run]
    rounds = {row.round or 0 for row in charged}
    check.require(bool(rounds) or not kept, "charges", "no ledger knows this run", charges.run)
    known = rounds <= set(range(charges.rounds + 1))
    check.require(
        known, "charges", f"this run has rounds up to {charges.rounds}, and others are charged", sorted(rounds)
    )


def _planned_answers(task: Task) -> int:
    """What the noise was made for: the most answers that one owner can be asked for."""
    most = task.participation.most(task.rounds)
    return _answers(task, min(most, getattr(task.privacy, "participations", None) or most))


def _answers(task: Task, rounds: int) -> int:
    """How many answers one owner gives in so many rounds."""
    asks = task.algorithm.asks()
    return rounds * task.privacy.costs(asks, asks.only) + getattr(task.privacy, "model", 0)


def _planned_kind(config: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """What the config says an answer is, as far as it says it."""
    privacy: Any = task.privacy
    if isinstance(privacy, ProvenColumns):
        return {**column_kind(privacy), "sampling": "full", "row_bound": 0.0}
    data, clients, asks = config.get("data", {}), config.get("clients", {}), task.algorithm.asks()
    smallest = data.get("smallest_client") if data.get("source") == "arrays" else None
    kind = {"sampling": "full", "rate": 1.0, "batch": 0, "size": 0}
    kind |= kind_of_answer(privacy, asks.only, np.array([smallest or 1]))
    if smallest is None and asks.batch:  # which share of the records a batch is, is not in the config
        for name in ("sampling", "rate", "batch", "size"):
            kind.pop(name)
    if smallest is not None or clients:
        bound = clients.get("row_bound") if clients else data.get("row_bound")
        kind["row_bound"] = bound_in_force(privacy, asks.only, bound)
    return kind


def _alike(event: Event, planned: Event) -> bool:
    """Whether this is an answer of the training: its noise is the same, its batch that of its owner."""
    same = all(getattr(event, name) == getattr(planned, name) for name in _SAME)
    return same and event.noise_multiplier == planned.noise_multiplier


def _of_this_run(history: History, run: str) -> dict[Event, int]:
    if isinstance(history, Counted):
        return history.spent()
    return history.spent_in(run) if isinstance(history, Kept) else {}


# ------------------------------------------------------------------------------------------------------------ statement


def _statement(result: Result, charges: Charges) -> str:
    """The statement, made again from config and charges, is the one that is there."""
    said, config = result.guarantee, result.config
    again = _made_again(said, config, charges)
    for field in dataclasses.fields(Guarantee):
        if field.name in ("text", "not_covered"):
            continue
        ours, theirs = getattr(again, field.name), getattr(said, field.name)
        check.require(ours == theirs, "guarantee.json", f"{field.name} must be {ours!r}", theirs)
    least = again.not_covered
    needed = [LABELS_FOUND] * bool(config.get("data", {}).get("labels_found"))
    needed += [TEST_SET_ASIDE] * tested_on_owners(config)
    whole = said.not_covered[: len(least)] == least and set(needed) <= set(said.not_covered[len(least) :])
    check.require(whole, "guarantee.json", "leaves out something that it does not cover")
    return f"theorem, constants, unit, noise and assumptions follow from config and charges ({said.theorem})"


def _made_again(said: Guarantee, config: Mapping[str, Any], charges: Charges) -> Guarantee:
    from sottovoce.privacy import accounting

    task, deployed = _task(config), "clients" in config
    privacy: Any = task.privacy
    epsilons = np.array(said.epsilon_of_client)
    worst: Mapping[Event, int] = charges.of(int(np.argmax(epsilons))).spent() or {}
    if deployed:
        worst = {charges.event: charges.rounds}
    known = Statement(
        epsilons,
        accounting.accountant_name(worst, privacy.delta),
        charges,
        task.algorithm.asks().kinds,
        lasting=bool(charges.run),
        deployed=deployed,
        forgotten="seed" not in config["run"],
        of_all=said.epsilon_of_all,
    )
    facts: dict[str, Any] = {}
    if task.algorithm.layout == "columns":
        shown = not any(isinstance(history, Stated) for history in charges.histories)
        together = (said.together or 0.0) if shown else None
        facts = {"together": together, "predicts": said.predicts, "on_labels": said.label_epsilon}
    return state_guarantee(privacy, task.algorithm.name, charges.rounds, known, **facts)


def _history(result: Result, charges: Charges) -> str:
    """The last epsilon in the history is the one that is stated, where it is kept exactly."""
    said, columns = result.guarantee, result.history.columns
    exact = not said.split and all(event.sampling == "full" for event in charges.events())
    if "epsilon" not in columns or not exact:
        return "the history keeps no exact epsilon to compare"
    last = max(result.history["epsilon"][-charges.repetitions :])
    same = abs(last - (said.epsilon or 0.0)) <= 1e-9 * last
    check.require(same, "history.parquet", "ends with another epsilon", last)
    return "the history ends with the epsilon that is stated"

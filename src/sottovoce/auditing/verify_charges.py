"""The part of `verify` about numbers: charges, what they cost, and the statement that follows from them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from sottovoce.auditing.second_accountant import agree, second_epsilon, tolerance
from sottovoce.core import check
from sottovoce.core.contract import Part
from sottovoce.core.plain import Json
from sottovoce.experiment import run_file
from sottovoce.experiment.publishable import tested_on_owners
from sottovoce.experiment.result import Result
from sottovoce.experiment.task import Task
from sottovoce.ledger.charges import Charges
from sottovoce.ledger.histories import History, Kept, Stated, added
from sottovoce.privacy import accounting
from sottovoce.privacy.calibration import AnswerShape
from sottovoce.privacy.events import Event, GridEvent
from sottovoce.privacy.guarantee import LABELS_FOUND, TEST_SET_ASIDE, Guarantee, Statement, state_guarantee
from sottovoce.problems.vertical import usual_names

_LEAST_SAMPLED_NOISE = 0.1  # with so little noise, sampling alone is enough, and epsilon may be below the budget
_SAME = ("mechanism", "sampling", "relation", "row_bound", "noise_multiplier")  # in answers of one part
_SAME_SHARE = 1e-6  # relative: of the budget that each kind of question may spend
Spent = Mapping[Event, int]


def looks(result: Result) -> Iterator[tuple[str, Callable[[], str]]]:
    """The checks, in order: what each is about, and a function that describes what it verified, or raises."""
    if result.charges is None:
        yield "chains", _nothing_charged
        return
    checks = ChargeChecks(result, result.charges)
    for about in ("chains", "owners", "epsilon", "other numbers", "noise", "statement", "history"):
        yield about, getattr(checks, about.replace(" ", "_"))


def _nothing_charged() -> str:
    raise check.InvalidInput("charges.json: an epsilon is stated, but no charges are kept")


@dataclass(frozen=True)
class ChargeChecks:
    """The checks of one run that was charged. Each returns a sentence about what it verified, or raises."""

    result: Result
    charges: Charges

    @cached_property
    def task(self) -> Task:
        """What the config asks for. The code of a neural model is not in it, and is not needed here."""
        module = self.config["objective"].get("loss") == "module"
        tables = {**self.config, **({"objective": {"loss": "squared"}} if module else {})}
        task, _ = run_file.build_task(tables, "config.toml")
        task.privacy.check(task.declared, task.objective.penalty)
        return task

    @property
    def config(self) -> Json:
        return self.result.config

    @property
    def guarantee(self) -> Guarantee:
        return self.result.guarantee

    @property
    def delta(self) -> float:
        return check.given(self.guarantee.delta, "guarantee.json", "must have a delta beside its epsilon")

    # ------------------------------------------------------------------------------------------------------- lists

    def chains(self) -> str:
        histories = [*self.charges.histories, *([self.charges.labels] if self.charges.labels else [])]
        for number, history in enumerate(histories):
            fault = history.fault()
            check.require(not fault, f"charges, history {number}", fault)
        answers = sum(sum(_spent(history).values()) for history in histories)
        return f"{len(histories)} distinct lists of charges, of {answers} answers, are whole chains of hashes"

    def owners(self) -> str:
        charges, config = self.charges, self.config
        data, clients = config.get("data", {}), config.get("clients", {})
        source, runs = data.get("source", "arrays"), config["run"].get("runs") or 1
        check.require(source == "arrays", "config.toml", "names an unknown source", source)
        stated = len(clients["names"]) if clients else len(data["split"]) if "split" in data else data.get("clients")
        owners, rounds = len(self.guarantee.epsilon_of_client), self.result.rounds
        rule = f"must have one history for each of {owners}"
        check.require(charges.owners == owners, "charges", rule, charges.owners)
        if isinstance(stated, int):
            check.require(stated == owners, "config.toml", f"names another number of owners than {owners}", stated)
        roster = getattr(self.task.privacy, "roster", None)
        if self.task.privacy.sums:
            check.require(roster == owners, "config.toml", f"its roster must be the {owners} owners", roster)
        rule = f"must be of the {runs} repetitions that the config has"
        check.require(charges.repetitions == runs, "charges", rule, charges.repetitions)
        check.require(charges.rounds == rounds, "charges", f"must be of {rounds} rounds", charges.rounds)
        check.require(runs == 1 or not charges.run, "charges", "ledgers on disk are for one run at a time")
        if clients:
            check.require(charges.run == clients.get("experiment"), "charges", "are of another experiment", charges.run)
        return f"there is a list for each of {owners} owners, in {runs} repetition{'s' if runs > 1 else ''}"

    # ----------------------------------------------------------------------------------------------------- numbers

    def epsilon(self) -> str:
        """The epsilon of every owner, and the largest of them."""
        guarantee, histories = self.guarantee, self.charges.histories
        costs = [_cost(history, self.delta) for history in histories]
        for owner, printed in enumerate(guarantee.epsilon_of_client):
            worst = max((repetition[owner] for repetition in self.charges.who), key=lambda place: costs[place])
            _compare(f"owner {owner}", printed, costs[worst], _spent(histories[worst]))
        largest = guarantee.epsilon == max(guarantee.epsilon_of_client)
        check.require(largest, "guarantee", "is not of the owner that spent most")
        apart = max(tolerance(_spent(history)) for history in histories)
        printed = f"{guarantee.epsilon:.6g} is printed (they may differ by {100 * apart:g} %)"
        return f"a second accountant finds epsilon = {max(costs):.6g} at delta = {self.delta:g}, and {printed}"

    def other_numbers(self) -> str:
        """The cost of all repetitions, of all parties and of the labels."""
        charges, guarantee, delta = self.charges, self.guarantee, self.delta
        checked = []
        if charges.repetitions > 1:
            spent = charges.of_all_repetitions()
            _compare("all models", guarantee.epsilon_of_all, second_epsilon(spent, delta), spent)
            checked.append(f"all {charges.repetitions} models together")
        if guarantee.together is not None:
            spent = max(charges.of_all_owners(), key=lambda spent: second_epsilon(spent, delta))
            _compare("all parties", guarantee.together, second_epsilon(spent, delta), spent)
            checked.append("a record that changes at all parties")
        if charges.labels is not None:
            flips = _spent(charges.labels)
            alike = all(event == Event("randomized-response", event.noise_multiplier) for event in flips)
            check.require(alike, "charges", "labels are charged for something else than being flipped", set(flips))
            _compare("labels", guarantee.label_epsilon, _cost(charges.labels, 0.0), flips)
            checked.append("labels")
        same = (charges.labels is None) == (guarantee.label_epsilon is None)
        check.require(same, "charges", "and statement differ on labels")
        return f"the same holds for {', '.join(checked)}" if checked else "no other number is stated"

    # -------------------------------------------------------------------------------------------- noise and config

    def noise(self) -> str:
        """The kind, the noise and the number of answers are what the config asks for."""
        charges, task = self.charges, self.task
        budget = check.given(task.privacy.budget, "config.toml", "has no budget, but one is charged")
        parts, planned = task.privacy.parts(task.asks()), charges.planned
        rule = f"must be planned for {len(parts)} kinds of question"
        check.require(len(planned) == len(parts), "charges", rule, len(planned))
        for part, event in zip(parts, planned, strict=True):
            for name, wanted in self._kind_of_answer(part).items():
                kept = getattr(event, name)
                check.require(kept == wanted, "charges", f"an answer must be of {name} {wanted!r}", kept)
        times = task.participation.most(task.rounds)
        times = min(times, getattr(task.privacy, "participations", None) or times)
        most, done = self._answers(parts, task.rounds, times), self._answers(parts, charges.rounds, charges.rounds)
        for history in charges.histories:
            self._not_too_many(_of_run(history, charges.run), [min(pair) for pair in zip(most, done, strict=True)])
        self._answered_enough(parts)
        if charges.run and charges.rounds:
            self._answered_in_rounds()
        self._plan_costs_budget(parts, most, *budget)
        numbers = " and ".join(f"{event.noise_multiplier:.6g}" for event in planned)
        return f"noise of {numbers} times the sensitivity is what the config's budget asks for"

    def _kind_of_answer(self, part: Part) -> Json:
        """What the config says about an answer to this part's questions."""
        data, clients, layout = self.config.get("data", {}), self.config.get("clients", {}), self.task.algorithm.layout
        smallest = data.get("smallest_client") if data.get("source") == "arrays" else None
        row_bound = clients.get("row_bound") if clients else data.get("row_bound")
        kind: Json = {"sampling": "full", "rate": 1.0, "batch": 0, "size": 0}
        shape = self._shape()
        sizes = self.task.training_sizes(np.array([smallest or 1]))
        kind |= self.task.privacy.kind_of_answer(part, sizes, row_bound, shape or AnswerShape(1, 1))
        unknown = []
        if shape is None or not all(isinstance(event, GridEvent) for event in self.charges.planned):
            unknown += ["sensitivity", "coordinates"]  # which the config, or the charge, does not say
        if smallest is None and part.batch:  # which share of the records a batch is
            unknown += ["sampling", "rate", "batch", "size"]
        if smallest is None and not clients and layout == "rows":
            unknown.append("row_bound")
        return {name: value for name, value in kind.items() if name not in unknown}

    def _shape(self) -> AnswerShape | None:
        """How long answers are; None if the config does not say."""
        data = self.config.get("data", {})
        if self.task.split is not None:
            return self.task.shape(1, 1)
        if "split" in data:
            return self.task.shape(max(data["split"]), int(data["rows"])) if "rows" in data else None
        columns = columns_of(self.config)
        return None if columns is None else self.task.shape(columns, 1)

    def _answers(self, parts: Sequence[Part], rounds: int, times: int) -> list[int]:
        """How many answers of each part one owner gives in a run of `rounds`, if it takes part in `times` of them."""
        counts = [part.given(rounds, times) for part in parts]
        counts[-1] += getattr(self.task.privacy, "model", 0) if self.task.split is None else 0
        return counts

    def _not_too_many(self, spent: Spent, most: Sequence[int]) -> None:
        for event in self.charges.planned:
            pairs = zip(self.charges.planned, most, strict=True)
            allowed = sum(count for planned, count in pairs if _alike(planned, event))
            answered = sum(count for charged, count in spent.items() if _alike(charged, event))
            rule = f"holds more answers than {self.charges.rounds} rounds have, {allowed}"
            check.require(answered <= allowed, "charges", rule, answered)

    def _answered_enough(self, parts: Sequence[Part]) -> None:
        """Every answer that the recorded rounds of the history tell of was charged."""
        charges, history = self.charges, self.result.history
        places = [place for repetition in charges.who for place in repetition]
        if "answered" not in history.columns or any(isinstance(charges.histories[place], Stated) for place in places):
            return
        answered = sum(
            int(clients) * part.answers * (part.rounds(int(k)) - part.rounds(int(k) - 1))
            for clients, k in zip(history["answered"], history["round"], strict=True)
            for part in parts
        )
        counts = [sum(_of_run(one, charges.run).values()) for one in charges.histories]
        charged = sum(counts[place] for place in places)
        rule = f"the history of the run tells of {answered} answers, and fewer are charged"
        check.require(charged >= answered, "charges", rule, charged)

    def _answered_in_rounds(self) -> None:
        """Some ledger knows this run, and charges are for rounds that were done."""
        run, done = self.charges.run, self.charges.rounds
        done = self.task.rounds + 1 if self.task.evaluate is not None else done  # held-out records come last
        kept = [history for history in self.charges.histories if isinstance(history, Kept)]
        rows = [row for history in kept for row in history.rows if row.kind == "charge" and row.run == run]
        rounds = sorted({row.round or 0 for row in rows})
        check.require(bool(rounds) or not kept, "charges", "no ledger knows this run", run)
        rule = f"this run has rounds up to {done}, and others are charged"
        check.require(not rounds or rounds[-1] <= done, "charges", rule, rounds)

    def _plan_costs_budget(self, parts: Sequence[Part], most: Sequence[int], epsilon: float, delta: float) -> None:
        """All planned answers together, next to what was charged before this run, cost the budget; each part costs its
        share."""
        events = self.charges.planned
        before = _of_run(self.charges.of(0), self.charges.run).items()
        before = {kind: count for kind, count in before if not any(_alike(kind, event) for event in events)}
        planned = added([before, *({event: count} for event, count in zip(events, most, strict=True))])
        cost = second_epsilon(planned, delta)
        floor = any(e.sampling != "full" and e.noise_multiplier <= _LEAST_SAMPLED_NOISE * 1.01 for e in events)
        holds = cost <= epsilon if floor else agree(epsilon, cost, planned)
        rule = f"{sum(most)} answers with its noise must cost the budget, epsilon {epsilon:g}"
        check.require(holds, "charges", rule, cost)
        mu_squared = np.array([n / event.noise_multiplier**2 for event, n in zip(events, most, strict=True)])
        shares, wanted = mu_squared / mu_squared.sum(), [part.share for part in parts]
        if any(event.sampling != "full" or event.mechanism == "gaussian-chain" for event in events):
            return  # of such answers only the accountant knows the cost
        rule = f"kinds of question must have shares {wanted} of the budget"
        check.require(np.allclose(shares, wanted, rtol=_SAME_SHARE, atol=0), "charges", rule, shares.tolist())

    # --------------------------------------------------------------------------------------------------- statement

    def statement(self) -> str:
        """The statement, made again from config and charges, is the one in the folder."""
        stated, again = self.guarantee, self._made_again()
        for field in fields(Guarantee):
            if field.name not in ("text", "not_covered"):
                ours, theirs = getattr(again, field.name), getattr(stated, field.name)
                check.require(ours == theirs, "guarantee.json", f"{field.name} must be {ours!r}", theirs)
        least = again.not_covered
        needed = [LABELS_FOUND] * bool(self.config.get("data", {}).get("labels_found"))
        needed += [TEST_SET_ASIDE] * tested_on_owners(self.config)
        whole = stated.not_covered[: len(least)] == least and set(needed) <= set(stated.not_covered[len(least) :])
        check.require(whole, "guarantee.json", "leaves out something that it does not cover")
        return f"theorem, constants, unit, noise and assumptions follow from config and charges ({stated.theorem})"

    def _made_again(self) -> Guarantee:
        stated, charges, task = self.guarantee, self.charges, self.task
        epsilons, deployed = np.array(stated.epsilon_of_client), "clients" in self.config
        worst = _spent(charges.of(int(np.argmax(epsilons))))
        spent = dict.fromkeys(charges.planned, charges.rounds) if deployed else worst
        of_run = epsilons, accounting.accountant_name(spent, self.delta), charges, task.asks().kinds
        how = {"lasting": bool(charges.run), "deployed": deployed, "forgotten": "seed" not in self.config["run"]}
        known = Statement(*of_run, **how, of_all=stated.epsilon_of_all)
        facts: Json = {}
        if task.algorithm.layout == "columns":
            shown = not any(isinstance(history, Stated) for history in charges.histories)
            together = (stated.together or 0.0) if shown else None
            facts = {"together": together, "predicts": stated.predicts, "on_labels": stated.label_epsilon}
        if task.split is not None:
            parties = self.config.get("schema", {}).get("parties")
            names = list(parties) if parties else self.config.get("data", {}).get("names")
            facts = {"names": names or usual_names(task.split.owners)}
        return state_guarantee(task.privacy, task.algorithm.name, charges.rounds, known, **facts)

    def history(self) -> str:
        """The last epsilon in the history is the stated one, if the history keeps it exactly."""
        history, stated = self.result.history, self.guarantee
        exact = not stated.split and all(event.sampling == "full" for event in self.charges.events())
        if "epsilon" not in history.columns or not exact:
            return "the history keeps no exact epsilon to compare"
        last = max(history["epsilon"][-self.charges.repetitions :])
        if self.task.evaluate is not None:
            check.require(last <= (stated.epsilon or 0.0), "history.parquet", "ends above the stated epsilon", last)
            return "the history ends below the stated epsilon: held-out records were counted after it"
        same = abs(last - (stated.epsilon or 0.0)) <= 1e-9 * last
        check.require(same, "history.parquet", "ends with another epsilon", last)
        return "the history ends with the stated epsilon"


def columns_of(config: Json) -> int | None:
    """How many columns the rows of a linear model have; None where the config does not say."""
    data, clients = config.get("data", {}), config.get("clients", {})
    columns = clients.get("columns", data.get("columns") if data.get("source") == "arrays" else None)
    return None if config["objective"]["loss"] == "module" else columns


# ----------------------------------------------------------------------------------------------------- single histories


def _spent(history: History) -> Spent:
    return dict(history.spent() or {})


def _cost(history: History, delta: float) -> float:
    return history.epsilon if isinstance(history, Stated) else second_epsilon(history.spent(), delta)


def _of_run(history: History, run: str) -> Spent:
    """What one run was charged; what is charged in memory is of one run."""
    return history.spent(run) if isinstance(history, Kept) else _spent(history)


def _compare(who: str, printed: float | None, cost: float, spent: Spent) -> None:
    """The cost is the printed number, up to grids and rounding. A smaller cost would be of other charges."""
    if not check.is_number(printed):
        raise check.InvalidInput(f"{who}: must have a number, got {check.shown(printed)}")
    rule = f"epsilon {printed:.8g} is printed, and by a second accountant the charges cost"
    check.require(agree(printed, cost, spent), who, rule, cost)


def _alike(event: Event, planned: Event) -> bool:
    """Whether this is an answer of the planned kind: its noise is the same; its batch is that of its owner."""
    return all(getattr(event, name) == getattr(planned, name) for name in _SAME)

"""The ledger files of the clients on this machine: budgets that outlive runs and processes."""

import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from sottovoce.core import check
from sottovoce.ledger.budget import Budget, Spread, spread_of
from sottovoce.ledger.chain import AlreadyCharged
from sottovoce.ledger.file import FileLedger
from sottovoce.ledger.fingerprint import fingerprint
from sottovoce.ledger.histories import Kept
from sottovoce.ledger.kept_answers import KeptAnswers
from sottovoce.ledger.memory import MemoryLedger
from sottovoce.ledger.split_key import KEY, digest_of, split_key
from sottovoce.privacy.events import Event

_AGAIN = 2**32  # added to the number of a question that has to be paid again: no round has so many questions
_SPLIT = "training, held out by key "

Places = NDArray[np.intp]  # of clients on this machine
Rows = tuple[np.ndarray, np.ndarray]  # features and labels of one of them


class OwnerLedgers:
    """One `FileLedger` per client, and the budget of this run. Every charge is on disk before its answer is given.

    Parameters
    ----------
    ledgers
        In the order of the clients.
    budget
        What this run may spend at most, even if the files have room for more.
    run
        The name of this run and no other: a run that is started again has a new name, and pays again.
    folder
        Of the ledgers of a simulation. The answers of this run are kept there too, so that it can go on after it was
        killed and resend them for free.
    """

    def __init__(self, ledgers: Sequence[FileLedger], budget: Budget, run: str, folder: Path | None = None) -> None:
        self._ledgers, self.run, self._folder, self._purpose = list(ledgers), run, folder, "training"
        self._answers = None if folder is None else KeptAnswers(folder / "answers" / run)
        self.budget, self._this_run = budget, MemoryLedger(budget, (len(ledgers),))
        for client, ledger in enumerate(self._ledgers):  # the run may have been interrupted, in another process
            for event, answers in ledger.spent_in(run):
                self._this_run.recall(event, client, answers)

    @classmethod
    def open(cls, folder: Path, names: Sequence[str], data: Sequence[Rows], budget: Budget, run: str = "") -> Self:
        """Open each client's ledger in `folder`, or create it with `budget`. Without a `run` it is a new one.

        An existing one keeps its own epsilon, which may be more or less than this run would spend; its delta must be
        the one that is asked for, or the numbers would not mean the same.
        """
        folder.mkdir(parents=True, exist_ok=True)
        ledgers: list[FileLedger] = []
        for number, (name, (X, y)) in enumerate(zip(names, data, strict=True)):
            path, dataset = folder / f"{number:04d}.ledger", fingerprint(X, y)
            if path.exists():
                ledger = FileLedger.open(path, owner=name, dataset=dataset)
            else:
                ledger = FileLedger.create(path, name, dataset, budget)
            ledgers.append(ledger)
            delta = ledger.budget.delta
            rule, hint = f"keeps its budget at delta = {delta:g}", f"Ask for delta = {delta:g}"
            check.require(delta == budget.delta, f"ledger of {name!r}", rule, budget.delta, hint)
        return cls(ledgers, budget, run or new_run(), folder)

    def split_key(self) -> bytes | None:
        """The key in their folder that decides which records are held out; None where they have no folder.

        From now on each charge names its digest, so a key that was lost or exchanged is found out.
        """
        if self._folder is None:
            return None
        purposes = {receipt.purpose for ledger in self._ledgers for receipt in ledger.receipts()}
        used = {purpose.removeprefix(_SPLIT) for purpose in purposes if purpose.startswith(_SPLIT)}
        key = split_key(self._folder / KEY, used)
        self._purpose = _SPLIT + digest_of(key)
        return key

    def charge(self, event: Event, clients: Places, active: np.ndarray, round: int, question: int) -> None:
        """One synced row in the ledger of each active client. A refusal stops at that client; those before it paid."""
        self._this_run.charge(event, clients, active)
        for place, client in enumerate(map(int, clients)):
            if active[place]:
                self._charge_one(self._ledgers[client], event, round, question)

    def afford(self, event: Event, answers: int, clients: Places, round: int | None) -> np.ndarray:
        """Who can give `answers` more; what this run kept of that round (None: a new answer) is not paid again."""
        kept = 0
        if self._answers is not None and round is not None:
            # Round 0 is a party's model, which `answers` includes where columns are split.
            named = {(round, question) for question in range(answers)} | {(0, 0)}
            kept = min(answers, sum(self._answers.has(*name) for name in named))
        able = self._this_run.afford(event, answers - kept, clients).copy()
        for place, client in enumerate(map(int, clients)):
            able[place] &= self._ledgers[client].remaining(event) >= answers - kept
        return able

    def kept(self, round: int, question: int, clients: Places, active: np.ndarray) -> np.ndarray | None:
        """What this run answered to this question before; None if it is new, or others were asked then."""
        return None if self._answers is None else self._answers.get(round, question, clients[active])

    def keep(self, round: int, question: int, clients: Places, active: np.ndarray, answer: np.ndarray) -> None:
        if self._answers is not None:
            self._answers.put(round, question, clients[active], answer)

    def finished(self) -> None:
        """The run is over: nobody will ask for its answers again."""
        if self._answers is not None:
            self._answers.forget()

    def spent(self, client: int, run: int = 0) -> dict[Event, int]:
        """What one client has answered, in this and all earlier runs."""
        return self._ledgers[client].spent()

    def spent_here(self, client: int) -> dict[Event, int]:
        """What one client has answered in this run."""
        return self._this_run.spent(client)

    def epsilons(self, roughly: bool = False) -> np.ndarray:
        """The epsilon spent by each client, in this and all earlier runs."""
        return np.array([ledger.epsilon() for ledger in self._ledgers])

    def spread(self) -> Spread:
        """The largest, the median and the smallest of these."""
        return spread_of(self.epsilons())

    def state(self) -> dict[str, np.ndarray]:
        """Which run this is; what it has spent is in the files."""
        return {"run": np.asarray(self.run)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Nothing: what was given after a checkpoint is in the files too, and stays spent."""
        same = "run" not in state or state["run"].item() == self.run
        check.require(same, "ledgers", "belong to another run than the checkpoint")

    def histories(self) -> tuple[tuple[Kept, ...], tuple[tuple[int, ...], ...]]:
        """What each file holds, of this and all earlier runs, and that each client has its own."""
        kept = tuple(Kept.of(ledger.rows()) for ledger in self._ledgers)
        return kept, (tuple(range(len(kept))),)

    def close(self) -> None:
        for ledger in self._ledgers:
            ledger.close()

    def _charge_one(self, ledger: FileLedger, event: Event, round: int, question: int) -> None:
        for number in count(question, _AGAIN):
            with suppress(AlreadyCharged):  # and its answer lost: then this is a new answer, under a number of its own
                ledger.charge(event, run=self.run, round=round, question=number, purpose=self._purpose)
                return


def new_run() -> str:
    """A name that no other run has."""
    return secrets.token_hex(16)


def same_run(name: object) -> str:
    """The name of a run that a checkpoint kept; a new one if it kept none."""
    known = re.fullmatch(r"[0-9a-f]{32}", str(name))  # it names a file
    return known.group() if known else new_run()

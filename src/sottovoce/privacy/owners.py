"""The ledger files of the clients on this machine, behind a door: budgets that outlive runs and processes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np

from sottovoce.core import check
from sottovoce.privacy.events import Event
from sottovoce.privacy.ledger import AlreadyCharged, Budget, fingerprint
from sottovoce.privacy.ledger_file import FileLedger


class OwnerLedgers:
    """One `FileLedger` per client. Every answer is on disk before it is given.

    Parameters
    ----------
    ledgers
        In the order of the clients.
    run
        Names this run in the ledgers. It must stand for everything that determines an answer (algorithm, objective,
        settings, seed): see `repeatable`.
    repeatable
        Whether a question asked again under the same (run, round, question) gets the very same answer, as with
        seeded noise. Then it is not charged again; else it is refused.
    """

    def __init__(self, ledgers: Sequence[FileLedger], run: str, repeatable: bool) -> None:
        self._ledgers, self._run, self._repeatable = list(ledgers), run, repeatable
        self._before = [
            {(receipt.round, receipt.question) for receipt in ledger.receipts() if receipt.run == run}
            for ledger in ledgers
        ]

    @classmethod
    def open(
        cls,
        folder: Path,
        names: Sequence[str],
        data: Sequence[tuple[np.ndarray, np.ndarray]],
        budget: Budget,
        run: str,
        repeatable: bool,
    ) -> Self:
        """Open each client's ledger in `folder`, or create it with `budget`.

        An existing one keeps its own epsilon, which may be more or less than this run would spend; its delta must be
        the one that is asked for, or the numbers would not mean the same.
        """
        folder.mkdir(parents=True, exist_ok=True)
        ledgers = []
        for number, (name, (X, y)) in enumerate(zip(names, data, strict=True)):
            path, print_ = folder / f"{number:04d}.ledger", fingerprint(X, y)
            if path.exists():
                ledger = FileLedger.open(path, owner=name, dataset=print_)
            else:
                ledger = FileLedger.create(path, name, print_, budget)
            ledgers.append(ledger)
            same = ledger.budget.delta == budget.delta
            hint = f"Ask for delta = {ledger.budget.delta:g}"
            check.require(
                same, f"ledger of {name!r}", f"keeps its budget at delta = {ledger.budget.delta:g}", budget.delta, hint
            )
        return cls(ledgers, run, repeatable)

    def charge(self, event: Event, clients: np.ndarray, active: np.ndarray, round: int, question: int) -> None:
        """One synced row in the ledger of each active client. A refusal stops at that client; those before it paid."""
        for client in clients[active]:
            try:
                self._ledgers[client].charge(event, run=self._run, round=round, question=question, purpose="training")
            except AlreadyCharged:
                if not self._repeatable:
                    raise

    def afford(self, event: Event, answers: int, clients: np.ndarray, round: int) -> np.ndarray:
        """Who can give `answers` more; what this very round has paid for before a crash counts as affordable."""
        able = []
        for client in clients:
            paid = sum((round, question) in self._before[client] for question in range(answers))
            able.append(self._ledgers[client].remaining(event) >= answers - (paid if self._repeatable else 0))
        return np.array(able, dtype=bool)

    def spent(self, client: int) -> dict[Event, int]:
        return self._ledgers[client].spent()

    def epsilons(self, roughly: bool = False) -> np.ndarray:
        """The epsilon spent by each client, in this and all earlier runs."""
        return np.array([ledger.epsilon() for ledger in self._ledgers])

    def state(self) -> dict[str, np.ndarray]:
        """Nothing to keep in a checkpoint: the files are the state."""
        return {}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Nothing to take up."""

    def close(self) -> None:
        for ledger in self._ledgers:
            ledger.close()

"""The ledger files of the clients on this machine, behind a door: budgets that outlive runs and processes."""

import hashlib
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Self

import numpy as np

from sottovoce.core import check
from sottovoce.privacy.events import Event
from sottovoce.privacy.ledger import AlreadyCharged, Budget, LedgerError, MemoryLedger, fingerprint
from sottovoce.privacy.ledger_chain import Entry
from sottovoce.privacy.ledger_file import FileLedger

_AGAIN = 2**32  # a question that has to be paid again gets a number of its own, beyond all that are asked


class OwnerLedgers:
    """One `FileLedger` per client, and this run's own budget beside them. Every answer is on disk before it is given.

    Parameters
    ----------
    ledgers
        In the order of the clients.
    budget
        What this run may spend at most, whatever room the files have.
    run
        Names the noise of this run: the same name means the same random numbers.
    repeatable
        Whether a question asked again (after a crash, or in the same run started anew) gets the very same answer, as
        with seeded noise. Then it is free, if it is the same question to the last bit, and refused if it is not: two
        answers with the same noise would give the data away. With fresh noise every answer is paid for.
    """

    def __init__(self, ledgers: Sequence[FileLedger], budget: Budget, run: str, repeatable: bool) -> None:
        self._ledgers, self._run, self._repeatable = list(ledgers), run, repeatable
        self.budget, self._this_run = budget, MemoryLedger(budget, (len(ledgers),))
        self._receipts = [[receipt for receipt in ledger.receipts() if receipt.run == run] for ledger in ledgers]
        self._paid = [{(receipt.round, receipt.question) for receipt in own} for own in self._receipts]

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
            delta = ledger.budget.delta
            rule = f"keeps its budget at delta = {delta:g}"
            check.require(
                delta == budget.delta, f"ledger of {name!r}", rule, budget.delta, f"Ask for delta = {delta:g}"
            )
        return cls(ledgers, budget, run, repeatable)

    def recall(self, round: int) -> None:
        """Count what the files say this run has spent, in a process with no memory of it that goes on with `round`.

        What `round` itself has paid for counts, unless the same answers are about to be repeated for free.
        """
        self._this_run = MemoryLedger(self._this_run.budget, (len(self._ledgers),))
        for client, own in enumerate(self._receipts):
            for receipt in own:
                if not (self._repeatable and receipt.round == round):
                    self._this_run.charge(receipt.event, np.array([client]), np.array([True]))

    def charge(
        self,
        event: Event,
        clients: np.ndarray,
        active: np.ndarray,
        round: int,
        question: int,
        about: Iterable[np.ndarray] = (),
    ) -> None:
        """One synced row in the ledger of each active client. A refusal stops at that client; those before it paid."""
        self._this_run.charge(event, clients, active)
        parts = list(about)
        for place, client in enumerate(clients):
            if active[place]:
                content = [part[0 if part.shape[-2] == 1 else place] for part in parts]
                self._charge_one(self._ledgers[client], event, round, question, f"training {_digest(content)}")

    def afford(self, event: Event, answers: int, clients: np.ndarray, round: int) -> np.ndarray:
        """Who can give `answers` more; what this very round has paid for before a crash counts as affordable."""
        able = self._this_run.afford(event, answers, clients)
        for place, client in enumerate(clients):
            own = self._paid[client] if self._repeatable else set()
            # Round 0 is a party's model, which `answers` includes where columns are split.
            paid = sum((round, question) in own for question in range(answers)) + ((0, 0) in own and round > 0)
            able[place] &= self._ledgers[client].remaining(event) >= answers - paid
        return able

    def spent(self, client: int) -> dict[Event, int]:
        return self._ledgers[client].spent()

    def spent_here(self, client: int) -> dict[Event, int]:
        """What one client has answered in this run."""
        return self._this_run.spent(client)

    def epsilons(self, roughly: bool = False) -> np.ndarray:
        """The epsilon spent by each client, in this and all earlier runs."""
        return np.array([ledger.epsilon() for ledger in self._ledgers])

    def state(self) -> dict[str, np.ndarray]:
        """What this run has spent; the files keep themselves."""
        return self._this_run.state()

    def restore(self, state: dict[str, np.ndarray]) -> None:
        self._this_run.restore(state)

    @property
    def run(self) -> str:
        """The name of this run in the files."""
        return self._run

    def rows(self) -> list[list[Entry]]:
        """Every row of every file, as it stands."""
        return [ledger.rows() for ledger in self._ledgers]

    def close(self) -> None:
        for ledger in self._ledgers:
            ledger.close()

    def _charge_one(self, ledger: FileLedger, event: Event, round: int, question: int, purpose: str) -> None:
        for again in count():
            try:
                number = question + again * _AGAIN
                ledger.charge(event, run=self._run, round=round, question=number, purpose=purpose)
            except AlreadyCharged as before:
                if not self._repeatable:
                    continue  # fresh noise is a fresh answer: pay for it under a number of its own
                if (before.receipt.purpose, before.receipt.event) != (purpose, event):
                    raise LedgerError(
                        f"ledger of {ledger.owner!r}: round {round} of this run was answered before, about another "
                        "point; the same noise for both would give the data away. Use another seed"
                    ) from None
            return


def _digest(content: Sequence[np.ndarray]) -> str:
    """SHA-256 of what was asked about, so that a repeat can be told from another question."""
    digest = hashlib.sha256()
    for part in content:
        digest.update(f"{np.shape(part)};".encode() + np.ascontiguousarray(part, dtype=np.float64).tobytes())
    return digest.hexdigest()[:32]

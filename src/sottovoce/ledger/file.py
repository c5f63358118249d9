"""A data owner's ledger on disk: one row per answer, durable before the answer leaves, never taken back.

One charge, under SQLite's write lock, which other processes wait for:

1. begin; read the rows that others added; compare with the head file (`chain.py` says why there is one);
2. refuse if the question was charged before or the answer would exceed the budget: nothing is written;
3. write the head that promises the new row, and sync it;
4. insert the row, commit, sync;
5. return: only now may the answer be given.

A process killed before 3 is done charged nothing and gave nothing. If it is killed between 3 and 5, the next process
to take the lock finds the promised row missing and puts it in. So each crash may count one answer too many, never one
too few. An error after step 3 (full disk, Ctrl-C) takes the promise back, if the disk allows it.

Noticed when opening (and, for the last row, at every charge) and refused: an edited, removed, inserted or moved row, a
truncated file, an older or foreign copy of the ledger *or* of its head, a missing head, removed triggers, a damaged
file. Not noticed: older copies of both files put back together, both files deleted, both rewritten by someone who
recomputes the chain. A last row that is removed after a crash, before the next opening, is put back silently.

Move the two files together, and keep them on a local disk that really syncs (network file systems often do not lock).
"""

import contextlib
import json
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Generator
from functools import reduce
from pathlib import Path
from typing import Self

from sottovoce.core import check
from sottovoce.ledger import chain, store
from sottovoce.ledger.budget import Budget, LedgerError, Standing
from sottovoce.ledger.chain import HOW_TO_FIX, AlreadyCharged, BrokenLedger, Chain, Entry, Head
from sottovoce.privacy.events import Event, make_event, pack_event

Address = str | os.PathLike[str]
_LARGEST = 2**63 - 1  # what an SQLite integer holds


class FileLedger(contextlib.AbstractContextManager["FileLedger"]):
    """One data owner's ledger of one data set. Make it by `create` or `open`; use it in a `with` block."""

    def __init__(self, path: Path, connection: sqlite3.Connection, busy_timeout: float) -> None:
        self.path, self._connection, self._busy_timeout = path, connection, busy_timeout
        self._chain = Chain()
        self._thread_lock = threading.Lock()
        self._process = os.getpid()
        self._file = _identity(path)
        self._closed = False

    @classmethod
    def create(cls, path: Address, owner: str, dataset: str, budget: Budget, busy_timeout: float = 30.0) -> Self:
        """A new ledger; refuses to replace one.

        `dataset` is the data set's `fingerprint`. Only a hash of it with a random salt is kept, so two ledgers of one
        data set cannot be matched; but whoever holds the ledger can still confirm a guess. It stays with the owner,
        in files that no other account can read. Nothing else about the data is written.
        """
        _line(owner=owner, dataset=dataset)
        path = Path(path).resolve()
        with store.clear_errors(path, busy_timeout):
            if chain.head_path(path).exists() and chain.read_head(path).sequence > 0:
                raise LedgerError("its head file counts answers already given; a new ledger would forget them")
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            ledger = cls(path, store.connect(path, busy_timeout), busy_timeout)
        with ledger._closed_on_error():
            ledger._write_first_row(owner, dataset, budget)
            ledger.verify()
        return ledger

    @classmethod
    def open(
        cls, path: Address, owner: str | None = None, dataset: str | None = None, busy_timeout: float = 30.0
    ) -> Self:
        """An existing ledger, verified from its first row on; of this owner and this data set, where given.

        Opening writes the head file once, so a read-only or full disk shows before the first question.
        """
        path = Path(path).resolve()
        with store.clear_errors(path, busy_timeout):
            if not path.exists():
                if chain.head_path(path).exists():
                    raise BrokenLedger("the ledger is missing, only its head file is there")
                raise check.MissingData(f"ledger {path}: no such file. Make it with FileLedger.create")
            ledger = cls(path, store.connect(path, busy_timeout), busy_timeout)
        with ledger._closed_on_error():
            ledger.verify()
            with ledger._locked():
                ledger._refuse_another(owner, dataset)
                ledger._settle()
        return ledger

    @property
    def owner(self) -> str:
        return self._chain.opened["owner"]

    @property
    def budget(self) -> Budget:
        return self._standing().budget

    def charge(self, event: Event, *, run: str, round: int, question: int, purpose: str) -> Entry:
        """Charge one answer, and return its row. Give the answer only after this has returned, and never if it has not.

        Raises BudgetSpent if the answer does not fit into the budget, AlreadyCharged if (run, round, question) was
        charged before, LedgerError if the ledger cannot be trusted or written; then nothing is added. The budget
        does not depend on the clock: if that was set back, the row gets the time of the row before.
        """
        _line(run=run, purpose=purpose)
        check.whole("FileLedger", at_least=0, round=round, question=question)
        check.require(max(round, question) <= _LARGEST, "FileLedger", "round and question must be < 2**63")
        key = (run, int(round), int(question))
        with self._locked():
            stored = self._rows("WHERE run = ? AND round = ? AND question = ?", key)
            if stored:
                raise AlreadyCharged(stored[0])
            standing = self._chain.standing
            if standing.remaining(event) == 0:
                raise standing.refusal(f"ledger of {self.owner!r}", event)
            chain.step("checked")
            entry = self._chain.next("charge", time.time(), {"event": pack_event(event), "purpose": purpose}, key)
            self._append(entry)
        return entry

    def change_budget(self, budget: Budget, reason: str) -> None:
        """Append a new budget, larger or smaller, for all answers together: those given so far stay counted."""
        _line(reason=reason)
        with self._locked():
            details = {"epsilon": float(budget.epsilon), "delta": float(budget.delta), "reason": reason}
            self._append(self._chain.next("budget", time.time(), details))

    def spent(self) -> dict[Event, int]:
        """How often each kind of answer was charged."""
        return dict(self._standing().spent)

    def epsilon(self) -> float:
        """The epsilon spent so far, at the budget's delta."""
        return self._standing().epsilon()

    def remaining(self, event: Event) -> int:
        """How many more answers of this kind the budget holds."""
        return self._standing().remaining(event)

    def receipts(self) -> list[Entry]:
        """Every charged answer, in order."""
        with self._locked():
            return self._rows("WHERE kind = 'charge' ORDER BY sequence")

    def rounds_charged(self, run: str) -> set[int]:
        """The rounds of a run in which something was charged."""
        with self._locked():
            return store.rounds_charged(self._connection, run)

    def spent_in(self, run: str) -> list[tuple[Event, int]]:
        """What was charged in one run, and how often; however many answers those are, it takes no longer to read."""
        with self._locked():
            charged = store.charged_in(self._connection, run)
        return [(make_event(**json.loads(text)["event"]), count) for text, count in charged]

    def stale(self) -> bool:
        """Whether it must be opened again: it was closed, its file replaced, or this process forked off."""
        return self._stale_because() != ""

    def rows(self, after: int = -1) -> list[Entry]:
        """Every row as it stands, in order; those that follow row number `after`, if it is given."""
        with self._locked():
            return self._rows("WHERE sequence > ? ORDER BY sequence", (after,))

    def verify(self) -> None:
        """Check everything again, from the first row on: file, triggers, every hash, the head. LedgerError if not."""
        with self._locked(check_schema=True):
            if reduce(Chain.after, self._rows("ORDER BY sequence"), Chain()) != self._chain:
                raise BrokenLedger("its rows are not those that were read before: it was replaced")

    def close(self) -> None:
        """Settle the head and close the file. Never fails: an unsettled head is as safe, see `chain.py`."""
        if self._closed:
            return
        if self._process == os.getpid():  # a connection that came through a fork belongs to the parent
            with contextlib.suppress(LedgerError), self._locked():
                self._settle()
            self._connection.close()
        self._closed = True

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _locked(self, check_schema: bool = False) -> Generator[None]:
        """Hold the ledger against all threads and processes, its history up to date and its head in order."""
        with self._thread_lock, store.clear_errors(self.path, self._busy_timeout):
            if reason := self._stale_because():
                raise LedgerError(reason)
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                if check_schema:
                    store.check_schema(self._connection)
                while (missing := self._catch_up()) is not None:
                    store.insert(self._connection, missing)
                    self._connection.execute("COMMIT")  # by itself, so that the head is never ahead by two
                    self._connection.execute("BEGIN IMMEDIATE")
                chain.step("begun")
                yield
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def _catch_up(self) -> Entry | None:
        """Read what was added since, compare it with the head, and return the row that a crash kept out, if any."""
        known = self._chain
        added = self._rows("WHERE sequence >= ? ORDER BY sequence", (max(known.sequence, 0),))
        if known.sequence >= 0:
            if not added or (added[0].sequence, added[0].hash) != (known.sequence, known.hash):
                raise BrokenLedger("rows that were read before are gone: it was cut off or replaced")
            del added[0]
        self._chain = reduce(Chain.after, added, known)
        if self._chain.sequence < 0:
            raise BrokenLedger("it has no rows")
        return self._chain.missing_row(chain.read_head(self.path))

    def _append(self, entry: Entry) -> None:
        """Promise the row, then write it; take the promise back if that fails. Ends the transaction."""
        try:
            chain.write_head(self.path, Head(entry.sequence, entry.hash, entry))
            store.insert(self._connection, entry)
            chain.step("row inserted")
            self._connection.execute("COMMIT")
            self._chain = self._chain.after(entry)
            chain.step("row committed")
        except BaseException:
            # If this fails too, the next to take the lock puts the row in: one too many, not one too few.
            with contextlib.suppress(OSError, sqlite3.Error, LedgerError):
                self._withdraw(entry)
            raise

    def _withdraw(self, entry: Entry) -> None:
        """Put the head back to the last row there is, unless the row went in after all (or another put it in)."""
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        self._connection.execute("BEGIN IMMEDIATE")
        last = self._rows("ORDER BY sequence DESC LIMIT 1")
        if last and last[0].sequence == entry.sequence - 1 and chain.read_head(self.path).hash == entry.hash:
            chain.write_head(self.path, Head(last[0].sequence, last[0].hash))

    def _settle(self) -> None:
        """All rows read are committed and synced: from now on the head insists on the last one. Needs the lock."""
        chain.write_head(self.path, Head(self._chain.sequence, self._chain.hash))

    def _write_first_row(self, owner: str, dataset: str, budget: Budget) -> None:
        with store.clear_errors(self.path, self._busy_timeout):
            self._connection.execute("BEGIN IMMEDIATE")  # of two creators, the second finds the first one's table
            store.make_schema(self._connection)
            salt = secrets.token_hex(16)
            details = {
                "version": chain.VERSION,
                "owner": owner,
                "salt": salt,
                "dataset": chain.bind(salt, dataset),
                "epsilon": float(budget.epsilon),
                "delta": float(budget.delta),
            }
            self._append(self._chain.next("opened", time.time(), details))

    def _standing(self) -> Standing:
        with self._locked():
            return self._chain.standing

    def _rows(self, where: str, values: tuple[object, ...] = ()) -> list[Entry]:
        return store.rows(self._connection, where, values)

    def _refuse_another(self, owner: str | None, dataset: str | None) -> None:
        opened = self._chain.opened
        if owner is not None and owner != opened["owner"]:
            why = f"it is the ledger of another owner, {opened['owner']!r}, not of {owner!r}. Open that owner's own"
            hint = "a folder of ledgers serves the same owners in the same order, and others need another folder"
            raise LedgerError(f"{why}; {hint}")
        if dataset is not None and chain.bind(opened["salt"], dataset) != opened["dataset"]:
            why = "it is a ledger of another data set. Open the one created for these rows, or create one"
            hint = "a new ledger for records that have one already forgets what they spent"
            raise LedgerError(f"{why}; but {hint}")

    def _stale_because(self) -> str:
        if self._closed:
            return "it is closed; open it again"
        if self._process != os.getpid():
            return "it was opened before this process was forked off; open it again here"
        replaced = _identity(self.path) != self._file
        return f"the file was moved or replaced while it was open. {HOW_TO_FIX}" if replaced else ""

    @contextlib.contextmanager
    def _closed_on_error(self) -> Generator[None]:
        try:
            yield
        except BaseException:
            self._connection.close()
            self._closed = True
            raise


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file is there: it changes when the file is replaced."""
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(path)
        return status.st_dev, status.st_ino
    return None


def _line(**values: object) -> None:
    for name, value in values.items():
        good = isinstance(value, str) and value != "" and value.isprintable()
        check.require(good, "FileLedger", f"{name} must be one line of text", value)

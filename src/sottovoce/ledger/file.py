"""A data owner's ledger on disk: one row per answer, durable before the answer leaves, never taken back.

One charge, under SQLite's write lock, which other processes wait for:

1. begin; read the rows that others added; compare with the head file (`ledger_chain.py` says why there is one);
2. refuse if the question was charged before or the answer would exceed the budget: nothing is written;
3. write the head that promises the new row, and sync it;
4. insert the row, commit, sync;
5. return: only now may the answer be given.

Killed before 3 is done: nothing was charged and nothing given. Killed between 3 and 5: the next to take the lock
finds the promised row missing and puts it in. So each crash may count one answer too many, never one too few. An
error after step 3 (full disk, Ctrl-C) takes the promise back, if the disk lets it.

Noticed when opening (the last row's part also at every charge) and refused: an edited, removed, inserted or moved
row, a truncated file, an older or foreign copy of the ledger *or* of its head, a missing head, removed triggers, a
damaged file. Not noticed: older copies of both files put back together, both files deleted, both rewritten by someone
who recomputes the chain. A last row removed after a crash, before the next opening, is put back without a word.

The files move together, and belong on a local disk (network file systems often do not lock) that keeps what it syncs.
"""

import contextlib
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from sottovoce.core import check
from sottovoce.ledger import chain as ledger_chain
from sottovoce.ledger import store as ledger_store
from sottovoce.ledger.chain import WAY_OUT, Entry, Head, History
from sottovoce.ledger.memory import AlreadyCharged, Budget, LedgerError, Receipt, cap, pack_event, refusal
from sottovoce.privacy import accounting
from sottovoce.privacy.events import Event

_LARGEST = 2**63 - 1  # what an SQLite integer holds


class FileLedger:
    """One data owner's ledger of one data set. Make it by `create` or `open`; use it in a `with` block."""

    def __init__(self, path: Path, connection: sqlite3.Connection, busy_timeout: float) -> None:
        self.path = path
        self._connection = connection
        self._busy_timeout = busy_timeout
        self._history = History()
        self._thread_lock = threading.Lock()
        self._process = os.getpid()
        self._file = _identity(path)
        self._closed = False

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], owner: str, dataset: str, budget: Budget, busy_timeout: float = 30.0
    ) -> Self:
        """A new ledger; refuses to replace one.

        `dataset` is the data set's `fingerprint`. Only a hash of it with a random salt is kept, so two ledgers of one
        data set cannot be matched; but whoever holds the ledger can still confirm a guess. It stays with the owner,
        in files that no other account can read. Nothing else about the data is written.
        """
        _line(owner=owner, dataset=dataset)
        path = Path(path).resolve()
        with ledger_store.clear_errors(path, busy_timeout):
            if ledger_chain.head_path(path).exists() and ledger_chain.read_head(path).sequence > 0:
                raise LedgerError("its head file counts answers already given; a new ledger would forget them")
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            ledger = cls(path, ledger_store.connect(path, busy_timeout), busy_timeout)
        with ledger._closed_on_error():
            ledger._write_first_row(owner, dataset, budget)
            ledger.verify()
        return ledger

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        owner: str | None = None,
        dataset: str | None = None,
        busy_timeout: float = 30.0,
    ) -> Self:
        """An existing ledger, verified from its first row on; of this owner and this data set, where given.

        One of an older format gets a row that says so, and goes on in the new one: no row is ever rewritten.
        Opening writes the head file once, so a read-only or full disk shows before the first question.
        """
        path = Path(path).resolve()
        with ledger_store.clear_errors(path, busy_timeout):
            if not path.exists():
                if ledger_chain.head_path(path).exists():
                    raise LedgerError(f"the ledger is missing, only its head file is there. {WAY_OUT}")
                raise check.MissingData(f"ledger {path}: no such file. Make it with FileLedger.create")
            ledger = cls(path, ledger_store.connect(path, busy_timeout), busy_timeout)
        with ledger._closed_on_error():
            ledger.verify()
            with ledger._locked():
                ledger._refuse_another(owner, dataset)
                ledger._settle()
            if ledger_store.version(ledger._connection) < ledger_chain.VERSION:
                ledger._bring_up_to_date()
        return ledger

    @property
    def owner(self) -> str:
        return self._history.opened["owner"]

    @property
    def budget(self) -> Budget:
        return self._standing()[1]

    def charge(self, event: Event, *, run: str, round: int, question: int, purpose: str) -> Receipt:
        """Charge one answer. Give the answer only after this has returned, and never if it has not.

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
                raise AlreadyCharged(stored[0].receipt())
            budget, spent = self._history.in_force, self._history.spent
            if spent.get(event, 0) >= cap(event, budget, spent):
                raise refusal(f"ledger of {self.owner!r}", event, budget, spent)
            ledger_chain.step("checked")
            details = {"event": pack_event(event), "purpose": purpose}
            entry = self._history.next("charge", time.time(), details, key)
            self._append(entry)
        return entry.receipt()

    def change_budget(self, budget: Budget, reason: str) -> None:
        """Append a new budget, larger or smaller, for all answers together: those given so far stay counted."""
        _line(reason=reason)
        with self._locked():
            details = {"epsilon": float(budget.epsilon), "delta": float(budget.delta), "reason": reason}
            self._append(self._history.next("budget", time.time(), details))

    def spent(self) -> dict[Event, int]:
        """How often each kind of answer was charged."""
        return self._standing()[0]

    def epsilon(self) -> float:
        """The epsilon spent so far, at the budget's delta."""
        spent, budget = self._standing()
        return accounting.epsilon(spent, budget.delta)

    def remaining(self, event: Event) -> int:
        """How many more answers of this kind the budget holds."""
        spent, budget = self._standing()
        return max(0, cap(event, budget, spent) - spent.get(event, 0))

    def receipts(self) -> Iterator[Receipt]:
        """Every charged answer, in order."""
        with self._locked():
            charges = self._rows("WHERE kind = 'charge' ORDER BY sequence")
        return (entry.receipt() for entry in charges)

    def rounds_charged(self, run: str) -> set[int]:
        """The rounds of a run in which something was charged."""
        with self._locked():
            return ledger_store.rounds_charged(self._connection, run)

    def stale(self) -> bool:
        """Whether it must be opened again: it was closed, its file replaced, or this process forked off."""
        return self._closed or self._process != os.getpid() or _identity(self.path) != self._file

    def rows(self) -> list[Entry]:
        """Every row as it stands, in order."""
        with self._locked():
            return self._rows("ORDER BY sequence")

    def verify(self) -> None:
        """Check everything again, from the first row on: file, triggers, every hash, the head. LedgerError if not."""
        with self._locked(check_schema=True), _way_out():
            again = History()
            for entry in self._rows("ORDER BY sequence"):
                again = again.after(entry)
            if again != self._history:
                raise LedgerError("its rows are not those that were read before: it was replaced")

    def close(self) -> None:
        """Settle the head and close the file. Never fails: an unsettled head is as safe, see `ledger_chain`."""
        if self._closed:
            return
        if self._process == os.getpid():  # a connection that came through a fork belongs to the parent
            with contextlib.suppress(LedgerError), self._locked():
                self._settle()
            self._connection.close()
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _locked(self, check_schema: bool = False) -> Iterator[None]:
        """Hold the ledger against all threads and processes, its history up to date and its head in order."""
        with self._thread_lock, ledger_store.clear_errors(self.path, self._busy_timeout):
            self._refuse_stale()
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                if check_schema:
                    ledger_store.check_schema(self._connection)
                while (owed := self._catch_up()) is not None:
                    ledger_store.insert(self._connection, owed)
                    self._connection.execute("COMMIT")  # by itself, so that the head is never ahead by two
                    self._connection.execute("BEGIN IMMEDIATE")
                ledger_chain.step("begun")
                yield
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def _catch_up(self) -> Entry | None:
        """Read what was added since, compare it with the head, and return the row that a crash kept out, if any."""
        known = self._history
        added = self._rows("WHERE sequence >= ? ORDER BY sequence", (max(known.sequence, 0),))
        with _way_out():
            if known.sequence >= 0:
                if not added or (added[0].sequence, added[0].hash) != (known.sequence, known.hash):
                    raise LedgerError("rows that were read before are gone: it was cut off or replaced")
                del added[0]
            for entry in added:
                self._history = self._history.after(entry)
            if self._history.sequence < 0:
                raise LedgerError("it has no rows")
            return self._history.owed(ledger_chain.read_head(self.path))

    def _append(self, entry: Entry) -> None:
        """Promise the row, then write it; take the promise back if that fails. Ends the transaction."""
        try:
            ledger_chain.write_head(self.path, Head(entry.sequence, entry.hash, entry))
            ledger_store.insert(self._connection, entry)
            ledger_chain.step("row inserted")
            self._connection.execute("COMMIT")
            self._history = self._history.after(entry)
            ledger_chain.step("row committed")
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
        if last and last[0].sequence == entry.sequence - 1 and ledger_chain.read_head(self.path).hash == entry.hash:
            ledger_chain.write_head(self.path, Head(last[0].sequence, last[0].hash))

    def _settle(self) -> None:
        """All rows read are committed and synced: from now on the head insists on the last one. Needs the lock."""
        ledger_chain.write_head(self.path, Head(self._history.sequence, self._history.hash))

    def _write_first_row(self, owner: str, dataset: str, budget: Budget) -> None:
        with ledger_store.clear_errors(self.path, self._busy_timeout):
            self._connection.execute("BEGIN IMMEDIATE")  # of two creators, the second finds the first one's table
            ledger_store.make_schema(self._connection)
            salt = secrets.token_hex(16)
            details = {
                "version": ledger_chain.VERSION,
                "owner": owner,
                "salt": salt,
                "dataset": ledger_chain.bind(salt, dataset),
                "epsilon": float(budget.epsilon),
                "delta": float(budget.delta),
            }
            self._append(self._history.next("opened", time.time(), details))

    def _bring_up_to_date(self) -> None:
        """Append the row that begins a newer format, then mark the file; after a crash in between, the next time."""
        with self._locked():
            if self._history.version < ledger_chain.VERSION:
                self._append(self._history.next("format", time.time(), {"version": ledger_chain.VERSION}))
        with self._locked():
            ledger_store.mark_version(self._connection)
            self._connection.execute("COMMIT")
            self._settle()

    def _standing(self) -> tuple[dict[Event, int], Budget]:
        with self._locked():
            return dict(self._history.spent), self._history.in_force

    def _rows(self, where: str, values: tuple = ()) -> list[Entry]:
        return ledger_store.rows(self._connection, where, values)

    def _refuse_another(self, owner: str | None, dataset: str | None) -> None:
        opened = self._history.opened
        if owner is not None and owner != opened["owner"]:
            raise LedgerError(
                f"it is the ledger of another owner, {opened['owner']!r}, not of {owner!r}. Open that owner's own; a "
                "folder of ledgers serves the same owners in the same order, and others need another folder"
            )
        if dataset is not None and ledger_chain.bind(opened["salt"], dataset) != opened["dataset"]:
            raise LedgerError(
                "it is a ledger of another data set. Open the one created for these rows, or create one; but a new "
                "ledger for records that have one already forgets what they spent"
            )

    def _refuse_stale(self) -> None:
        if self._closed:
            raise LedgerError("it is closed; open it again")
        if self._process != os.getpid():
            raise LedgerError("it was opened before this process was forked off; open it again here")
        if _identity(self.path) != self._file:
            raise LedgerError(f"the file was moved or replaced while it was open. {WAY_OUT}")

    @contextlib.contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._connection.close()
            self._closed = True
            raise


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _line(**values: str) -> None:
    for name, value in values.items():
        good = isinstance(value, str) and value != "" and value.isprintable()
        check.require(good, "FileLedger", f"{name} must be one line of text", value)


@contextlib.contextmanager
def _way_out() -> Iterator[None]:
    """To what does not match, add what to do about it."""
    try:
        yield
    except LedgerError as error:
        raise LedgerError(f"{error}. {WAY_OUT}") from error

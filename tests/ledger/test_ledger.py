"""Ledgers: what is given out is always counted, whatever is killed, full, shared, edited or put back."""

import contextlib
import errno
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import stat
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.core.check import BudgetSpent, InvalidInput, MissingData
from sottovoce.ledger import chain as ledger_chain
from sottovoce.ledger import store as ledger_store
from sottovoce.ledger.budget import Budget, LedgerError, spread_of
from sottovoce.ledger.chain import AlreadyCharged, Entry
from sottovoce.ledger.file import FileLedger
from sottovoce.ledger.fingerprint import fingerprint
from sottovoce.ledger.memory import MemoryLedger
from sottovoce.privacy import accounting
from sottovoce.privacy.events import Event

LAPLACE = Event("laplace", 10.0)  # pure epsilon 0.1 an answer
GAUSSIAN = Event("gaussian", 20.0)
FIVE = Budget(0.55, 0.0)  # five answers of LAPLACE, and half of another
DATA = fingerprint(np.arange(6.0).reshape(3, 2), np.array([1, -1, 1]))
CHARGE_STEPS = (
    "begun",
    "checked",
    "head written",
    "head synced",
    "head renamed",
    "head durable",
    "row inserted",
    "row committed",
)


@pytest.fixture
def path() -> Iterator[Path]:
    """In memory where the system has such a folder: a killed process is tested here, not a power cut."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Path(folder) / "owner.ledger"


def make(path: Path, budget: Budget = FIVE, answers: int = 0) -> Path:
    with FileLedger.create(path, "clinic A", DATA, budget) as ledger:
        for question in range(answers):
            ask(ledger, question)
    return path


def ask(ledger: FileLedger, question: int, event: Event = LAPLACE, run: str = "r", round: int = 1) -> Entry:
    return ledger.charge(event, run=run, round=round, question=question, purpose="gradient")


def count(path: Path) -> int:
    with FileLedger.open(path, "clinic A", DATA) as ledger:  # verifies every row
        return sum(ledger.spent().values())


def head(path: Path) -> Path:
    return ledger_chain.head_path(path)


@contextlib.contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        yield connection
    finally:
        connection.close()


def fork(function: Callable[[], object]) -> int:
    """Run `function` in a child that shares nothing but files; it never comes back into the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside the threads of a test runner
        child = os.fork()
    if child:
        return child
    status = 1
    try:
        function()
        status = 0
    finally:
        os._exit(status)


# Budgets, receipts and what a ledger says ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(0.0, 0.1), (-1.0, 0.1), (np.inf, 0.1), (np.nan, 0.1), (1.0, 1.0), (1.0, -0.1), (1.0, np.nan)],
)
def test_a_budget_needs_epsilon_above_zero_and_delta_below_one(epsilon: float, delta: float) -> None:
    with pytest.raises(InvalidInput, match="Budget"):
        Budget(epsilon, delta)


def test_receipts_outlive_the_process_and_add_up(path: Path) -> None:
    budget = Budget(1.0, 1e-5)
    batch = Event("gaussian", 30.0, "fixed-size", "replace-one", batch=10, size=100)
    full = Event("gaussian", 30.0)
    with FileLedger.create(path, "clinic A", DATA, budget) as ledger:
        given_out = [ask(ledger, 0, batch), ask(ledger, 1, full), ask(ledger, 0, batch, round=2)]
    with FileLedger.open(path, owner="clinic A", dataset=DATA) as ledger:
        assert ledger.receipts() == given_out
        assert [(r.sequence, r.round, r.question, r.purpose) for r in given_out] == [
            (1, 1, 0, "gradient"),
            (2, 1, 1, "gradient"),
            (3, 2, 0, "gradient"),
        ]
        spent = {batch: 2, full: 1}
        assert ledger.spent() == spent
        assert ledger.epsilon() == accounting.epsilon(spent, 1e-5)
        assert ledger.remaining(full) == accounting.affordable(full, 1.0, 1e-5, spent=spent)
        assert ledger.budget == budget
        assert ledger.owner == "clinic A"


def test_numbers_of_numpy_are_stored_as_numbers(path: Path) -> None:
    make(path)
    with FileLedger.open(path) as ledger:
        ledger.charge(
            Event("laplace", np.float32(10.5), size=np.int64(7)),  # pyright: ignore[reportArgumentType]
            run="r",
            round=np.int64(3),  # pyright: ignore[reportArgumentType]
            question=0,
            purpose="p",
        )
    with FileLedger.open(path) as ledger:
        assert ledger.spent() == {Event("laplace", 10.5, size=7): 1}


def test_the_budget_ends_the_answers_and_says_so(path: Path) -> None:
    make(path, answers=5)
    with FileLedger.open(path) as ledger:
        assert ledger.remaining(LAPLACE) == 0
        with pytest.raises(BudgetSpent, match=r"'clinic A'.*0\.5 is spent after 5 .* 0\.6, the budget is 0\.55"):
            ask(ledger, 5)
        ask(ledger, 6, Event("laplace", 30.0))  # a smaller answer still fits
        assert sum(ledger.spent().values()) == 6
    assert count(path) == 6


def test_a_budget_smaller_than_one_answer_is_refused_at_the_first(path: Path) -> None:
    make(path, Budget(0.05, 0.0))
    with FileLedger.open(path) as ledger, pytest.raises(BudgetSpent, match=r"0 is spent after 0 .* make it 0\.1"):
        ask(ledger, 0)
    assert count(path) == 0


def test_the_same_question_again_returns_the_stored_receipt_and_charges_nothing(path: Path) -> None:
    make(path)
    with FileLedger.open(path) as ledger:
        first = ask(ledger, 0)
        with pytest.raises(AlreadyCharged) as again:
            ask(ledger, 0, GAUSSIAN)
        assert again.value.row == first
    with FileLedger.open(path) as ledger:
        with pytest.raises(AlreadyCharged, match=r"round 1, question 0") as again:
            ask(ledger, 0)
        assert again.value.row == first
        ask(ledger, 0, round=2)
        ask(ledger, 0, run="s")
        for question in (3, 4):
            ask(ledger, question)
        with pytest.raises(AlreadyCharged):  # also when the budget is spent: the answer is already paid for
            ask(ledger, 0)


def test_a_new_budget_is_a_row_of_its_own(path: Path) -> None:
    make(path, answers=5)
    with FileLedger.open(path) as ledger:
        ledger.change_budget(Budget(0.75, 0.0), "consent of May")
        assert ledger.remaining(LAPLACE) == 2
        ask(ledger, 5)
        ledger.change_budget(Budget(0.3, 0.0), "consent withdrawn in part")
        with pytest.raises(BudgetSpent, match=r"0\.6 is spent after 6"):
            ask(ledger, 6)
        assert ledger.remaining(LAPLACE) == 0
    with FileLedger.open(path) as ledger:
        assert ledger.budget == Budget(0.3, 0.0)
        assert len(list(ledger.receipts())) == 6
        with pytest.raises(InvalidInput, match="reason must be one line"):
            ledger.change_budget(Budget(9.0, 0.0), "")


def test_a_clock_set_back_changes_no_order(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(path)
    with FileLedger.open(path) as ledger:
        now = ask(ledger, 0).time
        monkeypatch.setattr(time, "time", lambda: 5)
        assert ask(ledger, 1).time == now
        monkeypatch.setattr(time, "time", lambda: now + 10)
        assert ask(ledger, 2).time == now + 10
    assert count(path) == 3


@pytest.mark.parametrize(
    "wrong", [{"run": ""}, {"run": "a\nb"}, {"run": "\ud800"}, {"round": -1}, {"question": 1.0}, {"question": 2**63}]
)
def test_a_badly_named_question_is_refused(path: Path, wrong: dict) -> None:
    make(path)
    with FileLedger.open(path) as ledger, pytest.raises(InvalidInput, match="FileLedger"):
        ledger.charge(LAPLACE, **({"run": "r", "round": 1, "question": 0, "purpose": "p"} | wrong))
    assert count(path) == 0


# Whose ledger -------------------------------------------------------------------------------------------------------


def test_a_ledger_of_another_data_set_or_owner_is_refused(path: Path) -> None:
    make(path)
    with pytest.raises(LedgerError, match="another data set"):
        FileLedger.open(path, dataset=fingerprint(np.arange(7.0)))
    with pytest.raises(
        LedgerError, match=r"another owner, 'clinic A', not of 'clinic B'\. Open that owner's own; a folder"
    ):
        FileLedger.open(path, owner="clinic B")


def test_fingerprints_tell_data_sets_apart() -> None:
    X, y = np.arange(6.0).reshape(2, 3), np.array([0, 1])
    same = [(X, y), (X.copy(order="F"), y), (np.repeat(X, 2, axis=1)[:, ::2], y.tolist())]
    changed = X.copy()
    changed[1, 2] = np.nextafter(5.0, 6.0)
    other = [
        (changed, y),
        (X.T, y),
        (X.reshape(3, 2), y),
        (X.astype(np.float32), y),
        (X, y[::-1]),
        (X, y, np.array([0, 2])),
        (X, y, None),
        (X,),
        (np.append(X, y), None),
        (np.zeros((0, 3)), y),
        (np.array(5.0), y),
        (np.array([5.0]), y),
    ]
    assert len({fingerprint(*arrays) for arrays in same}) == 1
    assert len({fingerprint(*arrays) for arrays in [same[0], *other]}) == 1 + len(other)
    with pytest.raises(InvalidInput, match="array 1 must have a plain type"):
        fingerprint(X, np.array([None, "a"], object))


def test_the_fingerprint_itself_is_in_no_file_and_two_ledgers_do_not_match(tmp_path: Path) -> None:
    stored = []
    for name in ("one", "two"):
        make(tmp_path / name)
        with raw(tmp_path / name) as connection:
            (details,) = connection.execute("SELECT details FROM entries").fetchone()
        stored.append(json.loads(details)["dataset"])
    assert stored[0] != stored[1]
    for file in tmp_path.iterdir():
        assert DATA.encode() not in file.read_bytes()
        assert file.stat().st_mode & 0o077 == 0


# Killed, interrupted, shared ----------------------------------------------------------------------------------------


def killed_while_charging(path: Path, run: str, at: str | None, after: int) -> int:
    """Let a child answer questions until it is killed: at a step of charge number `after`, or at any time."""
    read, write = os.pipe()

    def child() -> None:
        os.close(read)
        ledger = FileLedger.open(path)
        armed = False

        def step(name: str) -> None:
            if armed and name == at:
                os.kill(os.getpid(), signal.SIGKILL)

        ledger_chain.step = step
        for question in range(10**6):
            armed = question == after
            ask(ledger, question, run=run)
            os.write(write, b".")  # the answer leaves

    process = fork(child)
    os.close(write)
    given_out = b""
    if at is None:
        given_out += os.read(read, 1)
        time.sleep(random.uniform(0, 0.003))
        os.kill(process, signal.SIGKILL)
    while part := os.read(read, 1000):
        given_out += part
    os.close(read)
    _, status = os.waitpid(process, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL
    return len(given_out)


def test_killed_at_every_step_it_never_shows_less_than_was_given_out(path: Path) -> None:
    given_out = counted = kills = 0
    for number in range(3):  # each step after each of 0, 1 and 2 answers, and 15 kills at any moment
        ledger, shown = make(path.with_name(str(number)), Budget(1e6, 0.0)), 0
        for at in (*CHARGE_STEPS, *5 * (None,)):
            answers = killed_while_charging(ledger, f"kill {kills}", at, after=number)
            given_out, kills = given_out + answers, kills + 1
            before, shown = shown, count(ledger)
            # Counted although not given: at most the one answer over which it was killed, once that was promised.
            promised = at in ("head renamed", "head durable", "row inserted", "row committed")
            assert shown - before in ({answers, answers + 1} if at is None else {answers + promised}), at
        counted += shown
    assert kills == 39
    assert 30 < given_out <= counted <= given_out + kills


def test_head_and_row_are_synced_before_a_charge_returns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process loses nothing that it wrote; a power cut does. So the order of writes and syncs is looked at."""
    done: list[str] = []
    sync = os.fsync

    def noted(descriptor: int) -> None:
        done.append("folder synced" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "head file synced")
        sync(descriptor)

    with FileLedger.open(make(path)) as ledger:
        monkeypatch.setattr(os, "fsync", noted)
        monkeypatch.setattr(ledger_chain, "step", done.append)
        ask(ledger, 0)
        order = ["head written", "head file synced", "head synced", "head renamed", "folder synced", "head durable"]
        assert done == ["begun", "checked", *order, "row inserted", "row committed"]
        monkeypatch.undo()
        # SQLite syncs by itself, if it is told to: 3 is EXTRA.
        assert ledger._connection.execute("PRAGMA synchronous").fetchone() == (3,)


def test_an_answer_lost_in_a_crash_stays_charged(path: Path) -> None:
    make(path)
    killed_while_charging(path, "r", "head durable", after=0)
    with raw(path) as connection:
        assert connection.execute("SELECT count(*) FROM entries").fetchone() == (1,)
    with FileLedger.open(path) as ledger:
        with pytest.raises(AlreadyCharged) as lost:
            ask(ledger, 0)
        assert (lost.value.row.run, lost.value.row.event) == ("r", LAPLACE)
        assert ledger.remaining(LAPLACE) == 4


def test_a_process_that_stays_open_counts_what_another_was_killed_over(path: Path) -> None:
    make(path)
    with FileLedger.open(path) as ledger:
        killed_while_charging(path, "child", "row inserted", after=1)
        assert ledger.spent() == {LAPLACE: 2}
        assert ask(ledger, 0).sequence == 3


@pytest.mark.parametrize("at", CHARGE_STEPS)
def test_an_interrupted_charge_is_taken_back(path: Path, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(name: str) -> None:
        if name == at:
            monkeypatch.undo()
            raise KeyboardInterrupt

    make(path, answers=1)
    with FileLedger.open(path) as ledger:
        monkeypatch.setattr(ledger_chain, "step", interrupt)
        with pytest.raises(KeyboardInterrupt):
            ask(ledger, 1)
        counted = 2 if at == "row committed" else 1
        assert sum(ledger.spent().values()) == counted
        ask(ledger, 2)
    assert count(path) == counted + 1


@pytest.mark.parametrize("at", CHARGE_STEPS[2:])
def test_a_creation_that_was_killed_can_be_finished(path: Path, at: str) -> None:
    def child() -> None:
        ledger_chain.step = lambda name: os.kill(os.getpid(), signal.SIGKILL) if name == at else None
        FileLedger.create(path, "clinic A", DATA, FIVE)

    os.waitpid(fork(child), 0)
    if at == "row committed":
        assert count(path) == 0
    else:
        with pytest.raises(LedgerError, match="create it again"):
            FileLedger.open(path)
        assert count(make(path)) == 0


def test_two_processes_on_one_budget_never_exceed_it_together(path: Path) -> None:
    make(path, Budget(6.05, 0.0))
    answers, answer = os.pipe()
    go, start = os.pipe()

    def child(name: bytes) -> None:
        os.close(start)
        with FileLedger.open(path) as ledger, contextlib.suppress(BudgetSpent):
            for question in range(1000):
                ask(ledger, question, run=name.decode())
                os.write(answer, name)
                if question == 0:
                    os.read(go, 1)  # until both have had an answer

    children = [fork(lambda: child(b"a")), fork(lambda: child(b"b"))]
    os.close(answer)
    given_out = os.read(answers, 1) + os.read(answers, 1)
    os.close(start)
    assert [os.waitpid(process, 0)[1] for process in children] == [0, 0]
    given_out += os.read(answers, 4096)
    os.close(answers)
    os.close(go)
    assert set(given_out) == set(b"ab")
    assert len(given_out) == count(path) == accounting.affordable(LAPLACE, 6.05, 0.0) == 60


def test_threads_share_one_ledger(path: Path) -> None:
    make(path, Budget(2.05, 0.0))
    answers = []

    def work(name: str) -> None:
        with contextlib.suppress(BudgetSpent):
            for question in range(1000):
                answers.append(ask(ledger, question, run=name))

    with FileLedger.open(path) as ledger:
        threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(receipt.sequence for receipt in answers) == list(range(1, 21))
    assert count(path) == 20


def test_a_ledger_held_by_another_is_waited_for_and_then_given_up(path: Path) -> None:
    make(path)
    with FileLedger.open(path, busy_timeout=0.02) as ledger, raw(path) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match=r"another process has held it for more than 0\.02 s"):
            ask(ledger, 0)
        other.execute("ROLLBACK")
        other.execute("BEGIN")
        other.execute("SELECT * FROM entries").fetchone()  # a reader lets the charge begin, but not commit
        with pytest.raises(LedgerError, match="another process has held it"):
            ask(ledger, 0)
        other.execute("ROLLBACK")
        assert ledger.spent() == {}
        assert ask(ledger, 0).sequence == 1
    assert count(path) == 1


def test_a_ledger_is_not_used_through_a_fork_or_after_closing(path: Path) -> None:
    make(path)
    with FileLedger.open(path) as ledger:

        def child() -> None:
            with pytest.raises(LedgerError, match="forked"):
                ask(ledger, 0)
            ledger.close()

        assert os.waitpid(fork(child), 0)[1] == 0
        ask(ledger, 0)
    with pytest.raises(LedgerError, match="closed"):
        ask(ledger, 1)
    assert count(path) == 1


# Edited, cut off, put back ------------------------------------------------------------------------------------------


def edit(path: Path, *statements: str) -> None:
    """As someone would who knows SQLite: without the triggers, which are then put back."""
    with raw(path) as connection:
        triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in (*statements, *(sql for _, sql in triggers)):
            connection.execute(statement)


def forge(path: Path, sequence: int) -> None:
    """Change a row and give it a hash that fits, but leave all else as it is."""
    with raw(path) as connection:
        connection.execute("DROP TRIGGER no_update")
        before, row = (ledger_store.rows(connection, "WHERE sequence = ?", (n,))[0] for n in (sequence - 1, sequence))
        content = (*row[:2], row.time + 1, *row[3:-1])
        values = (content[2], ledger_chain.link(before.hash, content), sequence)
        connection.execute("UPDATE entries SET time = ?, hash = ? WHERE sequence = ?", values)
    edit(path, *(sql for sql in ledger_store._SCHEMA if "no_update" in sql))


def put_back(path: Path, *suffixes: str) -> None:
    for suffix in suffixes:
        shutil.copy(f"{path}{suffix}.old", f"{path}{suffix}")


DELETE_LAST = "DELETE FROM entries WHERE sequence = (SELECT max(sequence) FROM entries)"
TAMPERING: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing done": (lambda path: edit(path), ""),
    "time edited": (lambda path: edit(path, "UPDATE entries SET time = time + 1 WHERE sequence = 2"), "row 2 does not"),
    "byte edited": (
        lambda path: edit(path, "UPDATE entries SET details = replace(details, '10.0', '90.0') WHERE sequence = 2"),
        "row 2 does not match its hash",
    ),
    "budget raised": (
        lambda path: edit(path, "UPDATE entries SET details = replace(details, '0.55', '9.55') WHERE sequence = 0"),
        "row 0 does not match its hash",
    ),
    "question renamed": (lambda path: edit(path, "UPDATE entries SET question = 9 WHERE sequence = 1"), "row 1 does"),
    "hash edited": (lambda path: edit(path, "UPDATE entries SET hash = 'x' WHERE sequence = 3"), "row 3 does not"),
    "row forged": (lambda path: forge(path, 2), "row 3 does not match its hash"),
    "last row forged": (lambda path: forge(path, 3), "not the one its head file names"),
    "row removed": (lambda path: edit(path, "DELETE FROM entries WHERE sequence = 1"), "row 1 is missing"),
    "last row removed": (lambda path: edit(path, DELETE_LAST), "holds 3 rows, its head file counts 4"),
    "two rows removed": (lambda path: edit(path, DELETE_LAST, DELETE_LAST), "holds 2 rows, its head file counts 4"),
    "all rows removed": (lambda path: edit(path, "DELETE FROM entries"), "no rows"),
    "row added": (
        lambda path: edit(
            path, "INSERT INTO entries SELECT 4, kind, time, 'x', 1, 1, details, hash FROM entries LIMIT 1"
        ),
        "row 4 does not",
    ),
    "triggers removed": (lambda path: edit_triggers(path), "append-only was removed"),
    "ledger put back": (lambda path: put_back(path, ""), "holds 2 rows, its head file counts 4"),
    "head put back": (
        lambda path: put_back(path, ".head"),
        "holds 4 rows, its head file counts 2: the head is too old",
    ),
    "head deleted": (lambda path: head(path).unlink(), "head file owner.ledger.head is missing"),
    "head emptied": (lambda path: head(path).write_bytes(b""), "head file owner.ledger.head is damaged"),
    "head garbled": (lambda path: head(path).write_text('{"sequence": 3}'), "head file owner.ledger.head is damaged"),
    "ledger deleted": (lambda path: path.unlink(), "only its head file is there"),
    "ledger emptied": (lambda path: path.write_bytes(b""), "it is empty"),
    "ledger cut in half": (lambda path: os.truncate(path, path.stat().st_size // 2), "damaged"),
    "not a database": (lambda path: path.write_bytes(os.urandom(4096)), "damaged, or no ledger"),
    "foreign ledger": (lambda path: shutil.copy(make(path.with_name("other"), answers=3), path), "one of the two was"),
    "foreign shorter ledger": (lambda path: shutil.copy(make(path.with_name("other"), answers=2), path), "counts 4"),
    "foreign tables": (lambda path: (path.unlink(), edit(path, "CREATE TABLE t (x)")), "is no ledger"),
}


def edit_triggers(path: Path) -> None:
    with raw(path) as connection:
        connection.execute("DROP TRIGGER no_delete")


@pytest.mark.parametrize("what", TAMPERING)
def test_a_changed_ledger_is_refused_and_the_error_says_why(path: Path, what: str) -> None:
    make(path, answers=1)
    for suffix in ("", ".head"):
        shutil.copy(f"{path}{suffix}", f"{path}{suffix}.old")
    with FileLedger.open(path) as ledger:
        ask(ledger, 1)
        ask(ledger, 2)
    tamper, why = TAMPERING[what]
    tamper(path)
    if not why:
        assert count(path) == 3
        return
    with pytest.raises(LedgerError, match=why) as refused:
        FileLedger.open(path)
    assert str(path) in str(refused.value)
    assert what == "ledger emptied" or "would forget budget" in str(refused.value)
    if what != "head deleted":  # without both files nothing is left that remembers
        with pytest.raises(LedgerError):
            FileLedger.create(path, "clinic A", DATA, FIVE)


@pytest.mark.parametrize("what", ["last row removed", "head put back", "head deleted", "ledger put back"])
def test_an_open_ledger_notices_too(path: Path, what: str) -> None:
    make(path, answers=1)
    for suffix in ("", ".head"):
        shutil.copy(f"{path}{suffix}", f"{path}{suffix}.old")
    with FileLedger.open(path) as ledger:
        ask(ledger, 1)
        ask(ledger, 2)
        TAMPERING[what][0](path)
        for _ in range(2):
            with pytest.raises(LedgerError, match="would forget budget"):
                ask(ledger, 3)


def test_an_open_ledger_whose_file_is_swapped_refuses(path: Path) -> None:
    make(path)
    with FileLedger.open(path) as ledger:
        path.rename(path.with_name("moved"))
        with pytest.raises(LedgerError, match="moved or replaced"):
            ask(ledger, 0)
        shutil.copy(path.with_name("moved"), path)
        with pytest.raises(LedgerError, match="moved or replaced"):
            ask(ledger, 0)


def test_a_last_row_removed_after_a_crash_is_put_back(path: Path) -> None:
    make(path)
    killed_while_charging(path, "r", "row committed", after=1)
    edit(path, DELETE_LAST)
    assert count(path) == 2


def test_old_copies_of_both_files_together_are_not_noticed(path: Path) -> None:
    # Not a wish but the truth: what the documentation says the files cannot show.
    make(path, answers=1)
    for suffix in ("", ".head"):
        shutil.copy(f"{path}{suffix}", f"{path}{suffix}.old")
    with FileLedger.open(path) as ledger:
        ask(ledger, 1)
    put_back(path, "", ".head")
    assert count(path) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET time = 0",
        "DELETE FROM entries",
        "INSERT OR REPLACE INTO entries SELECT * FROM entries WHERE sequence = 1",
        "INSERT INTO entries SELECT 7, kind, time, 'x', 1, 1, details, hash FROM entries WHERE sequence = 1",
    ],
)
def test_the_file_itself_only_grows_at_its_end(path: Path, statement: str) -> None:
    make(path, answers=2)
    with raw(path) as connection, pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(statement)
    assert count(path) == 2


def test_a_ledger_is_never_made_over_another(path: Path) -> None:
    make(path, answers=1)
    with pytest.raises(LedgerError, match="counts answers already given"):
        make(path)
    make(path.with_name("unused"))
    with pytest.raises(LedgerError, match="file with content already"):
        make(path.with_name("unused"))
    assert count(path) == 1


@pytest.mark.parametrize(("version", "fix"), [(2, "Use an older sottovoce"), (4, "Use a newer sottovoce")])
def test_another_version_is_refused_and_says_which_it_is(path: Path, version: int, fix: str) -> None:
    make(path)
    with raw(path) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(LedgerError, match=f"of version {version}, this library reads 3. {fix}"):
        FileLedger.open(path)


# A disk that does not do as it is told ------------------------------------------------------------------------------


def test_no_such_file_or_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MissingData, match="no such file"):
        FileLedger.open(tmp_path / "missing")
    for bad in (tmp_path / "missing" / "ledger", tmp_path / "file" / "ledger", tmp_path):
        with pytest.raises(LedgerError, match="is its folder there"):
            make(bad)


def answers_until_refused(ledger: FileLedger) -> tuple[int, str]:
    for question in range(1000):
        try:
            ask(ledger, question)
        except LedgerError as error:
            return question, str(error)
    raise AssertionError("never refused")


def test_a_database_that_cannot_grow_charges_nothing(path: Path) -> None:
    make(path, Budget(1e6, 0.0))
    with FileLedger.open(path) as ledger:
        pages = ledger._connection.execute("PRAGMA page_count").fetchone()[0]
        ledger._connection.execute(f"PRAGMA max_page_count = {pages}")
        given_out, why = answers_until_refused(ledger)
        assert "disk is full" in why
        assert "Nothing was answered" in why
        assert ledger.spent() == {LAPLACE: given_out}
        ledger._connection.execute("PRAGMA max_page_count = 100000")
        ask(ledger, 2000)
    assert count(path) == given_out + 1


def test_a_file_system_that_refuses_to_write_on_charges_nothing(path: Path) -> None:
    make(path, Budget(1e6, 0.0))
    read, write = os.pipe()

    def child() -> None:
        ledger = FileLedger.open(path)
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 8192, resource.RLIM_INFINITY))
        os.write(write, json.dumps(answers_until_refused(ledger)).encode())

    assert os.waitpid(fork(child), 0)[1] == 0
    given_out, why = json.loads(os.read(read, 4096))
    os.close(read)
    os.close(write)
    assert "Nothing was answered" in why
    assert 0 < given_out == count(path)


@pytest.mark.parametrize("call", ["fsync", "replace", "fdopen"])
@pytest.mark.parametrize(
    ("code", "why"),
    [
        (errno.ENOSPC, "disk is full"),
        (errno.EROFS, "read-only"),
        (errno.EIO, "cannot be read or written"),
    ],
)
def test_a_head_that_cannot_be_written_charges_nothing(
    path: Path, call: str, code: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    make(path, answers=1)
    with FileLedger.open(path) as ledger:
        with monkeypatch.context() as broken:
            broken.setattr(os, call, fail)
            with pytest.raises(LedgerError, match=f"{why}.*Nothing was answered"):
                ask(ledger, 1)
            with pytest.raises(LedgerError, match=why):
                FileLedger.open(path)
        assert ledger.spent() == {LAPLACE: 1}
        ask(ledger, 1)
    assert count(path) == 2


def test_a_promise_that_can_be_neither_kept_nor_taken_back_is_counted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(path)
    with FileLedger.open(path) as ledger:

        def dies(name: str) -> None:
            if name == "head durable":
                monkeypatch.setattr(ledger_chain, "write_head", fails)
                fails()

        def fails(*_: object) -> None:
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(ledger_chain, "step", dies)
        with pytest.raises(LedgerError, match="Input/output error"):
            ask(ledger, 0)
    monkeypatch.undo()
    assert count(path) == 1


def test_a_read_only_ledger_is_refused_before_the_first_question(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(path, answers=1)
    connect = ledger_store.connect
    with FileLedger.open(path) as ledger:
        ledger._connection.execute("PRAGMA query_only = ON")
        with pytest.raises(LedgerError, match="read-only"):
            ask(ledger, 1)
        ledger._connection.execute("PRAGMA query_only = OFF")
        assert ledger.spent() == {LAPLACE: 1}

    def read_only(path: Path, busy_timeout: float) -> sqlite3.Connection:
        connect(path, busy_timeout).close()
        return sqlite3.connect(path.as_uri() + "?mode=ro", uri=True, isolation_level=None)

    monkeypatch.setattr(ledger_store, "connect", read_only)
    with pytest.raises(LedgerError, match="read-only"):
        FileLedger.open(path)
    monkeypatch.undo()
    if os.geteuid() != 0:  # permissions do not bind root
        path.parent.chmod(0o500)
        try:
            with pytest.raises(LedgerError, match="read-only"):
                FileLedger.open(path)
        finally:
            path.parent.chmod(0o700)
    assert count(path) == 1


# In memory, for simulations -----------------------------------------------------------------------------------------

KINDS = (LAPLACE, Event("laplace", 7.0), Event("laplace", 25.0))
CHARGES = st.lists(
    st.tuples(st.sampled_from(KINDS), st.lists(st.booleans(), min_size=6, max_size=6)), min_size=1, max_size=12
)


@settings(max_examples=60, deadline=None)
@given(CHARGES)
def test_memory_counts_and_refuses_as_the_accountant_says(charges: list[tuple[Event, list[bool]]]) -> None:
    ledger, budget = MemoryLedger(Budget(0.55, 0.0), (2, 3)), 0.55
    spent: list[dict[Event, int]] = [{} for _ in range(6)]

    def left(client: int, event: Event) -> int:
        return accounting.affordable(event, budget, 0.0, spent=spent[client])

    for event, flags in charges:
        able = np.array([left(client, event) for client in range(6)]).reshape(2, 3)
        for answers in (0, 1, 2, 5):
            np.testing.assert_array_equal(ledger.afford(event, answers), able >= answers)
        active = np.array(flags).reshape(2, 3)
        if (active & (able < 1)).any():
            with pytest.raises(BudgetSpent):
                ledger.charge(event, active=active)
            active &= able >= 1
        ledger.charge(event, active=active)
        for client in np.flatnonzero(active):
            spent[client][event] = spent[client].get(event, 0) + 1
    for client in range(6):
        assert ledger.spent(client % 3, client // 3) == spent[client]
    beyond = MemoryLedger(Budget(0.55, 0.0), (3,))
    for event in {event: None for event, _ in charges}:
        beyond.recall(event, 1, 1000)
        assert beyond.afford(event, 0).tolist() == [True, False, True]
    expected = [accounting.epsilon(each, 0.0) for each in spent]
    np.testing.assert_allclose(ledger.epsilons(), np.reshape(expected, (2, 3)), rtol=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_memory_knows_the_spread_of_what_was_spent(data: st.DataObject) -> None:
    """After any number of answers of all clients, of some, of another kind, remembered, or taken from a checkpoint."""
    shape, budget = data.draw(st.sampled_from([(3,), (2, 3)])), Budget(3.0, 1e-5)
    ledger, saved = MemoryLedger(budget, shape), None
    masks = st.lists(st.booleans(), min_size=3, max_size=3).map(lambda flags: np.broadcast_to(flags, shape))
    steps = st.sampled_from(["all", "all", "mask", "some", "kind", "recall", "save", "restore"])
    for step in data.draw(st.lists(steps)):
        if step == "all":
            for _ in range(data.draw(st.integers(1, 12))):
                ledger.charge(GAUSSIAN)
        elif step == "mask":
            ledger.charge(GAUSSIAN, active=data.draw(masks))
        elif step == "some":
            ledger.charge(GAUSSIAN, clients=np.array([data.draw(st.integers(0, 2))]))
        elif step == "kind":
            ledger.charge(LAPLACE)
        elif step == "recall":
            ledger.recall(GAUSSIAN, data.draw(st.integers(0, 2)), data.draw(st.integers(1, 9)))
        elif step == "save":
            saved = ledger.state()
        elif saved is not None:
            ledger.restore(saved)
        spent = [
            accounting.epsilon(ledger.spent(client, run), budget.delta)
            for run in range(shape[0] if len(shape) == 2 else 1)
            for client in range(3)
        ]
        each = np.reshape(spent, shape)
        numbers = each.max(axis=-1), np.median(each, axis=-1), each.min(axis=-1)
        for found, expected in zip(ledger.spread(), numbers, strict=True):
            np.testing.assert_array_equal(np.broadcast_to(found, shape[:-1]), expected)


@pytest.mark.parametrize("event", [GAUSSIAN, Event("gaussian", 4.0, sampling="fixed-size", batch=1, size=9)])
def test_what_is_spent_beyond_the_budget_is_counted_and_shown_in_full(event: Event) -> None:
    ledger, spent = MemoryLedger(Budget(1.0, 1e-5), (2,)), accounting.epsilon({event: 5000}, 1e-5)
    for client in range(2):
        ledger.recall(event, client, 5000)
    assert ledger.epsilons() == pytest.approx([spent] * 2, rel=1e-12)
    assert spent > 1.0
    assert (ledger.epsilons(roughly=True) >= ledger.epsilons()).all()
    assert min(float(one) for one in ledger.spread()) >= spent
    again = MemoryLedger(Budget(1.0, 1e-5), (2,))
    again.restore(ledger.state())
    assert np.array_equal(again.epsilons(roughly=True), ledger.epsilons(roughly=True))


def test_one_client_beyond_the_budget_shows_no_other_there() -> None:
    event = Event("gaussian", 4.0, sampling="fixed-size", batch=1, size=9)
    ledger, most = MemoryLedger(Budget(1.0, 1e-5), (2,)), accounting.affordable(event, 1.0, 1e-5)
    ledger.recall(event, 0, 5000)
    ledger.recall(event, 1, most)
    beyond, within = ledger.epsilons(roughly=True)
    assert beyond >= ledger.epsilons()[0] > 1.0
    assert within == 1.0


def test_counts_that_are_rounded_up_show_nobody_beyond_the_budget() -> None:
    event = Event("gaussian", 4.0, sampling="fixed-size", batch=1, size=9)
    ledger, most = MemoryLedger(Budget(1.0, 1e-5), (1,)), accounting.affordable(event, 1.0, 1e-5)
    for _ in range(most):
        ledger.charge(event)
    assert ledger.epsilons()[0] <= ledger.epsilons(roughly=True)[0] == 1.0
    again = MemoryLedger(Budget(1.0, 1e-5), (1,))
    again.restore(ledger.state())
    assert again.epsilons(roughly=True)[0] == 1.0


@pytest.mark.parametrize("shape", [(1,), (2,), (4,), (5,), (2, 4), (3, 1)])
def test_spread_is_largest_median_and_smallest(shape: tuple[int, ...]) -> None:
    epsilons = np.random.default_rng(0).random(shape)
    expected = epsilons.max(axis=-1), np.median(epsilons, axis=-1), epsilons.min(axis=-1)
    for found, number in zip(spread_of(epsilons), expected, strict=True):
        np.testing.assert_array_equal(found, number)


def test_nobody_can_change_who_can_afford_an_answer() -> None:
    ledger = MemoryLedger(Budget(3.0, 1e-5), (2,))
    ledger.afford(GAUSSIAN)  # the first computes how much is left; from the second on one array is handed out
    with pytest.raises(ValueError, match="WRITEABLE"):
        ledger.afford(GAUSSIAN).flags.writeable = True


@pytest.mark.parametrize("event", [LAPLACE, GAUSSIAN])
def test_memory_and_file_agree_to_the_last_answer(path: Path, event: Event) -> None:
    budget = Budget(0.75, 0.0 if event is LAPLACE else 1e-5)
    memory = MemoryLedger(budget, (2,))
    with FileLedger.create(path, "clinic A", DATA, budget) as ledger:
        for question in range(1000):
            assert memory.afford(event).tolist() == [ledger.remaining(event) > 0] * 2
            if ledger.remaining(event) == 0:
                break
            ask(ledger, question, event)
            memory.charge(event)
        with pytest.raises(BudgetSpent) as on_disk:
            ask(ledger, 1000, event)
        with pytest.raises(BudgetSpent) as in_memory:
            memory.charge(event)
        assert str(on_disk.value).split(":", 1)[1] == str(in_memory.value).split(":", 1)[1]
        assert memory.spent(1) == ledger.spent()
        assert memory.epsilons().tolist() == [ledger.epsilon()] * 2
        assert 0 < ledger.epsilon() <= 0.75 < accounting.epsilon({event: ledger.spent()[event] + 1}, budget.delta)


def test_memory_charges_all_or_none_and_names_the_first_who_cannot() -> None:
    ledger = MemoryLedger(FIVE, (2, 4))
    for _ in range(5):
        ledger.charge(LAPLACE, np.array([3, 1]), np.array([[True, False], [False, True]]))
    np.testing.assert_array_equal(ledger.afford(LAPLACE), [[1, 1, 1, 0], [1, 0, 1, 1]])
    np.testing.assert_array_equal(ledger.afford(LAPLACE, 1, np.array([3, 1])), [[False, True], [True, False]])
    np.testing.assert_array_equal(ledger.afford(LAPLACE, [1, 6], np.array([0, 2])), [[True, False]] * 2)
    before = ledger.state()["counts"]
    with pytest.raises(BudgetSpent, match=r"client 3 of run 0: .* 0\.5 is spent after 5"):
        ledger.charge(LAPLACE, np.array([0, 3, 1]))
    with pytest.raises(BudgetSpent, match=r"client 1 of run 1: "):
        ledger.charge(LAPLACE, np.array([0, 1]))
    np.testing.assert_array_equal(ledger.state()["counts"], before)
    ledger.charge(LAPLACE, np.array([3, 1]), np.array([[False, True], [True, False]]))
    ledger.charge(LAPLACE, np.array([], int))
    np.testing.assert_array_equal(ledger.state()["counts"][0], [[0, 1, 0, 5], [0, 5, 0, 1]])


def test_memory_asks_the_accountant_once_however_many_clients_and_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    affordable = accounting.affordable

    def counted(event: Event, *args: float, **more: dict) -> int:
        asked.append(event)
        return affordable(event, *args, **more)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(accounting, "affordable", counted)
    ledger, event = MemoryLedger(Budget(1.0, 1e-6), (100,)), Event("gaussian", 87.5)
    for number in range(50):
        ledger.charge(event, np.arange(number, 100))
        ledger.afford(event, 2)
    assert asked == [event]


def test_memory_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    first, second = MemoryLedger(FIVE, (2, 3)), MemoryLedger(FIVE, (2, 3))
    np.testing.assert_array_equal(first.epsilons(), np.zeros((2, 3)))
    for start in (first, first.charge(LAPLACE), first.charge(Event("laplace", 1 / 0.3), np.array([2]))):
        del start
        np.savez(tmp_path / "checkpoint.npz", allow_pickle=False, **first.state())
        with np.load(tmp_path / "checkpoint.npz", allow_pickle=False) as arrays:
            second.restore(dict(arrays))
        assert second.spent(2, 1) == first.spent(2, 1)
        np.testing.assert_array_equal(second.epsilons(), first.epsilons())
        np.testing.assert_array_equal(second.afford(LAPLACE, 2), first.afford(LAPLACE, 2))
    second.charge(LAPLACE)
    assert (first.spent(0)[LAPLACE], second.spent(0)[LAPLACE]) == (1, 2)
    with pytest.raises(InvalidInput, match=r"shape \(2, 4\)"):
        MemoryLedger(FIVE, (4,)).restore(first.state())


@pytest.mark.parametrize(
    ("clients", "active", "why"),
    [
        ([0, 0], None, "only once"),
        ([3], None, r"in 0\.\.2"),
        ([-1], None, r"in 0\.\.2"),
        ([0.0], None, "whole numbers"),
        ([True, False, True], None, "whole numbers"),
        ([0.0, 1.0, 2.0], None, "whole numbers"),
        (None, [True, True], r"mask of shape \(3,\)"),
        ([1], [1], "must be a mask"),
    ],
)
def test_memory_refuses_indices_that_would_miscount(clients: list | None, active: list | None, why: str) -> None:
    ledger = MemoryLedger(FIVE, (3,))
    with pytest.raises(InvalidInput, match=why):
        ledger.charge(
            LAPLACE, None if clients is None else np.array(clients), None if active is None else np.array(active)
        )
    assert not ledger.state()["counts"].any()


@pytest.mark.parametrize("shape", [(), (1, 2, 3), (0,), (2, 0), (2.0,)])
def test_memory_needs_a_shape_of_clients(shape: tuple) -> None:
    with pytest.raises(InvalidInput, match="MemoryLedger"):
        MemoryLedger(FIVE, shape)

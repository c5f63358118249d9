"""The SQLite file of an owner's ledger: its one append-only table, and its failures as clear sentences."""

import contextlib
import errno
import sqlite3
from collections.abc import Generator
from pathlib import Path

from sottovoce.core import check
from sottovoce.ledger.budget import LedgerError
from sottovoce.ledger.chain import HOW_TO_FIX, VERSION, BrokenLedger, Entry

_COLUMNS = ", ".join(Entry._fields)
_SCHEMA = (
    "CREATE TABLE entries (sequence INTEGER PRIMARY KEY, kind TEXT NOT NULL, time REAL NOT NULL, run TEXT, "
    "round INTEGER, question INTEGER, details TEXT NOT NULL, hash TEXT NOT NULL, UNIQUE (run, round, question))",
    "CREATE TRIGGER no_update BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END",
    "CREATE TRIGGER no_delete BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END",
    # An INSERT OR REPLACE removes a row without asking the trigger above, so rows may be added at the end only.
    "CREATE TRIGGER only_append BEFORE INSERT ON entries "
    "WHEN NEW.sequence IS NOT (SELECT coalesce(max(sequence), -1) + 1 FROM entries) "
    "BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END",
)


def connect(path: Path, busy_timeout: float) -> sqlite3.Connection:
    """A connection to a file that exists, without implicit transactions, that syncs every commit."""
    check.positive("FileLedger", busy_timeout=busy_timeout)
    address = path.as_uri() + "?mode=rw"
    connection = sqlite3.connect(address, timeout=busy_timeout, isolation_level=None, check_same_thread=False, uri=True)
    try:
        connection.execute("PRAGMA journal_mode = DELETE")
        # FULL does not sync the folder after it removed the journal, so a power cut could bring the journal back and
        # undo a commit that a settled head already insists on. EXTRA does.
        connection.execute("PRAGMA synchronous = EXTRA")
    except BaseException:
        connection.close()
        raise
    return connection


def make_schema(connection: sqlite3.Connection) -> None:
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise LedgerError("there is a file with content already; open it, or choose another name")
    for statement in _SCHEMA:
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {VERSION}")


def check_schema(connection: sqlite3.Connection) -> None:
    """The file must be undamaged, a ledger, of a known version, still append-only, and writable."""
    schema = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
    marked = connection.execute("PRAGMA user_version").fetchone()[0]
    if not schema:
        raise LedgerError("it is empty: creating it was interrupted (create it again), or it was overwritten")
    if marked not in (0, VERSION):
        other = "a newer" if marked > VERSION else "an older"
        raise LedgerError(f"it is of version {marked}, this library reads {VERSION}. Use {other} sottovoce")
    if schema != set(_SCHEMA) or marked == 0:
        raise BrokenLedger("it is no ledger, or what makes it append-only was removed")
    damage = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if damage != "ok":
        raise BrokenLedger(f"the file is damaged ({damage})")
    # On a file that it may only read, SQLite begins even an immediate transaction, without the lock we rely on.
    connection.execute("DELETE FROM entries WHERE false")


def insert(connection: sqlite3.Connection, entry: Entry) -> None:
    connection.execute(f"INSERT INTO entries ({_COLUMNS}) VALUES ({', '.join('?' * len(entry))})", entry)


def rounds_charged(connection: sqlite3.Connection, run: str) -> set[int]:
    """The rounds of a run in which something was charged."""
    rounds = connection.execute("SELECT DISTINCT round FROM entries WHERE kind = 'charge' AND run = ?", (run,))
    return {number for (number,) in rounds}


def charged_in(connection: sqlite3.Connection, run: str) -> list[tuple[str, int]]:
    """What the charges of a run say, each different text once, and how many say so."""
    counted = "SELECT details, count(*) FROM entries WHERE kind = 'charge' AND run = ? GROUP BY details"
    return connection.execute(counted, (run,)).fetchall()


def rows(connection: sqlite3.Connection, where: str, values: tuple[object, ...] = ()) -> list[Entry]:
    return [Entry(*row) for row in connection.execute(f"SELECT {_COLUMNS} FROM entries {where}", values)]


@contextlib.contextmanager
def clear_errors(path: Path, busy_timeout: float) -> Generator[None]:
    """Every refusal, and every failure of the disk or of SQLite, as one sentence that names the ledger."""
    try:
        yield
    except LedgerError as error:
        raise LedgerError(f"ledger {path}: {error}") from error
    except check.SottovoceError:
        raise
    except (OSError, sqlite3.Error) as error:
        raise LedgerError(f"ledger {path}: {_reason(error, busy_timeout)} ({error}). Nothing was answered") from error


def _reason(error: OSError | sqlite3.Error, busy_timeout: float) -> str:
    if isinstance(error, OSError):
        name = errno.errorcode.get(error.errno or 0, "")
    else:
        name = getattr(error, "sqlite_errorname", "")
    if name in ("ENOSPC", "EDQUOT", "EFBIG") or name.startswith("SQLITE_FULL"):
        return "the disk is full; make room and try again"
    if name in ("EACCES", "EPERM", "EROFS") or name.startswith(("SQLITE_READONLY", "SQLITE_PERM")):
        return "the file or its folder is read-only; a ledger must be writable"
    if name in ("ENOENT", "ENOTDIR", "EISDIR") or name.startswith("SQLITE_CANTOPEN"):
        return "it cannot be opened; is its folder there, and writable?"
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return f"another process has held it for more than {busy_timeout:g} s; try again when that is done"
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return f"the file is damaged, or no ledger. {HOW_TO_FIX}"
    return "it cannot be read or written"

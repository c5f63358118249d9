"""What `sottovoce node check` finds before a node joins: every fault one line, with how to fix it."""

import datetime
import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from sottovoce.deploy.lines import ServerLine
from sottovoce.deploy.node import Node
from tests.command_line import invoke
from tests.deploy.test_node import asks, at
from tests.deploy.test_node_process import Answer, keys, serving  # noqa: F401 (a fixture)
from tests.deploy.test_setup import node as init
from tests.deploy.test_setup import place, well  # noqa: F401 (a fixture)
from tests.deployments import SECURE, write_nodes

KNOWN = b'{"code": 2003, "detail": "Invalid heartbeat interval"}'
UNKNOWN = b'{"code": 2004, "detail": "Failed"}'


def found(file: Path, *options: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """Exit code, and state and text of each thing that was looked at."""
    done = invoke(["node", "check", str(file), "--json", *options])
    told = json.loads(done.output)
    assert told["ready"] == (done.exit_code == 0)
    return done.exit_code, {item["name"]: (item["state"], item["text"]) for item in told["items"]}


@pytest.fixture
def ready(place: Path, keys: Path) -> Path:  # noqa: F811
    """A node that is set up, with the authority of the server in these tests."""
    well(*init("va"))
    (place / "va" / "ca.crt").write_bytes((keys / "ca.crt").read_bytes())
    return place / "va" / "node.toml"


def at_port(file: Path, port: int) -> Path:
    address = ServerLine.read((file.parents[1] / "study" / "line").read_text()).address
    file.write_text(file.read_text().replace(address, f"127.0.0.1:{port}"))
    return file


def date(minutes: float = 0) -> str:
    then = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=minutes)
    return then.strftime("%a, %d %b %Y %H:%M:%S GMT")


def asked(file: Path, keys: Path, answer: Answer, tls: bool = True) -> tuple[int, dict[str, tuple[str, str]]]:  # noqa: F811
    with serving(keys, answer, tls) as server:
        code, items = found(at_port(file, server.port))
        assert set(server.asked) <= {"/v1/fleet/activate-node"}
    return code, items


def test_a_node_that_is_ready_gets_a_tick_for_everything(ready: Path, keys: Path) -> None:  # noqa: F811
    code, items = asked(ready, keys, (400, {"date": date()}, KNOWN))
    assert code == 0, items
    assert list(items) == ["file", "rights", "rows", "labels", "budget", "server", "clock", "key"]
    assert {state for state, _ in items.values()} == {"good"}
    assert items["rows"][1].startswith("200 rows, 60 columns, prepared by the schema ")
    assert items["labels"][1] == "each of 'no', 'yes' occurs"
    assert items["budget"][1].startswith("epsilon 0 of 2 is spent, 2 is left")
    done = invoke(["node", "check", str(ready), "--offline"])
    assert (done.exit_code, [line[:1] for line in done.output.splitlines() if ":" in line][:5]) == (0, ["✓"] * 5)
    folder = invoke(["node", "check", str(ready.parent), "--offline"])
    assert (folder.exit_code, folder.output) == (done.exit_code, done.output)


@pytest.mark.parametrize(
    ("answer", "name", "told"),
    [
        (lambda: (400, {"date": date()}, UNKNOWN), "key", "sottovoce server add DIR LINE"),
        (lambda: (401, {"date": date(10)}, b""), "clock", "this machine's clock is 10 minutes ahead of the server's"),
        (lambda: (400, {"date": date(-10)}, KNOWN), "clock", "clock is 10 minutes behind the server's"),
        (lambda: (401, {"date": date()}, b""), "server", "does not accept this client's key"),
        (lambda: (503, {"date": date()}, b""), "server", "HTTP 503"),
        (lambda: (307, {"location": "https://127.0.0.1:1/"}, b""), "server", "redirect"),
    ],
)
def test_what_a_server_says_is_told_with_how_to_mend_it(
    answer: Callable[[], Answer],
    name: str,
    told: str,
    ready: Path,
    keys: Path,  # noqa: F811
) -> None:
    code, items = asked(ready, keys, answer())
    assert (code, items[name][0]) == (2, "bad")
    assert told in items[name][1]
    assert [state for other, (state, _) in items.items() if other != name and state == "bad"] == []


def test_a_server_that_is_not_there_is_another_or_speaks_openly(ready: Path, keys: Path) -> None:  # noqa: F811
    code, items = found(at_port(ready, 1))
    assert (code, items["server"][0]) == (2, "bad")
    assert "cannot be reached" in items["server"][1]
    assert "Is it up" in items["server"][1]
    ready.write_text(ready.read_text().replace("127.0.0.1:1", "127.0.0.1:PORT"))
    ready.write_text(ready.read_text().replace("127.0.0.1:PORT", "no-such-host.invalid:8700"))
    assert "cannot be reached" in found(ready)[1]["server"][1]
    ready.write_text(ready.read_text().replace("no-such-host.invalid:8700", "127.0.0.1:1"))
    with serving(keys, (400, {}, KNOWN), tls=False) as server:
        ready.write_text(ready.read_text().replace("127.0.0.1:1", f"127.0.0.1:{server.port}"))
        assert "without TLS" in found(ready)[1]["server"][1]
    with serving(keys, (400, {}, KNOWN)) as other:
        ready.write_text(ready.read_text().replace(f"127.0.0.1:{server.port}", f"127.0.0.1:{other.port}"))
        (ready.parent / "ca.crt").write_bytes((keys / "other" / "ca.crt").read_bytes())
        assert "not signed by the authority" in found(ready)[1]["server"][1]
        assert other.asked == []


FAULTS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a file that is none": (lambda home: (home / "node.toml").write_text("[node"), "file", "must be TOML"),
    "no limits": (lambda home: cut_from(home / "node.toml", "[limits]"), "file", "needs a table [limits]"),
    "an open folder": (lambda home: (home / "memory").chmod(0o755), "rights", "chmod 700"),
    "an open key": (lambda home: (home / "node.key").chmod(0o644), "server", "chmod 600"),
    "no key": (lambda home: (home / "node.key").unlink(), "server", "the key cannot be read"),
    "a key that is none": (lambda home: (home / "node.key").write_text("x"), "server", "must be a private key"),
    "no certificate": (lambda home: (home / "ca.crt").unlink(), "server", "the certificate cannot be read"),
    "no rows": (lambda home: (home.parent / "files" / "va.csv").unlink(), "rows", "va.csv"),
    "another label": (lambda home: swap(home, ",yes", ",ill"), "rows", "must hold one of the classes"),
    "a column that is gone": (lambda home: swap(home, "oldpeak", "peak"), "rows", "oldpeak"),
    "a schema that is gone": (lambda home: (home / "schema.toml").unlink(), "file", "schema.toml"),
}


def swap(home: Path, old: str, new: str) -> None:
    path = home.parent / "files" / "va.csv"
    path.write_text(path.read_text().replace(old, new))


def cut_from(path: Path, title: str) -> None:
    path.write_text(path.read_text().partition(title)[0])


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_on_its_own_machine(fault: str, ready: Path) -> None:
    break_it, name, told = FAULTS[fault]
    break_it(ready.parent)
    code, items = found(ready)
    assert (code, items[name][0]) == (2, "bad"), items
    assert told in items[name][1]
    assert not (ready.parent / "memory" / "ledger").exists() or name in ("server", "rights")


def test_a_label_that_never_occurs_is_worth_a_look(ready: Path) -> None:
    swap(ready.parent, ",yes", ",no")
    code, items = found(ready, "--offline")
    assert (code, items["labels"][0]) == (0, "look")
    assert "no row has the label 'yes'" in items["labels"][1]


def test_a_spent_budget_and_a_ledger_of_other_rows(tmp_path: Path) -> None:
    (file, *_) = write_nodes(tmp_path, epsilon=20.0, modes=["proven"])
    first, node = asks("dp-admm", SECURE, 4)[0], Node(file)
    for k in range(1, 5):
        assert node.answer(at(first, k)).code == ""
    node.close()
    code, items = found(file, "--offline")
    assert (code, items["budget"][0]) == (2, "bad")
    assert "epsilon 20 of 20 is spent, " in items["budget"][1]
    assert "Raise epsilon in [limits]" in items["budget"][1]
    (tmp_path / "north" / "rows.npz").write_bytes((tmp_path / "south" / "rows.npz").read_bytes())
    assert "it is a ledger of another data set" in found(file, "--offline")[1]["budget"][1]


def test_a_file_without_a_server_says_so(tmp_path: Path) -> None:
    (file, *_) = write_nodes(tmp_path)
    code, items = found(file)
    assert (code, items["server"][0]) == (2, "bad")
    assert "needs a table [server]" in items["server"][1]

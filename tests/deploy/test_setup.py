"""Setting up a server and nodes: what is written, who can read it, and that wrong input leaves nothing behind."""

import os
import pty
import re
import shutil
import socket
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml

from sottovoce.deploy import keys, setup_server
from sottovoce.deploy.deployment import Deployment
from sottovoce.deploy.lines import NodeLine, ServerLine
from sottovoce.deploy.node import Node
from sottovoce.experiment import run_file
from sottovoce.experiment.tables import read_tables
from sottovoce.problems.schema import Schema
from tests.command_line import invoke

EXAMPLES = Path(__file__).parents[2] / "examples" / "hospitals"
NAMES = ("cleveland", "hungarian", "va")


def call(*words: str) -> tuple[int, str]:
    """Exit code and all that was printed, on one line."""
    done = invoke(list(map(str, words)))
    return done.exit_code, " ".join(done.output.split())


def well(*words: str) -> str:
    code, said = call(*words)
    assert code == 0, said
    return said


def free_ports() -> list[str]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [str(one.getsockname()[1]) for one in held]
    for one in held:
        one.close()
    return ["--port", ports[0], "--operator-port", ports[1]]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the example's files and a server."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(EXAMPLES, tmp_path / "files")
    well("server", "init", "study", "--schema", "files/schema.toml", *free_ports())
    return tmp_path


def node(name: str, *more: str) -> list[str]:
    usual = ["--server", "study/line", "--csv", f"files/{name}.csv", "--schema", "files/schema.toml"]
    return ["node", "init", name, *usual, *more]


def test_three_hospitals_are_set_up_and_fit_the_run_file(place: Path) -> None:
    for name in NAMES:
        said = well(*node(name))
        assert (place / name / "line").read_text().strip() in said
    said = well("server", "add", "study", *(f"{name}/line" for name in NAMES))
    known = setup_server.known_nodes(place / "study")
    assert tuple(known) == NAMES
    assert all(known[name].fingerprint in said for name in NAMES)
    assert "nothing changed" in well("server", "add", "study", "va/line")
    tables = read_tables(place / "files" / "run.toml", run_file.TABLES)
    deployment = Deployment.build(tables, "run.toml", place / "files")
    for name in NAMES:
        client = Node(place / name / "node.toml")
        client.limits.check_task(deployment.task, deployment.plan(np.full(3, 200)))
        rows = client.rows
        assert rows.X.shape[1] == deployment.clients.columns
        assert client.schema_digest == Schema.from_toml(place / "files" / "schema.toml").digest()
        assert (client.limits.epsilon_per_day, client.limits.questions_per_hour) == (1.0, 1000)


def test_private_things_are_readable_by_their_owner_alone(place: Path) -> None:
    before = os.umask(0)  # whatever the account's habit is
    try:
        well(*node("va"))
        well("server", "init", "other", *free_ports())
    finally:
        os.umask(before)
    closed = ["va", "va/memory", "va/node.key", "study", "study/keys/server.key", "other", "other/keys/server.key"]
    assert {stat.S_IMODE((place / path).stat().st_mode) & 0o077 for path in closed} == {0}
    assert "PRIVATE KEY" not in "".join(
        path.read_text() for path in place.rglob("*") if path.is_file() and path.suffix != ".key"
    )


def test_a_line_is_told_from_any_other_text(place: Path) -> None:
    line = ServerLine.read((place / "study" / "line").read_text())
    assert ServerLine.read(f"  {line}\n") == line
    assert line.pem() == (place / "study" / "keys" / "ca.crt").read_bytes()
    _, public = keys.key_pair()
    own = NodeLine.of("north", public)
    assert NodeLine.read(str(own)) == own
    assert own.openssh() == public
    for whole, kind in ((str(line), ServerLine), (str(own), NodeLine)):
        place_of_key = max(range(len(whole.split())), key=lambda part: len(whole.split()[part]))
        for spot in range(8, len(whole.split()[place_of_key]) - 8, 7):
            words = whole.split()
            letter = "A" if words[place_of_key][spot] != "A" else "B"
            words[place_of_key] = words[place_of_key][:spot] + letter + words[place_of_key][spot + 1 :]
            with pytest.raises(ValueError, match="not whole, or was changed"):
                kind.read(" ".join(words))


# ----------------------------------------------------------------------------------------------------- wrong input


def cut(text: str) -> str:
    return text.strip()[:-40]


def listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def changed(path: Path, old: str, new: str) -> str:
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    return str(path)


WRONG: dict[str, tuple[Callable[[Path], list[str]], str]] = {
    "no line": (lambda at: node("va", "--server", "hello"), "must be a server's line"),
    "an empty line": (lambda at: node("va", "--server", " "), "must be a server's line"),
    "a line that was cut": (lambda at: node("va", "--server", cut((at / "study/line").read_text())), "not whole"),
    "a node's line for a server's": (
        lambda at: node("va", "--server", str(NodeLine.of("x", keys.key_pair()[1]))),
        "this is a node's line",
    ),
    "a folder that is there": (
        lambda at: ["node", "init", "files", *node("va")[3:]],
        "exists and is not an empty folder",
    ),
    "a folder inside a file": (
        lambda at: ["node", "init", "files/va.csv/va", *node("va")[3:]],
        "cannot be written",
    ),
    "no such table": (lambda at: node("north"), "there is no such file. Name the table of rows with --csv"),
    "a table that is no text": (
        lambda at: (
            node("va", "--csv", str(at / "study/state.bin"))
            if (at / "study/state.bin").write_bytes(bytes(range(256)))
            else []
        ),
        "must be",
    ),
    "another schema": (
        lambda at: node("va", "--schema", changed(at / "files/schema.toml", "[20, 80]", "[20, 90]")),
        "is another schema than the server's line names",
    ),
    "no schema, and the study has one": (
        lambda at: [*node("va")[:-2], "--label", "ill"],
        "the server's line names a schema, and none is given",
    ),
    "a label besides the schema's": (lambda at: node("va", "--label", "ill"), "--label is stated by the schema"),
    "a label that is no class": (
        lambda at: node("va") if changed(at / "files/va.csv", ",yes", ",maybe") else [],
        "must hold one of the classes 'no', 'yes'",
    ),
    "a column that is not there": (
        lambda at: node("va") if changed(at / "files/va.csv", "thalach", "pulse") else [],
        "thalach",
    ),
    "a name with a blank": (lambda at: node("va", "--name", "va hospital"), "letters, digits, '-' and '_'"),
    "no question an hour": (lambda at: node("va", "--questions-per-hour", "0"), "must be a whole number >= 1"),
    "a certificate for ever": (
        lambda at: ["server", "init", "new", "--days", "99999999", *free_ports()],
        "days must be at most 7320",
    ),
    "a node to check that is none": (
        lambda at: ["node", "check", "study"],
        "A node is set up by: sottovoce node init DIR",
    ),
    "a node to start that is none": (
        lambda at: ["node", "start", "va"],
        "A node is set up by: sottovoce node init DIR",
    ),
    "no budget": (lambda at: node("va", "--epsilon", "0"), "epsilon must be"),
    "more a day than for life": (lambda at: node("va", "--epsilon-per-day", "3"), "at most epsilon"),
    "a delta of 2": (lambda at: node("va", "--delta", "2"), "delta must lie in"),
    "an unknown method": (lambda at: node("va", "--algorithm", "dp-amd"), "Did you mean 'dp-admm'?"),
    "an unknown loss": (lambda at: node("va", "--loss", "logit"), "'logit'"),
    "a host that is none": (lambda at: ["server", "init", "new", "--host", "a b", *free_ports()], "a host must be"),
    "a port in use": (
        lambda at: ["server", "init", "new", "--port", str(HELD[0].getsockname()[1])],
        "cannot be used (address already in use). Choose another with --port",
    ),
    "a port that is none": (lambda at: ["server", "init", "new", "--port", "70000"], "from 1 to 65535"),
    "one port for both": (
        lambda at: ["server", "init", "new", "--port", "9", "--operator-port", "9"],
        "different ports",
    ),
    "a server's folder that is there": (
        lambda at: ["server", "init", "study", *free_ports()],
        "exists and is not an empty folder",
    ),
    "a container without a host": (lambda at: ["server", "init", "new", "--compose", *free_ports()], "needs --host"),
    "a server's line for a node's": (lambda at: ["server", "add", "study", "study/line"], "this is a server's line"),
    "a node's line that was cut": (
        lambda at: ["server", "add", "study", cut(str(NodeLine.of("x", keys.key_pair()[1])))],
        "not whole",
    ),
    "one good line and one bad": (
        lambda at: ["server", "add", "study", str(NodeLine.of("x", keys.key_pair()[1])), "sottovoce-node y AAAA"],
        "not whole",
    ),
    "a name that another key has": (
        lambda at: ["server", "add", "study", *(str(NodeLine.of("x", keys.key_pair()[1])) for _ in "12")],
        "there is another node named 'x'",
    ),
    "one key under two names": (
        lambda at: ["server", "add", "study", *(str(NodeLine.of(name, PUBLIC)) for name in "xy")],
        "the key of 'y' is that of 'x'",
    ),
    "a folder that is no server's": (lambda at: ["server", "add", "files", "x"], "is no server's folder"),
    "a run of nodes that were not added": (
        lambda at: ["server", "train", "study", "files/run.toml"],
        "[clients] names 'cleveland', 'hungarian', 'va', whose line was not added",
    ),
    "a run file that is not there": (lambda at: ["server", "train", "study", "run.toml"], "there is no such file"),
    "a run to go on with that is none": (
        lambda at: ["server", "train", "study", "--resume", "files"],
        "no run of study goes there",
    ),
    "a status of nothing": (lambda at: ["status", "files"], "is neither a server's folder nor a node's"),
}
HELD: list[socket.socket] = []
_, PUBLIC = keys.key_pair()


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_input_gives_one_sentence_and_leaves_nothing(kind: str, place: Path) -> None:
    words, told = WRONG[kind]
    with listening() as held:
        HELD[:] = [held]
        given = words(place)
        before = sorted(place.rglob("*"))
        code, said = call(*given)
    assert code in (2, 3, 5)
    assert said.startswith("error: ")
    assert told in said
    assert sorted(place.rglob("*")) == before


def test_in_a_terminal_it_asks_and_elsewhere_it_names_the_option(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = call("node", "init", "va")
    assert (code, said) == (2, "error: node init: needs --server. In a terminal it asks for what is not given")
    monkeypatch.setattr("sottovoce.cli.node._asks", lambda: True)
    answers = "study/line\nfiles/va.csv\nfiles/schema.toml\n3\n"
    done = invoke(["node", "init", "va"], input=answers)
    assert done.exit_code == 0, done.output
    assert Node(place / "va" / "node.toml").limits.epsilon == 3.0


def test_without_a_schema_labels_and_bound_are_the_owners_word(place: Path) -> None:
    well("server", "init", "plain", *free_ports())
    (place / "rows.csv").write_text("a,b,ill\n0.1,0.2,yes\n0.3,0.4,no\n")
    usual = ["node", "init", "north", "--server", "plain/line", "--csv", "rows.csv", "--label", "ill"]
    assert "labels must name every class" in call(*usual, "--labels", "yes,none", "--row-bound", "1")[1]
    assert "row_bound" in call(*usual, "--labels", "no,yes", "--row-bound", "0.1")[1]
    assert not (place / "north").exists()
    well(*usual, "--labels", "no,yes", "--row-bound", "1")
    assert Node(place / "north" / "node.toml").rows.labels == ["yes", "no"]


@pytest.mark.parametrize(
    ("words", "told"), [(["app"], "the rows of [data]"), (["node", "start"], "file's table [server] names")]
)
def test_help_keeps_the_names_of_tables(words: list[str], told: str) -> None:
    assert told in " ".join(re.sub("[│╭╰─╮╯]", " ", well(*words, "--help")).split())


def test_the_examples_are_copied_whole_and_come_with_the_package(place: Path) -> None:
    well("examples", "copied")
    for path in EXAMPLES.glob("*.*"):
        assert (place / "copied" / "hospitals" / path.name).read_bytes() == path.read_bytes()
    assert "exists and is not an empty folder" in call("examples", "copied")[1]
    built = tomllib.loads((EXAMPLES.parents[1] / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert built["wheel"]["force-include"] == {"examples": "sottovoce/examples"}


# ------------------------------------------------------------------------------------------ what keeps them running


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd on this machine")
def test_the_units_are_ones_that_systemd_takes_and_calls_safe(place: Path) -> None:
    well("node", "init", "va & co", *node("va", "--name", "va")[3:])
    for unit in (place / "va & co" / "sottovoce-node-va.service", place / "study" / "sottovoce-server-study.service"):
        found = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
        told = [line for line in found.stderr.splitlines() if unit.name in line and "is not executable" not in line]
        assert told == []
        score = subprocess.run(
            ["systemd-analyze", "security", "--offline=true", str(unit)], capture_output=True, text=True
        )
        exposure = re.search(r"exposure level for \S+: ([0-9.]+)", score.stdout)
        assert exposure is not None, score.stdout + score.stderr
        assert float(exposure[1]) < 3.0  # "OK" in its words; without the options it is 9.6, "UNSAFE"


def test_the_compose_files_take_away_what_is_not_needed(place: Path) -> None:
    well(*node("va", "--compose"))
    well("server", "init", "inside", "--host", "server.example", "--compose", *free_ports())
    settings = tomllib.loads((place / "inside" / "server.toml").read_text())["server"]
    for name, ports in (("va", None), ("inside", [f"{settings['port']}:{settings['port']}"])):
        (service,) = yaml.safe_load((place / name / "compose.yaml").read_text())["services"].values()
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service.get("ports") == ports
    writable = [each for each in _volumes(place / "va") if not each.endswith(":ro")]
    assert writable == [f"{place}/va/memory:{place}/va/memory"]


def _volumes(folder: Path) -> list[str]:
    (service,) = yaml.safe_load((folder / "compose.yaml").read_text())["services"].values()
    return service["volumes"]


@pytest.mark.parametrize(("group", "asks"), [("", True), ("os.setpgid(0, 0); ", False)])
def test_in_a_terminals_background_nothing_is_asked(group: str, asks: bool) -> None:
    """`node init ... --start &`: who reads from a terminal there is stopped by the operating system."""
    work = f"import os; {group}from sottovoce.cli.node import _asks; os._exit(int(_asks()))"
    process, terminal = pty.fork()
    if process == 0:  # the leader of a session, whose terminal this is; its child may be in the background
        os._exit(subprocess.run([sys.executable, "-c", work]).returncode)
    _, status = os.waitpid(process, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == asks

"""Every command that the docs print is run, as printed and in its page's order, or it is said why not.

Our own program is called in this process, with the words that a shell would make of the line: starting it is tested in
`cli/test_cli.py`. Other programs are started by a shell.

A section of a page starts in a folder that looks like a fresh clone with `.venv` in it, and has the files that its text
takes for granted.
"""

import contextlib
import os
import random
import re
import shlex
import shutil
import socket
import subprocess
import sys
from functools import cache
from glob import glob
from pathlib import Path

import numpy as np
import pytest

from sottovoce.cli import demo
from sottovoce.deploy import keys, setup_node, setup_server
from sottovoce.deploy.lines import NodeLine
from sottovoce.experiment.tables import to_toml
from sottovoce.problems import data as datasets
from sottovoce.report import style
from tests.command_line import invoke
from tests.experiment.test_experiment import tiny_tables, write_csv
from tests.test_docs import PAGES, ROOT, blocks

NOT_RUN = {  # how a command starts, and why it is left out
    r"make \w+": "sets up .venv from a package index; what comes after is run here (demo) or is this very run (test)",
    r"python3 -m venv": "as `make` does before any test runs",
    r"(\.venv/bin/)?pip install": "needs a package index",
    r"(SOTTOVOCE_NODES=\S+ )?sottovoce flower": "waits for others: deploy/test_flower_simulation.py",
    r"sottovoce (server train|node check|node start [a-z]+/)": "needs a server: deploy/test_three_hospitals.py",
    r"sottovoce server predict": "needs nodes that have trained: deploy/test_scores.py, test_machines_products.py",
    r"sottovoce node rows": "needs the records of a run: deploy/test_products_records.py",
    r"sottovoce status \S+ --web": "stays until interrupted: deploy/test_status.py",
    r"sottovoce node start \S+ --gate": "waits for others: deploy/test_node_gate.py",
    r"sudo -u": "needs another account; the gate itself is tested in deploy/test_node_gate.py",
    r"sudo (ufw|cp|systemctl)": "changes the machine's firewall or services; units are tested in deploy/test_setup.py",
}
STAYS = " --start &"  # a node that answers from then on: deploy/test_three_hospitals.py; here it is only set up
SMALLER = {  # how a command starts that needs much time or a port, and words after which it does the same with others
    r"\.venv/bin/sottovoce plan": "--rows 40 --features 8",
    r"\.venv/bin/sottovoce run examples/adult": "--rounds 5",
    r"\.venv/bin/sottovoce compare a\.toml": "--seeds 3",
    r"(\.venv/bin/)?sottovoce server init": "--port {} --operator-port {}",
}
DOCS = [*PAGES, ROOT / "CONTRIBUTING.md"]
ADULT = cache(datasets.adult)  # read once for all commands


def sections(page: Path) -> list[tuple[str, list[str]]]:
    """The headings of a page, with the commands in blocks below them: those indented or fenced as a shell's."""
    found, fence, block = [("", [])], "", True
    for line in page.read_text(encoding="utf-8").splitlines():
        block = not line or (block and line.startswith("    "))  # an indented block starts after an empty line
        if line.startswith("```"):
            fence = "" if fence else line
        elif line.startswith("#") and not fence:
            found.append((line, []))
        elif line.strip() and ((block and not fence) or fence in ("```bash", "```sh", "```console")):
            commands, command = found[-1][1], line.strip().removeprefix("$ ")
            if commands and commands[-1].endswith("\\"):
                commands[-1] = commands[-1][:-1] + command
            else:
                commands.append(command)
    return [(heading, commands) for heading, commands in found if commands]


def to_run() -> list[tuple[Path, str, list[str]]]:
    """The sections with commands to run. What an earlier one has run is not run again."""
    found, seen = [], {""}
    for page in DOCS:
        for heading, commands in sections(page):
            bare = {command: command.split(" #")[0].strip() for command in commands}
            new = [command for command in commands if bare[command] not in seen and not why_not(command)]
            seen.update(bare.values())
            found += [(page, heading, new)] if new else []
    return found


def why_not(command: str) -> str:
    return next((why for start, why in NOT_RUN.items() if re.match(start, command)), "")


def clone_with_a_readers_files(folder: Path, page: Path, commands: list[str]) -> None:
    """What pages speak of: `.venv`, the examples, own rows, and the run files that a page shows or means."""
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "benchmarks").symlink_to(ROOT / "benchmarks")
    shutil.copytree(ROOT / "examples", folder / "examples")
    write_csv(folder)
    if page.stem == "index":  # rows as its text shows them, and the file printed there
        rng = np.random.default_rng(0)
        rows = zip(rng.uniform(30, 90, 300), rng.normal(130, 15, 300), "abc" * 100, strict=True)
        lines = [f"{age:.0f},{mmhg:.1f},{'ill' if age + mmhg > 190 else 'well'},{who}" for age, mmhg, who in rows]
        (folder / "rows.csv").write_text("\n".join(["age,pressure,outcome,hospital", *lines]))
        (folder / "mine.toml").write_text(blocks(page, "toml")[0])
        return
    for name, method in (("a", "dp-admm"), ("b", "dp-sgd")):
        (folder / f"{name}.toml").write_text(to_toml(tiny_tables(algorithm={"name": method})))
    hospitals = ROOT / "examples" / "hospitals"
    for name in ("run.toml", "schema.toml"):
        shutil.copy(hospitals / name, folder)
    if any("sottovoce examples examples" in command for command in commands):  # which brings them
        shutil.rmtree(folder / "examples")
    if any("server.line" in command for command in commands):
        lines_that_came_by_mail(folder)
    if "sottovoce status study" in commands:  # of a server and a hospital that were set up before
        setup_server.make(folder / "study", [], *free_ports(), days=1, schema="", compose=False)
        choices = setup_node.NodeChoices(
            "cleveland", str(folder / "study" / "line"), hospitals / "cleveland.csv", folder / "schema.toml"
        )
        setup_node.make(folder / "cleveland", choices)


def free_ports() -> list[int]:
    """Two ports that nothing listens at, below those that systems give to outgoing connections: they stay free."""
    found: list[int] = []
    while len(found) < 2:
        port = random.randrange(20000, 32000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found += [port] if port not in found else []
    return found


def lines_that_came_by_mail(folder: Path) -> None:
    """What others sent: a server's line, and those of three hospitals; and the rows of the one who reads this."""
    hospitals = ROOT / "examples" / "hospitals"
    shutil.copy(hospitals / "cleveland.csv", folder / "rows.csv")
    made = setup_server.make(folder / "theirs", ["server.example"], *free_ports(), days=1, schema="", compose=False)
    (folder / "server.line").write_text(str(made))
    for name in ("cleveland", "hungarian", "va"):
        (folder / f"{name}.line").write_text(str(NodeLine.of(name, keys.key_pair()[1])))


def shell(command: str, folder: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path}
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def own(line: str) -> None:
    """Call our own program in the folder we are in."""
    words = [found for word in shlex.split(line) for found in (sorted(glob(word)) or [word])]
    done = invoke(words[1:])
    assert done.exit_code == 0, f"{line}\n{done.output}{done.exception!r}"


@pytest.mark.parametrize(
    ("page", "heading", "commands"),
    to_run(),
    ids=lambda value: getattr(value, "stem", value) if not isinstance(value, list) else "",
)
@pytest.mark.filterwarnings("default")
def test_commands_run_as_printed(
    page: Path, heading: str, commands: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone_with_a_readers_files(tmp_path, page, commands)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(demo.TABLES, "data", {**demo.TABLES["data"], "test": 40_000, "clients": 10})  # 5 222 rows
    monkeypatch.setattr(demo, "METHODS", demo.METHODS[:1])  # cli/test_cli.py has all of them
    monkeypatch.setattr(style, "image", lambda *_: b"a picture")  # report/ draws
    monkeypatch.setitem(datasets.LOADERS, "adult", ADULT)
    for command in commands:
        line = command.split(" #")[0].removesuffix(STAYS)
        line = line.replace("-...", "-*")  # a page's word for the name that the last command said
        more = [less.format(*free_ports()) for start, less in SMALLER.items() if re.match(start, command)]
        line = " ".join([line, *more])
        own(line) if re.match(r"(\.venv/bin/)?sottovoce ", line) else shell(line, tmp_path)


def test_no_command_is_missed() -> None:
    """Every line that starts as a command does was found, every one found is a command, and every reason is needed."""
    found = [command for page in DOCS for _, commands in sections(page) for command in commands]
    start = (
        r"(?:SOTTOVOCE_\w+=\S+ |sudo -u \w+ )?(?:\.venv/bin/)?(?:sottovoce|python3?|pip|make|sudo (?:ufw|cp|systemctl))"
    )
    assert [command for command in found if not re.match(rf"{start} ", command)] == []
    lines = re.findall(rf"^(?: +|\$ )({start} [a-z-].*?)\\?$", "\n".join(map(Path.read_text, DOCS)), re.MULTILINE)
    assert len(lines) == len(found)
    assert all(any(command.startswith(line) for command in found) for line in lines)
    assert [start for start in (*NOT_RUN, *SMALLER) if not any(re.match(start, command) for command in found)] == []

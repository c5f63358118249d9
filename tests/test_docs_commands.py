"""Every command that the docs print is run, as printed and in its page's order, or it is said why not.

Our own program is called in this process, with the words that a shell would make of the line: starting it is tested in
`cli/test_cli.py`. Other programs are started by a shell.

A section of a page starts in a folder that looks like a fresh clone with `.venv` in it, and has the files that its text
takes for granted.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from glob import glob
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from sottovoce.cli import demo
from sottovoce.cli.main import app
from sottovoce.experiment.tables import to_toml
from tests.experiment.test_experiment import tiny_tables, write_csv
from tests.test_docs import PAGES, ROOT, blocks

NOT_RUN = {  # how a command starts, and why it is left out
    r"make \w+": "sets up .venv from a package index; what comes after is run here (demo) or is this very run (test)",
    r"python3 -m venv": "as `make` does before any test runs",
    r"(\.venv/bin/)?pip install": "needs a package index",
    r"(SOTTOVOCE_NODES=\S+ )?(\.venv/bin/)?sottovoce flower": "a server that waits for nodes: deploy/test_machines.py",
    r"(\.venv/bin/)?sottovoce node start": "waits for a server for ever: deploy/test_machines.py",
    r"sudo -u": "needs another account; the gate itself is tested in deploy/test_node_gate.py",
    r"sudo ufw": "changes the firewall of the machine",
}
SMALLER = {  # how a command starts that computes for long, and words after which it does the same with less
    r"\.venv/bin/sottovoce plan": "--rows 40 --features 8",
    r"\.venv/bin/sottovoce run examples/adult": "--rounds 5",
}
DOCS = [*PAGES, ROOT / "CONTRIBUTING.md"]


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
    shutil.copy(hospitals / "run.toml", folder)
    if any("sottovoce node" in command for command in commands):
        shell(".venv/bin/python examples/hospitals/prepare.py .", folder)
    shown = [block for block in blocks(page, "toml") if "[node]" in block]
    (folder / "node.toml").write_text(shown[0] if shown else (hospitals / "node.toml").read_text())


def shell(command: str, folder: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path}
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def own(line: str) -> None:
    """Call our own program in the folder we are in."""
    words = [found for word in shlex.split(line) for found in (sorted(glob(word)) or [word])]
    done = CliRunner().invoke(app, words[1:])
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
    monkeypatch.setitem(demo.TABLES, "data", {**demo.TABLES["data"], "test": 40_000})  # 5 222 rows to train on
    for command in commands:
        line = command.split(" #")[0].replace("-...", "-*")  # a page's word for the name that the last command said
        line = " ".join([line, *(less for start, less in SMALLER.items() if re.match(start, command))])
        own(line) if re.match(r"(\.venv/bin/)?sottovoce ", line) else shell(line, tmp_path)


def test_no_command_is_missed() -> None:
    """Every line that starts as a command does was found, every one found is a command, and every reason is needed."""
    found = [command for page in DOCS for _, commands in sections(page) for command in commands]
    start = r"(?:SOTTOVOCE_\w+=\S+ |sudo -u \w+ )?(?:\.venv/bin/)?(?:sottovoce|python3?|pip|make|sudo ufw)"
    assert [command for command in found if not re.match(rf"{start} ", command)] == []
    lines = re.findall(rf"^(?: +|\$ )({start} [a-z-].*?)\\?$", "\n".join(map(Path.read_text, DOCS)), re.MULTILINE)
    assert len(lines) == len(found)
    assert all(any(command.startswith(line) for command in found) for line in lines)
    assert [start for start in (*NOT_RUN, *SMALLER) if not any(re.match(start, command) for command in found)] == []

"""docs/deploy.md, done: three hospitals on one machine by the commands it prints, and each in an account of its own."""

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from sottovoce.deploy.node import Node
from sottovoce.experiment import saved
from tests.machines import LONG
from tests.test_docs import ROOT
from tests.test_docs_commands import STAYS, free_ports, sections

PAGE = ROOT / "docs" / "deploy.md"
NAMES = ("cleveland", "hungarian", "va")
PROGRAMS = str(Path(sys.executable).parent)
MOST = 8, 4  # commands on one machine, and on each of several


@pytest.fixture(autouse=True)
def _asked_for() -> None:
    if not os.environ.get("SOTTOVOCE_MACHINES"):
        pytest.skip("starts real servers and nodes for minutes: ask for it with `make test MACHINES=1`")


def printed(heading: str) -> list[str]:
    return next(commands for title, commands in sections(PAGE) if heading in title)


def test_the_page_keeps_its_promise_of_few_commands() -> None:
    assert len(printed("Three hospitals on one machine")) <= MOST[0]
    commands = printed("On machines of their own")
    begins = [place for place, command in enumerate(commands) if command.startswith("pip install")]
    assert [end - start for start, end in zip(begins, [*begins[1:], len(commands)], strict=True)] == [MOST[1]] * 2


class Shell:
    """A shell in a folder, as somebody uses it who types what a page prints; background commands end with it."""

    def __init__(self, folder: Path, account: str = "") -> None:
        self.folder, self._account = folder, account
        self._home = folder / ".home"
        self._started: list[subprocess.Popen[bytes]] = []

    def run(self, command: str, wait: bool = True) -> str:
        """All that a command prints. One that stays is left running, and its words go to a file."""
        if not wait:
            name = re.search(r"init (\S+)|start (\S+?)(/node.toml)?$", command)
            assert name is not None
            with self.log(name[1] or name[2]).open("ab") as log:
                self._started.append(self._popen(command, log, log))
            return ""
        process = self._popen(command, subprocess.PIPE, subprocess.STDOUT)
        said = process.communicate(timeout=LONG)[0].decode()
        assert process.returncode == 0, f"{command}\n{said}"
        return said

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _popen(self, command: str, out: object, errors: object) -> subprocess.Popen[bytes]:
        kept = {name: os.environ[name] for name in ("LANG", "OMP_NUM_THREADS") if name in os.environ}
        env = {**kept, "PATH": f"{PROGRAMS}:/usr/bin:/bin", "HOME": str(self._home), "FLWR_TEST": str(self._home)}
        who = {} if not self._account else {"user": self._account, "group": pwd.getpwnam(self._account).pw_gid}
        return subprocess.Popen(
            ["bash", "-c", f"umask 077; exec {command}"],
            cwd=self.folder, env=env, stdout=out, stderr=errors, start_new_session=True, **who,  # type: ignore[call-overload]
        )  # fmt: skip

    def close(self) -> None:
        for process in self._started:
            process.send_signal(signal.SIGTERM)
        for process in self._started:
            assert process.wait(60) in (0, -signal.SIGTERM), "what is asked to end ends well"


def wait(holds: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + LONG
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.3)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.close()


def seen(folder: Path, runs: Path) -> None:
    """A result with the guarantee that the ledgers support, all three charged, and nothing refused."""
    (out,) = [path for path in runs.iterdir() if path.is_dir()]
    result = saved.load_result(out)
    assert (result.rounds, result.stopped) == (20, "")
    for name in NAMES:
        if (folder / name).exists():
            assert Node(folder / name / "node.toml").inspect().epsilon == pytest.approx(1.0, rel=1e-3)


def test_three_hospitals_on_one_machine_by_the_page_alone(shell: Shell) -> None:
    commands = [command for command in printed("Three hospitals on one machine") if not command.startswith("pip ")]
    said, ports = "", "--port {} --operator-port {}".format(*free_ports())
    for command in commands:
        if "server add" in command:  # the page says to wait for the lines
            wait(lambda: all((shell.folder / name / "line").exists() for name in NAMES), "every node has its line")
        command = f"{command} {ports}" if "server init" in command else command
        said = shell.run(command.removesuffix(" &"), wait=not command.endswith(STAYS))
    assert "round 20 of 20 done" in said
    seen(shell.folder, shell.folder / "study" / "runs")
    now = json.loads(shell.run("sottovoce status study --json"))
    assert (now["run"]["state"], [node["said"] for node in now["nodes"]]) == ("done", ["answered"] * 3)
    now = json.loads(shell.run("sottovoce status va --json"))
    assert (now["asked"], now["answered"], now["refused"]) == (20, 20, [])


@pytest.fixture
def accounts() -> Iterator[list[str]]:
    """Four accounts that are made for this test and removed after it."""
    if os.geteuid() != 0 or shutil.which("useradd") is None:
        pytest.skip("only root can make accounts")
    names = [f"sv-{name}-{os.getpid()}"[:31] for name in ("server", *NAMES)]
    try:
        for name in names:
            subprocess.run(["useradd", "--create-home", name], check=True, capture_output=True)
            (Path(pwd.getpwnam(name).pw_dir)).chmod(0o700)
        yield names
    finally:
        for name in names:
            wait(lambda name=name: removed(name), f"no process of {name} is left")


def removed(account: str) -> bool:
    """Remove an account, unless a process of it is still about to end."""
    in_use = 8
    return subprocess.run(["userdel", "--remove", account], capture_output=True).returncode != in_use


def hand_over(source: Path, target: Path, account: str) -> None:
    """What mail does: a copy that belongs to who receives it."""
    shutil.copyfile(source, target)
    shutil.chown(target, account, account)


def test_every_hospital_in_an_account_of_its_own_with_tls(accounts: list[str]) -> None:
    homes = [Path(pwd.getpwnam(account).pw_dir) for account in accounts]
    server, *hospitals = [Shell(home, account) for home, account in zip(homes, accounts, strict=True)]
    if subprocess.run(["runuser", "-u", accounts[0], "--", f"{PROGRAMS}/python", "-c", ""]).returncode != 0:
        pytest.skip("this environment cannot be read by other accounts")
    commands = printed("On machines of their own")
    begin = [place for place, command in enumerate(commands) if command.startswith("pip ")][1]
    of_server, of_hospital = commands[1:begin], commands[begin + 1 :]
    files = ROOT / "examples" / "hospitals"
    for shell, account in zip([server, *hospitals], accounts, strict=True):
        hand_over(files / "schema.toml", shell.folder / "schema.toml", account)
    hand_over(files / "run.toml", server.folder / "run.toml", accounts[0])
    try:
        init, add, train = of_server
        ports = "--port {} --operator-port {}".format(*free_ports())
        server.run(f"{init.replace('server.example', 'localhost')} {ports}")
        for name, shell, account in zip(NAMES, hospitals, accounts[1:], strict=True):
            hand_over(server.folder / "study" / "line", shell.folder / "server.line", account)
            hand_over(files / f"{name}.csv", shell.folder / "rows.csv", account)
            shell.run(of_hospital[0].replace("cleveland", name))
            hand_over(shell.folder / name / "line", server.folder / f"{name}.line", accounts[0])
        server.run(add)
        server.run("sottovoce server start study", wait=False)
        for name, shell in zip(NAMES, hospitals, strict=True):
            wait(lambda shell=shell, name=name: ready(shell, of_hospital[1].replace("cleveland", name)), "node check")
            shell.run(of_hospital[2].replace("cleveland", name), wait=False)
        now: dict[str, list[dict[str, object]]] = {"nodes": []}

        def all_there() -> bool:
            now.update(json.loads(server.run("sottovoce status study --json")))
            return all(node["there"] for node in now["nodes"])

        wait(all_there, "the status shows every node")
        assert "round 20 of 20 done" in server.run(train)
        seen(Path("/nonexistent"), server.folder / "study" / "runs")
        assert not readable(accounts[1], hospitals[1].folder / "hungarian" / "node.key")
        assert not readable(accounts[0], hospitals[1].folder / "rows.csv")
    finally:
        for shell in (*hospitals, server):
            shell.close()


def ready(shell: Shell, check: str) -> bool:
    """Whether `node check` finds nothing wrong any more: a server needs seconds to start."""
    try:
        return "✗" not in shell.run(check)
    except AssertionError:
        return False


def readable(account: str, path: Path) -> bool:
    return subprocess.run(["runuser", "-u", account, "--", "cat", str(path)], capture_output=True).returncode == 0

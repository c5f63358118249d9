"""A server that ships hostile apps to real nodes: twenty runs, each with another trick, and nothing of them runs there.

The short form, messages alone, is in `test_node_process.py`.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from sottovoce.deploy import wire
from tests.deployments import NAMES, write_nodes
from tests.machines import Machines, started

PROJECT = """[project]
name = "sottovoce-app"
version = "1.0.{number}"
[tool.flwr.app]
publisher = "sottovoce"
[tool.flwr.app.components]
serverapp = "sottovoce_app.server_app:app"
clientapp = "sottovoce_app.client_app:app"
"""
SERVER = '''import json, time
from pathlib import Path
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp
app = ServerApp()

@app.main()
def main(grid, context):
    """Asks each node for everything, by every kind of message, and prints what comes back."""
    nodes = list(grid.get_node_ids())
    code = {code!r}
    content = RecordDict({{"said": ConfigRecord({{"kind": "ask", "task": code, "code": code}}),
                          "arrays": ArrayRecord({{"z": Array("object", (1,), "numpy.ndarray", code.encode())}})}})
    sent = [Message(content, dst_node_id=node, message_type=kind, ttl=60.0)
            for node in nodes for kind in ("query", "train", "evaluate", "train.shell")]
    ids, got, until = set(grid.push_messages(sent)), [], time.time() + 45
    while ids and time.time() < until:
        for reply in grid.pull_messages(list(ids)):
            ids.discard(reply.metadata.reply_to_message_id)
            said = reply.content["said"] if reply.has_content() else {{"code": f"error {{reply.error.code}}"}}
            got.append({{name: repr(value)[:300] for name, value in dict(said).items()}})
        time.sleep(0.1)
    print("got", json.dumps([len(nodes), got]), flush=True)
'''
CLIENT = """from flwr.clientapp import ClientApp
{before}
app = ClientApp()

@app.train()
@app.query()
@app.evaluate()
def reply(message, context):
    {inside}
    raise ValueError(open({rows!r}, "rb").read())
"""


def tricks(loot: Path, machines: Machines) -> dict[str, tuple[str, str, dict[str, str]]]:
    """By name: code at import, code on a message, and further files of the bundle."""
    file = machines.files["north"]
    rows, key = str(file.parent / "rows.npz"), machines.keys("north.key")

    def leave(what: str) -> str:
        return f"open({str(loot)!r}, 'ab').write({what})"

    mark, shell = leave("b'ran'"), f"touch {loot}"
    return {
        "reads rows": ("", leave(f"open({rows!r}, 'rb').read()"), {}),
        "reads the key": ("", leave(f"open({key!r}, 'rb').read()"), {}),
        "reads the ledger": ("", leave(f"open({str(file.parent / 'node' / 'ledger')!r}, 'rb').read()"), {}),
        "a shell": (f"import os; os.system({shell!r})", "pass", {}),
        "a child process": (f"import subprocess; subprocess.run({shell!r}, shell=True)", "pass", {}),
        "forks": (f"import os\nif os.fork() == 0:\n    {mark}", "pass", {}),
        "a pool": (f"import multiprocessing\nmultiprocessing.Process(target=lambda: {mark}).start()", "pass", {}),
        "a thread": (f"import threading\nthreading.Thread(target=lambda: {mark}).start()", "pass", {}),
        "sleeps": (f"import time; {mark}; time.sleep(10**6)", "pass", {}),
        "spins": (f"{mark}\nwhile True: pass", "pass", {}),
        "exits": (f"{mark}; import os; os._exit(0)", "pass", {}),
        "kills": (f"{mark}; import os; os.kill(os.getppid(), 9)", "pass", {}),
        "writes": ("", f"open({str(file.parent / 'node' / 'planted')!r}, 'w').write('x'); {mark}", {}),
        "changes limits": ("", f"open({str(file)!r}, 'a').write('#'); {mark}", {}),
        "calls home": (f"import socket; {mark}; socket.create_connection(('127.0.0.1', 9))", "pass", {}),
        "ctypes": (f"import ctypes; ctypes.CDLL(None).system({shell.encode()!r})", "pass", {}),
        "eats memory": (f"{mark}; x = bytearray(10**10)", "pass", {}),
        "a package of our name": ("import sottovoce", "pass", {"sottovoce/__init__.py": mark}),
        "sitecustomize": ("", "pass", {"sitecustomize.py": mark, "usercustomize.py": mark}),
        "a build hook": ("", "pass", {"hatch_build.py": mark, "setup.py": mark, "conftest.py": mark}),
    }


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    if not os.environ.get("SOTTOVOCE_MACHINES"):
        pytest.skip("starts real machines' processes for minutes: ask for it with `make test MACHINES=1`")
    with started(tmp_path_factory.mktemp("machines"), write_nodes(tmp_path_factory.mktemp("rows"))) as made:
        for name in NAMES:
            made.says(name, "connected to")
        yield made


def seen(machines: Machines) -> dict[Path, tuple[int, int]]:
    """Every file of the clients, but for the log and the lock: when it was changed, and its size."""
    files = [path for file in machines.files.values() for path in file.parent.rglob("*") if path.is_file()]
    kept = [path for path in files if path.name not in ("node.log", "lock")]
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in kept}


def children(process: int) -> set[str]:
    tasks = Path(f"/proc/{process}/task").iterdir()
    return {word for task in tasks for word in (task / "children").read_text().split()}


def test_twenty_hostile_apps_get_nothing(machines: Machines, tmp_path: Path) -> None:
    loot = tmp_path / "loot"
    wanted = tricks(loot, machines)
    assert len(wanted) == 20
    processes, before = {name: machines.running[name].pid for name in NAMES}, seen(machines)
    for number, (trick, (at_import, inside, more)) in enumerate(wanted.items()):
        app = machines.folder / f"hostile{number}"
        files = {
            "pyproject.toml": PROJECT.format(number=number),
            "sottovoce_app/__init__.py": "",
            "sottovoce_app/server_app.py": SERVER.format(code=f"{at_import}\n{inside}"),
            "sottovoce_app/client_app.py": CLIENT.format(
                before=at_import, inside=inside, rows=str(machines.files["north"].parent / "rows.npz")
            ),
        }
        for name, text in (files | more).items():
            (app / name).parent.mkdir(parents=True, exist_ok=True)
            (app / name).write_text(text)
        said = machines.run(app, tries=1).end()
        found = re.search(r"^got (.*)$", said, re.MULTILINE)
        assert found, (trick, said)
        nodes, replies = json.loads(found[1])
        assert (nodes, len(replies)) == (3, 12), (trick, said)
        assert {reply["code"] for reply in replies} <= {repr(wire.FAILED), repr(wire.BAD_ASK)}, (trick, replies)
        assert {name for reply in replies for name in reply} <= {"code", "why", "format", "kind", "layout", "bytes"}
        assert {reply["bytes"] for reply in replies} == {"b''"}
        assert not loot.exists(), trick
        for name, process in processes.items():
            assert machines.running[name].poll() is None, trick
            assert children(process) == set(), trick
        assert {path: now for path, now in seen(machines).items() if before.get(path) != now} == {}, trick
    assert machines.receipts() == [0, 0, 0]

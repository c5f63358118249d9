"""How things stand at a server and at a node; the page of it, as HTTP and as a browser shows it."""

import http.client
import json
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sottovoce.deploy import keys, progress, setup_server, status
from sottovoce.deploy.lines import NodeLine
from sottovoce.deploy.node import Node
from sottovoce.deploy.server import serve
from sottovoce.deploy.status_page import StatusPage
from tests.browser import PROGRAM, WHY_NOT, browser
from tests.command_line import invoke
from tests.deploy.test_node import asks, at
from tests.deployments import NAME, NAMES, SECURE, LocalPost, deployment, write_nodes


def asked_node(folder: Path) -> Path:
    """A node that answered three questions and refused three, for two reasons."""
    file = write_nodes(folder, modes=["proven"], questions_per_hour=3, most_rounds=500)[0]
    node, first = Node(file), asks("dp-admm", SECURE, 500)[0]
    for k in (1, 2, 3, 4, 5):
        node.answer(at(first, k))
    node.answer(asks("dp-admm", SECURE, 501)[0])
    node.status()
    node.close()
    return file


def server_of(folder: Path, names: tuple[str, ...] = NAMES) -> Path:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        ports = [each.getsockname()[1] for each in (one, two)]
    setup_server.make(folder / "study", [], ports[0], ports[1], 1, "", False)
    setup_server.add(folder / "study", [str(NodeLine.of(name, keys.key_pair()[1])) for name in names])
    return folder / "study"


def test_a_node_tells_what_was_asked_answered_charged_and_refused(tmp_path: Path) -> None:
    file = asked_node(tmp_path)
    now = status.of(file)
    assert (now["kind"], now["name"]) == ("node", "north")
    assert [now[key] for key in ("asked", "answered", "charged", "questions_last_hour")] == [6, 3, 3, 3]
    inspected = Node(file).inspect()
    assert now["epsilon"] == now["epsilon_today"] == inspected.epsilon
    assert now["left"] == inspected.limit - inspected.epsilon
    by_code = {each["code"]: each for each in now["refused"]}
    assert {code: each["times"] for code, each in by_code.items()} == {"pace": 2, "limits": 1}
    assert by_code["pace"]["why"].startswith("it answers 3 questions an hour and has. Ask again in 60 minutes (")
    assert [(each["experiment"], each["answers"]) for each in now["experiments"]] == [(NAME, 3)]
    assert status.of(file.parent) == now | {"epsilon_today": now["epsilon_today"]}


def test_a_node_that_was_never_asked(tmp_path: Path) -> None:
    now = status.of(write_nodes(tmp_path)[0])
    assert (now["epsilon"], now["left"], now["asked"], now["charged"], now["refused"]) == (0.0, 100.0, 0, 0, [])


def test_what_the_log_says_of_rows_is_not_shown(tmp_path: Path) -> None:
    file = asked_node(tmp_path)
    line = "2026-01-01T00:00:00Z experiment " + NAME + " round 9: failed: data: row 17 has the label 'measles'\n"
    with (file.parent / "node" / "node.log").open("a") as log:
        log.write(line)
        log.write(line.replace("failed", "ledger"))
    now = status.of(file)
    assert {each["code"]: each["why"] for each in now["refused"]}.keys() == {"pace", "limits", "failed", "ledger"}
    assert "measles" not in json.dumps(now)
    assert "17" not in next(each["why"] for each in now["refused"] if each["code"] == "failed")


def test_a_server_tells_who_answered_and_what_they_report(tmp_path: Path) -> None:
    folder, files = server_of(tmp_path), write_nodes(tmp_path / "nodes")
    made = deployment("dp-admm", SECURE, 2)
    watched = progress.Progress(folder / progress.FILE, LocalPost(files), NAMES, 2, tmp_path / "out")
    serve(made, NAME, watched, tmp_path / "out", lambda done: watched.after_round(done.k))
    assert status.of(folder)["run"]["state"] == "interrupted"  # it did not say that it ended, and nobody is up
    watched.ended()
    now = status.of(folder)
    assert (now["kind"], now["up"], now["run"]["state"], now["run"]["round"]) == ("server", False, "done", 2)
    for node, file in zip(now["nodes"], files, strict=True):
        assert (node["said"], node["round"], node["there"]) == ("answered", 2, False)
        assert node["epsilon"] == pytest.approx(Node(file).inspect().epsilon)
    told = invoke(["status", str(folder)]).output
    assert all(name in told for name in NAMES)
    assert "done, round 2 of 2" in " ".join(told.split())
    assert json.loads(invoke(["status", str(folder), "--json"]).output) == now


def test_silent_and_refusing_nodes_are_quoted(tmp_path: Path) -> None:
    folder, files = server_of(tmp_path), write_nodes(tmp_path / "nodes")
    files[1].write_text(files[1].read_text().replace('losses = ["logistic"]', 'losses = ["squared"]'))
    post = LocalPost(files, lambda client, ask, reply: None if client == 2 else reply)
    watched = progress.Progress(folder / progress.FILE, post, NAMES, 2, tmp_path / "out")
    with pytest.raises(Exception, match="1 of 3 clients answered"):
        serve(deployment("dp-admm", SECURE, 2), NAME, watched, tmp_path / "out")
    said = [node["said"] for node in status.of(folder)["nodes"]]
    assert said[0] == "answered"
    assert said[1].startswith(("limits: this client's limits: loss", "failed: "))
    assert said[2] == "timeout: it did not answer in time"


@pytest.mark.filterwarnings("ignore:No path_separator:DeprecationWarning")  # of Flower's way to make its tables
def test_who_is_there_is_read_from_flowers_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flwr", reason="needs the extra 'flower'")
    from flwr.server.superlink.linkstate.sql_linkstate import SqlLinkState
    from flwr.supercore.object_store import ObjectStoreFactory
    from flwr.superlink.federation import NoOpFederationManager

    from sottovoce.deploy.flower import registration

    folder = server_of(tmp_path)
    store = ObjectStoreFactory(":flwr-in-memory:").store()
    state = SqlLinkState(str(folder / setup_server.STATE), NoOpFederationManager(), store)
    state.initialize()

    monkeypatch.setattr(registration, "_EVERY", 3600.0)
    registration.keep_up(lambda: state, folder / setup_server.NODES)
    nodes = {node.name: node for node in state.get_node_info()}
    assert nodes.keys() == set(NAMES)
    monkeypatch.setattr(setup_server, "listens", lambda port: True)
    assert [node["there"] for node in status.of(folder)["nodes"]] == [False, False, False]
    assert state.activate_node(nodes["south"].node_id, 30.0)
    assert [node["there"] for node in status.of(folder)["nodes"]] == [False, True, False]
    (folder / setup_server.NODES / "south.pub").unlink()
    registration._match(state, folder / setup_server.NODES, set())
    assert state.get_node_id_by_public_key(nodes["south"].public_key) is None  # it is let in no more
    setup_server.add(folder, [str(NodeLine.of("east", keys.key_pair()[1]))])
    registration._match(state, folder / setup_server.NODES, set())
    assert {node.name for node in state.get_node_info(statuses=["registered", "online", "offline"])} == {
        *("north", "west", "east")
    }
    with sqlite3.connect(folder / setup_server.STATE) as connection:
        connection.execute("DROP TABLE node")
    assert [node["there"] for node in status.of(folder)["nodes"]] == [False, False, False]


# ------------------------------------------------------------------------------------------------------------ the page


@contextmanager
def shown(now: Any) -> Iterator[StatusPage]:
    with StatusPage(now) as page:
        thread = threading.Thread(target=page.serve_forever)
        thread.start()
        try:
            yield page
        finally:
            page.shutdown()
            thread.join()


def ask(page: StatusPage, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes, Any]:
    host, port = page.address.split("/")[2].split(":")
    line = http.client.HTTPConnection(host, int(port), timeout=20)
    try:
        line.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            line.putheader(name, value)
        line.endheaders()
        reply = line.getresponse()
        return reply.status, reply.read(), reply.headers
    finally:
        line.close()


def test_the_page_answers_this_machine_and_only_to_be_read(tmp_path: Path) -> None:
    file = asked_node(tmp_path)
    with shown(lambda: status.of(file)) as page:
        word = page.address.split("/")[3]
        code, content, headers = ask(page, f"/{word}/status.json")
        assert (code, json.loads(content)["charged"]) == (200, 3)
        assert headers["Cache-Control"] == "no-store"
        for path, start in (
            (f"/{word}/", b"<!doctype"),
            (f"/{word}/page.css", b":root"),
            (f"/{word}/page.js", b'"use'),
        ):
            code, content, headers = ask(page, path)
            assert (code, content.startswith(start)) == (200, True)
            assert "default-src 'none'" in headers["Content-Security-Policy"]
        for path in ("/", "/status.json", f"/{word}x/status.json", f"/{word}/../status.json", f"/{word}/node.toml"):
            assert ask(page, path)[0] == 404
        for host in ("evil.example", f"evil.example:{page.address.split(':')[2].split('/')[0]}", ""):
            assert ask(page, f"/{word}/status.json", Host=host)[0] == 421
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
            assert ask(page, f"/{word}/status.json", method)[0] in (405, 501)
    sockets = Path("/proc/net/tcp").read_text()
    assert f"00000000:{int(page.address.split(':')[2].split('/')[0]):04X}" not in sockets


def test_an_error_is_told_and_an_unexpected_one_by_its_kind_alone(tmp_path: Path) -> None:
    def broken() -> Any:
        raise RuntimeError("row 3 holds measles")

    with shown(lambda: status.of(tmp_path / "gone")) as page:
        assert b"neither a server's folder" in ask(page, f"/{page.address.split('/')[3]}/status.json")[1]
    with shown(broken) as page:
        told = ask(page, f"/{page.address.split('/')[3]}/status.json")[1]
        assert json.loads(told) == {"error": "RuntimeError, an error of the program"}


@pytest.mark.skipif(PROGRAM is None, reason=WHY_NOT)
def test_the_page_in_a_browser_is_live_fits_and_shows_words_as_text(tmp_path: Path) -> None:
    file = asked_node(tmp_path / "nodes")
    folder = server_of(tmp_path)
    watched = progress.Progress(folder / progress.FILE, LocalPost([]), NAMES, 20, tmp_path)
    watched._clients["south"] |= {"said": "<img src=x onerror=alert(1)>", "round": 4}
    watched.after_round(4)
    with browser(tmp_path / "browser") as seen:
        for path, must in ((file, ["north", "3 of 3", "pace"]), (folder, ["south", "4 of 20", "<img src=x"])):
            with shown(lambda path=path: status.of(path)) as page:
                for width in (1200, 390):
                    for dark in (False, True):
                        seen.show(page.address, width, 800, dark)
                        until = time.monotonic() + 30
                        while "Renewed" not in seen.ask("document.body.innerText") and time.monotonic() < until:
                            time.sleep(0.05)
                        text = seen.ask("document.body.innerText")
                        assert all(words in text for words in must), text
                        assert seen.ask("document.documentElement.scrollWidth") <= width
                        ground = seen.ask("getComputedStyle(document.body).backgroundColor")
                        assert ground == ("rgb(18, 22, 28)" if dark else "rgb(255, 255, 255)")
                if path is folder:
                    watched.after_round(5)
                    until = time.monotonic() + 30
                    while "5 of 20" not in seen.ask("document.body.innerText") and time.monotonic() < until:
                        time.sleep(0.1)
                    assert "5 of 20" in seen.ask("document.body.innerText")  # it renewed itself
                    assert seen.ask("document.images.length") == 0
                assert {request.split("/")[2] for request in seen.requests} == {page.address.split("/")[2]}
                seen.requests.clear()
        assert seen.complaints == []

"""Where nodes come in from other machines, nothing but what nodes ask gets through to Flower's SuperLink."""

import asyncio
import socket
import sys
from typing import Any

import pytest

from sottovoce.core.check import InvalidInput
from sottovoce.run import superlink
from sottovoce.run.superlink import LARGEST, LARGEST_LIST, fleet_only

FLEET, CONTROL = 8700, 8701
LENGTH = (b"content-length", b"5")


def status(path: str, *headers: tuple[bytes, bytes], port: int = FLEET, kind: str = "http") -> int:
    """How a request is answered by the application 200, guarded; 0 if not at all."""
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": kind, "server": ("192.0.2.1", port), "path": path, "headers": list(headers)}
    asyncio.run(fleet_only(app, FLEET)(scope, None, send))
    return sent[0]["status"] if sent else 0


@pytest.mark.parametrize(
    "path",
    ["/v1/control/start-run", "/v1/runtime/acquire-task", "/", "", "/docs", "//v1/fleet/x", "/v1/fleet", "/V1/FLEET/"],
)
def test_what_is_no_business_of_nodes_is_not_found(path: str) -> None:
    assert status(path, LENGTH) == 404
    assert status(path, LENGTH, port=CONTROL) == 200
    assert status(f"/v1/fleet/{path}", LENGTH) == 200


def test_a_request_has_a_length_and_not_too_large_a_one() -> None:
    def of(length: int) -> tuple[bytes, bytes]:
        return b"content-length", str(length).encode()

    assert status("/v1/fleet/push-object", of(LARGEST)) == 200
    assert status("/v1/fleet/push-object", of(LARGEST + 1)) == 413
    assert status("/v1/fleet/push-messages", of(LARGEST_LIST)) == 200
    assert status("/v1/fleet/push-messages", of(LARGEST_LIST + 1)) == 413
    assert status("/v1/fleet/push-object") == 411
    assert status("/v1/fleet/push-object", (b"content-length", b"-1")) == 411
    assert status("/v1/fleet/push-object", LENGTH, of(6)) == 411


def test_nothing_but_http_comes_in() -> None:
    assert status("/v1/fleet/x", LENGTH, kind="websocket") == 0
    assert status("", kind="lifespan") == 200  # no caller's: the server itself starting


def started(monkeypatch: pytest.MonkeyPatch, *arguments: str, host: str = "127.0.0.1", keys: bool = True) -> Any:
    """What is served, and at which sockets, when Flower is given these arguments."""
    uvicorn = pytest.importorskip("uvicorn", reason="needs the extra 'flower'")
    seen: list[Any] = []

    class Server:
        def __init__(self, config: Any) -> None:
            seen.append(config)

        def run(self, sockets: list[socket.socket]) -> None:
            seen.append([each.getsockname() for each in sockets])
            for each in sockets:
                each.close()

    class Command:
        def load(self) -> Any:
            return lambda: uvicorn.run(app=App(), host=host, port=CONTROL, workers=1)

    class App:
        state = type("State", (), {"enable_supernode_auth": keys})

    monkeypatch.setattr(uvicorn, "Server", Server)
    monkeypatch.setattr(uvicorn, "Config", lambda app, **settings: app)
    monkeypatch.setattr(uvicorn, "run", None)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: [Command()])
    monkeypatch.setattr(superlink, "_listening", lambda *at: Place(at))
    monkeypatch.setattr(sys, "argv", [])
    superlink.start(list(arguments))
    return type(seen[0]).__name__, seen[1], sys.argv[1:]


class Place:
    """A socket that is not there."""

    def __init__(self, at: Any) -> None:
        self.at = at

    def getsockname(self) -> Any:
        return self.at

    def close(self) -> None:
        pass


def test_nodes_get_a_place_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [("127.0.0.1", CONTROL), ("0.0.0.0", FLEET)]
    assert started(monkeypatch, "--fleet", "0.0.0.0:8700", "--database", "x") == ("function", both, ["--database", "x"])
    assert started(monkeypatch, "--fleet=[::]:8700", "--insecure")[1][1] == ("::", FLEET)
    assert started(monkeypatch, "--insecure") == ("App", both[:1], ["--insecure"])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "server.example"])
def test_the_operators_place_is_loopback(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    with pytest.raises(InvalidInput, match=r"--host must be this machine's loopback.*let nodes in by --fleet"):
        started(monkeypatch, host=host)


@pytest.mark.parametrize("address", ["8700", ":8700", "0.0.0.0", "0.0.0.0:", "0.0.0.0:70000", "0.0.0.0:x"])
def test_an_address_is_checked(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    with pytest.raises(InvalidInput, match="--fleet must be HOST:PORT"):
        started(monkeypatch, "--fleet", address)


def test_nodes_must_have_keys_and_another_port(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="--fleet needs --enable-supernode-auth"):
        started(monkeypatch, "--fleet", "0.0.0.0:8700", keys=False)
    with pytest.raises(InvalidInput, match="--fleet must have another port than --port, got 8701"):
        started(monkeypatch, "--fleet", "0.0.0.0:8701")


def test_a_taken_port_is_said() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(InvalidInput, match=r"cannot listen at 127\.0\.0\.1"),
    ):
        superlink._listening("127.0.0.1", taken.getsockname()[1])

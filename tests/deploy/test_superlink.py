"""Where nodes come in from other machines, nothing but what nodes ask gets through to Flower's SuperLink."""

import asyncio
import socket
import sys
from typing import Any, cast

import pytest

from sottovoce.core.check import InvalidInput
from sottovoce.deploy.flower import layers, superlink
from sottovoce.deploy.flower.superlink import LARGEST, LARGEST_PIECE, fleet_only

FLEET, CONTROL = 8700, 8701
LENGTH = (b"content-length", b"5")
SETTINGS = {"http": "httptools", "ws": "none", "limit_concurrency": superlink.CONNECTIONS}.items()
WHOLE = {"type": "http.request", "body": b"12345"}


def status(
    path: str,
    *headers: tuple[bytes, bytes],
    port: int = FLEET,
    kind: str = "http",
    method: str = "POST",
    comes: Any = (WHOLE,),
) -> int:
    """How a request is answered by the application 200, guarded; 0 if not at all. `comes`: what is sent of it."""
    sent: list[Any] = []
    coming = list(comes)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if kind == "http":
            assert await receive() == WHOLE | {"more_body": False} or port == CONTROL
        await send({"type": "http.response.start", "status": 200})

    async def receive() -> Any:
        return coming.pop(0) if coming else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": kind, "server": ("192.0.2.1", port), "path": path, "method": method, "headers": list(headers)}
    asyncio.run(cast(Any, fleet_only(app, FLEET)(scope, receive, send)))
    return sent[0]["status"] if sent else 0


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/control/start-run", "/v1/runtime/acquire-task", "/", "", "/docs", "//v1/fleet/x", "/v1/fleet"),
        *("/v1/fleet/get-run", "/v1/fleet/get-fab", "/v1/fleet/register-node"),
        *("/v1/fleet/", "/V1/FLEET/pull-messages", "/v1/fleet/pull-messages/", "/v1/fleet/push-messages\n"),
        "/v1/fleet/other",
    ],
)
def test_what_is_no_business_of_nodes_is_not_found(path: str) -> None:
    assert status(path, LENGTH) == 404
    assert status(path, LENGTH, port=CONTROL) == 200
    assert status("/v1/fleet/pull-messages", LENGTH) == 200
    assert status("/v1/fleet/pull-messages", LENGTH, method="GET") == 404


def test_what_nodes_ask_is_served_but_for_the_code_of_apps_and_for_registering() -> None:
    translation = pytest.importorskip("flwr.supercore.protobuf.translation", reason="needs the extra 'flower'")
    served = {(method, path) for method, path in translation.PROTOBUF_REQUEST_TYPES if "/fleet" in path}
    left_out = {"/v1/fleet/" + name for name in ("get-run", "get-fab", "register-node", "unregister-node")}
    assert served == {("POST", path) for path in layers.FLEET | left_out}
    assert not layers.FLEET & left_out


def test_a_request_has_a_length_and_not_too_large_a_one() -> None:
    def of(length: int) -> tuple[bytes, bytes]:
        return b"content-length", str(length).encode()

    for path in layers.FLEET:
        largest = LARGEST_PIECE if path == "/v1/fleet/push-object" else LARGEST
        assert status(path, of(largest)) == 200
        assert status(path, of(largest + 1)) == 413
    assert status("/v1/fleet/push-object") == 411
    assert status("/v1/fleet/push-object", (b"content-length", b"-1")) == 411
    assert status("/v1/fleet/push-object", LENGTH, of(6)) == 411
    assert status("/v1/fleet/push-object", LENGTH, (b"transfer-encoding", b"chunked")) == 411


@pytest.mark.parametrize("path", ["/v1/fleet/push-object", "/v1/fleet/pull-messages"])
def test_a_request_that_does_not_come_is_not_waited_for(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(superlink, "SECONDS", 0.1)
    half = [{"type": "http.request", "body": b"12", "more_body": True}]
    rest = {"type": "http.request", "body": b"345", "more_body": False}
    assert status(path, LENGTH, comes=half) == 408
    assert status(path, LENGTH, comes=[*half, {"type": "http.disconnect"}]) == 408
    assert status(path, LENGTH, comes=[*half, rest]) == 200


def test_large_requests_are_read_a_few_at_a_time() -> None:
    """The others wait, and all of them are answered."""
    reading, most, answered = 0, 0, 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal answered, reading
        answered += 1
        reading -= 1

    async def receive() -> Any:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        await asyncio.sleep(0)
        return WHOLE

    async def all_at_once(path: str) -> None:
        guarded = fleet_only(app, FLEET)
        scope = {"type": "http", "server": ("", FLEET), "path": path, "method": "POST", "headers": [LENGTH]}
        await asyncio.gather(*(guarded(scope, receive, cast(Any, None)) for _ in range(50)))

    asyncio.run(all_at_once("/v1/fleet/push-object"))
    assert (most, answered) == (superlink.PIECES, 50)
    asyncio.run(all_at_once("/v1/fleet/pull-messages"))
    assert most == 50


def test_nothing_but_http_comes_in() -> None:
    assert status("/v1/fleet/pull-messages", LENGTH, kind="websocket") == 0
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
        user_middleware: tuple[()] = ()

    monkeypatch.setattr(uvicorn, "Server", Server)
    monkeypatch.setattr(uvicorn, "Config", lambda app, **settings: app if settings.items() >= SETTINGS else settings)
    monkeypatch.setattr(uvicorn, "run", None)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: [Command()])
    monkeypatch.setattr(superlink, "_listening", lambda *at: Place(at))
    monkeypatch.setattr(superlink, "_say_why_not_activated", lambda: None)  # changes Flower itself
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

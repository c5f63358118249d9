"""A SuperLink as it is started: where it listens, and what strangers get who come in where nodes do."""

import contextlib
import os
import socket
import ssl
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

from sottovoce.deploy.flower import superlink
from tests.machines import Machines, processes_of, talk

NEVER = {"FLWR_INTERNAL_GRPC_CONTROL_API": "1", "FLWR_INTERNAL_GRPC_FLEET_API": "1"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in NEVER.items():  # which would open gRPC ports to all the world
            patch.setenv(variable, value)
        made = Machines(tmp_path_factory.mktemp("server"), {})
        try:
            made.start_server()
            assert made.post(made.control, "/v1/control/list-runs") == 200  # it has all it opens
            yield made
        finally:
            made.close()


def listening(processes: list[int]) -> set[tuple[str, int]]:
    """Where these processes listen, over IPv4 or IPv6: /proc's hexadecimal address, and port."""
    own = set()
    for process in processes:
        with contextlib.suppress(OSError):
            own |= {os.readlink(link) for link in Path(f"/proc/{process}/fd").iterdir()}
    lines = [line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()]
    at = {line[1] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in own}
    return {(address, int(port, 16)) for address, port in (each.split(":") for each in at)}


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux's /proc")
def test_it_listens_where_it_was_told_to_and_nowhere_else(server: Machines) -> None:
    """And no variable opens more."""
    assert listening(processes_of(server.home("server"))) == {("0100007F", server.control), ("0100007F", server.port)}


def test_an_old_protocol_is_refused_by_the_server(server: Machines) -> None:
    """The client speaks TLS 1.1, and would; it is the server that ends it."""
    old = ssl.create_default_context(cafile=server.keys("ca.crt"))
    old.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    for port in (server.port, server.control):
        with pytest.raises(ssl.SSLError) as refused:
            talk(port, old)
        assert refused.value.reason in ("TLSV1_ALERT_PROTOCOL_VERSION", "UNEXPECTED_EOF_WHILE_READING")
    old.maximum_version = old.minimum_version = ssl.TLSVersion.TLSv1_2
    talk(server.port, old)


def heard(server: Machines, request: str, body: bytes = b"") -> str:
    """The first line that is answered to these words, which are sent as they are; "" if the line is closed."""
    trusted = ssl.create_default_context(cafile=server.keys("ca.crt"))
    with (
        socket.create_connection(("127.0.0.1", server.port), 30) as line,
        trusted.wrap_socket(line, server_hostname="localhost") as secure,
    ):
        secure.sendall(in_bytes(request) + body)
        return secure.recv(2**16).decode().partition("\r\n")[0]


def in_bytes(request: str) -> bytes:
    return request.replace("\n", "\r\n").encode() + b"\r\n"


def post(path: str, *headers: str) -> str:
    kind = "content-type: application/protobuf"
    return "\n".join([f"POST {path} HTTP/1.1", "host: x", kind, *headers, ""])


def test_what_looks_like_a_nodes_request_is_refused_unread(server: Machines) -> None:
    length = f"content-length: {superlink.LARGEST + 1}"
    many = b"\x12\x00" * (superlink.LARGEST // 2)  # as Flower would read it, a message each
    assert "401" in heard(server, post("/v1/fleet/push-messages", "content-length: 4"), many[:4])
    assert "413" in heard(server, post("/v1/fleet/push-messages", length))
    for path in ("/v1/fleet/push-messages%0A", "/v1/fleet/push-messages%0a", "/v1/fleet/push-messages/"):
        assert "404" in heard(server, post(path, "content-length: 4"), many[:4])
    assert "404" in heard(server, "GET /v1/fleet/push-messages HTTP/1.1\nhost: x\n")
    chunked = post("/v1/fleet/push-object", "content-length: 4", "transfer-encoding: chunked")
    assert heard(server, chunked, b"4\r\n\x12\x00\x12\x00\r\n0\r\n\r\n").partition(" ")[2][:3] in ("400", "411")
    upgrade = (
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        "sec-websocket-key: " + "A" * 24,
    )
    asked = "\n".join(["GET /v1/fleet/push-messages HTTP/1.1", "host: x", *upgrade, ""])
    assert "404" in heard(server, asked)


@pytest.mark.parametrize("length", [2**23, 2**23 - 1], ids=["whole", "half sent"])
def test_large_bodies_take_little_memory(server: Machines, length: int) -> None:
    """Thirty-two of 8 MiB, without a key: a few are read at a time, and what Flower makes of them does not stay."""
    trusted = ssl.create_default_context(cafile=server.keys("ca.crt"))
    first = server.running["server"].pid
    before, most = resident(first), 0
    with contextlib.ExitStack() as lines:
        for _ in range(32):
            line = lines.enter_context(socket.create_connection(("127.0.0.1", server.port), 30))
            secure = lines.enter_context(trusted.wrap_socket(line, server_hostname="localhost"))
            secure.sendall(in_bytes(post("/v1/fleet/push-object", f"content-length: {2**23}")))
            secure.settimeout(0.3 if length < 2**23 else 30)
            with contextlib.suppress(TimeoutError):  # one that waits for its place takes no more
                secure.sendall(bytes.fromhex("1200") * 2**22 if length == 2**23 else bytes(length))
                assert length < 2**23 or b"401" in secure.recv(99)
            most = max(most, resident(first) - before)
    assert most < 28 * superlink.PIECES * 2**20
    assert "401" in heard(server, post("/v1/fleet/push-messages", "content-length: 0"))


def resident(process: int) -> int:
    """Bytes of memory."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

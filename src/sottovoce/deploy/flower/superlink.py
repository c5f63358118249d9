"""Flower's SuperLink with a door of its own for nodes: what comes in by it reaches what nodes use, and nothing else.

Flower 1.41 serves three things on one port: what nodes use (Fleet), what the operator uses (Control: start and stop
runs, register nodes) and what app processes use (Runtime), and asks keys of nodes alone. So that port stays on
loopback, and nodes of other machines come in by a second one, `--fleet HOST:PORT`, whose requests are looked at first.

Flower reads a whole request before it asks who sent it. So what a stranger can make the server hold is bounded here:
bytes of a request, seconds for them to come, and how many of the large ones are read at a time.
"""

import asyncio
import gc
import ipaddress
import logging
import socket
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sottovoce.core import check
from sottovoce.deploy.flower import registration
from sottovoce.deploy.flower.layers import FLEET, lighten
from sottovoce.deploy.flower.registration import log
from sottovoce.deploy.lines import host_and_port
from sottovoce.deploy.services import NO_FLOWER

if TYPE_CHECKING:
    from fastapi import FastAPI
    from flwr.proto.fleet_pb2 import ActivateNodeRequest, ActivateNodeResponse
    from flwr.server.superlink.linkstate import LinkState
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PIECE, LARGEST_PIECE = "/v1/fleet/push-object", 2**23  # bytes; Flower cuts arrays into pieces of 5 MiB
LARGEST = 2**15  # of any other: the longest is push-messages, which names a message's pieces, 70 bytes for each
PIECES = 8  # that are read at a time; others wait
HELD = PIECES * LARGEST_PIECE  # bytes of pieces after which memory is tidied up
SECONDS = 60.0  # for a request to come in
CONNECTIONS = 1000  # beyond it requests get a 503; a service may usually have 1024 files open

UNKNOWN_KEY, KEY_IN_USE = "unknown-key", "key-in-use"  # why a node is not let in: told to who signs with that key


def fleet_only(app: "ASGIApp", port: int) -> "ASGIApp":
    """The ASGI application `app`; what comes in by `port` reaches the nodes' part of it alone, whole and not large."""
    places, held = asyncio.Semaphore(PIECES), 0

    async def guarded(scope: "Scope", receive: "Receive", send: "Send") -> None:
        nonlocal held
        if scope["type"] == "lifespan" or scope["server"][1] != port:
            await app(scope, receive, send)
            return
        refused = _refusal(scope)
        if not refused:
            large = scope["path"] == _PIECE
            async with places if large else nullcontext():
                body = await _whole(receive)
                if body is not None:
                    copied = {**scope, "state": dict(scope.get("state", {}))}  # `scope` stays with the connection
                    await app(copied, _read_before(body, receive), send)
            held += len(body or b"") if large else 0
            if held >= HELD:
                held = 0
                gc.collect()  # Flower's objects of a request point at each other, and hold its body until then
            if body is not None:
                return
            refused = 408
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": refused, "headers": [(b"connection", b"close")]})
            await send({"type": "http.response.body"})

    return guarded


def _refusal(scope: "Scope") -> int:
    """The HTTP status to refuse a request with that no node makes; 0 for the others."""
    if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] not in FLEET:
        return 404
    lengths = [value for name, value in scope["headers"] if name == b"content-length"]
    coded = any(name == b"transfer-encoding" for name, _ in scope["headers"])
    if coded or len(lengths) != 1 or not lengths[0].isdigit():
        return 411  # without it a request has no end that could be known
    return 413 if int(lengths[0]) > (LARGEST_PIECE if scope["path"] == _PIECE else LARGEST) else 0


async def _whole(receive: "Receive") -> bytes | None:
    """The body of a request; None if it does not come in time, or its sender hangs up."""
    parts = []
    with suppress(TimeoutError):
        async with asyncio.timeout(SECONDS):
            while (message := await receive())["type"] == "http.request":
                parts.append(message.get("body", b""))
                if not message.get("more_body", False):
                    return b"".join(parts)
    return None


def _read_before(body: bytes, receive: "Receive") -> "Receive":
    """What an application receives of a request whose body is here already."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> "Message":
        return first.pop() if first else await receive()

    return again


def start(arguments: list[str]) -> None:
    """Run Flower's own command with these arguments, except `--fleet` and `--nodes`, which are handled here."""
    from importlib.metadata import entry_points

    fleet, nodes, rest = _own_options(arguments)
    commands = entry_points(group="console_scripts", name="flower-superlink")
    if not commands:
        raise check.MissingData(NO_FLOWER)
    import uvicorn

    log.setLevel(logging.INFO)
    log.addHandler(logging.StreamHandler())

    def run(app: "FastAPI", host: str, port: int, **settings: Any) -> None:
        rule = "--host must be this machine's loopback: whoever reaches it can start any app, here and on every node"
        hint = "Leave --host out, and let nodes in by --fleet 0.0.0.0:PORT"
        check.require(_is_loopback(host), "flower superlink", rule, host, hint)
        entrance: ASGIApp = app
        sockets = [_listening(host, port)]
        lighten(app)
        if fleet is not None:
            known, apart = app.state.enable_supernode_auth, fleet[1] != port
            check.require(known, "flower superlink", "--fleet needs --enable-supernode-auth: else any node may join")
            check.require(apart, "flower superlink", "--fleet must have another port than --port", port)
            sockets.append(_listening(*fleet))
            log.info("nodes come in at %s, port %d", *fleet)
            entrance = fleet_only(app, fleet[1])
        log.info("the operator's commands come in at %s, port %d, from this machine alone", host, port)
        if nodes is not None:
            registration.keep_up(app.state.linkstate_factory.state, nodes)
        # One parser of requests, which refuses a body of two lengths; and no other protocol beside it.
        settings |= {"http": "httptools", "ws": "none", "limit_concurrency": CONNECTIONS}
        with suppress(KeyboardInterrupt):
            uvicorn.Server(uvicorn.Config(entrance, host=host, port=port, **settings)).run(sockets)

    uvicorn.run = run  # which is how Flower 1.41 starts to serve
    _say_why_not_activated()
    sys.argv = ["flower-superlink", *rest]
    next(iter(commands)).load()()


def _say_why_not_activated() -> None:
    """Flower refuses an unknown key and one that is in use by the same words; who has the key is told which it was."""
    from flwr.supercore.error import FlowerError
    from flwr.superlink.servicer.fleet import fleet_handlers

    activate = fleet_handlers.activate_node

    def activate_or_say_why(request: "ActivateNodeRequest", state: "LinkState") -> "ActivateNodeResponse":
        try:
            return activate(request=request, state=state)
        except FlowerError as error:
            known = state.get_node_id_by_public_key(request.public_key) is not None
            error.public_details = KEY_IN_USE if known else UNKNOWN_KEY
            raise

    fleet_handlers.activate_node = activate_or_say_why


def _own_options(arguments: list[str]) -> tuple[tuple[str, int] | None, Path | None, list[str]]:
    """The address that --fleet names, the folder that --nodes names, and the other arguments."""
    import argparse

    parser = argparse.ArgumentParser("sottovoce flower superlink", add_help=False, allow_abbrev=False)
    parser.add_argument("--fleet")
    parser.add_argument("--nodes", type=Path)
    known, rest = parser.parse_known_args(arguments)
    rule = "--fleet must be HOST:PORT, such as 0.0.0.0:8700"
    fleet = None if known.fleet is None else host_and_port(known.fleet, "flower superlink", rule)
    return fleet, known.nodes, rest


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    return False


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise check.InvalidInput(f"flower superlink: cannot listen at {host}:{port} ({error})") from None

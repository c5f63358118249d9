"""Requests that take the short way through Flower's server are answered as they are by the long one."""

import asyncio
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra 'flower'")

import httpx
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PullMessagesRequest
from flwr.proto.node_pb2 import Node
from flwr.superlink.main import create_app

from sottovoce.deploy.flower import layers

KIND = {"content-type": "application/protobuf"}
PATHS = (*sorted(layers.WHOLE), "/v1/fleet/get-run", "/v1/control/stop-run", "/nowhere")
BODIES = (
    b"",
    b"\xff no protobuf",
    ActivateNodeRequest(public_key=b"nobody's", heartbeat_interval=30.0).SerializeToString(),
    PullMessagesRequest(node=Node(node_id=7)).SerializeToString(),
)


def answers(app: Any) -> list[tuple[str, int, bytes, list[tuple[str, str]]]]:
    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            given = [(path, headers, body) for path in PATHS for headers in (KIND, {}) for body in BODIES]
            told = [await client.post(path, headers=headers, content=body) for path, headers, body in given]
            return [*told, *[await client.get(path) for path in PATHS]]

    return [(str(r.url), r.status_code, r.content, sorted(r.headers.multi_items())) for r in asyncio.run(ask())]


def test_the_short_way_answers_as_the_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused and by which words. (What is served, every test with real processes shows.)"""
    long, short = create_app(), create_app()
    layers.lighten(short)
    expected = answers(long)
    assert answers(short) == expected
    assert {status for _, status, *_ in expected} >= {400, 401, 404, 405, 415}

    async def long_way(*_: object) -> None:
        raise AssertionError("this one was to be called")

    monkeypatch.setattr("starlette.middleware.base.BaseHTTPMiddleware.__call__", long_way)
    shortened = [answer for answer in expected if answer[0].removeprefix("http://server") in layers.WHOLE]
    taken = [answer for answer in answers(short) if answer[0].removeprefix("http://server") in layers.WHOLE]
    assert taken == shortened

"""Flower's server passes every request through nine layers. Here what nodes and runs ask of it costs less on the way.

A layer of Starlette's is a function `dispatch(request, call_next)`. Starlette runs each in tasks of its own, joined by
streams, so that a response can be sent while it is being made; nine of them cost more than a node's request itself.
What nodes and the server's half of a run ask is answered in one piece. For them the same functions are called, in the
same order, and that is all.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_MESSAGES = ("pull-messages", "push-messages", "push-object", "pull-object", "confirm-message-received")
_OF_NODES = ("activate-node", "deactivate-node", "send-node-heartbeat", *_MESSAGES)
_OF_RUNS = ("get-nodes", "acquire-task", *_MESSAGES)  # what a run's server half asks, and what looks for runs to start
FLEET = frozenset(f"/v1/fleet/{name}" for name in _OF_NODES)
WHOLE = FLEET | {f"/v1/runtime/{name}" for name in _OF_RUNS}


def lighten(app: "FastAPI") -> None:
    """Make the layers of this FastAPI application light, before its first request."""
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware

    app.user_middleware = [
        Middleware(_Light, layer, *args, **options) if issubclass(layer, BaseHTTPMiddleware) else middleware
        for middleware in app.user_middleware
        for layer, args, options in [middleware]
    ]


class _Light:
    """An ASGI application with one layer around it."""

    def __init__(
        self, app: "ASGIApp", layer: "Callable[..., BaseHTTPMiddleware]", *args: object, **options: object
    ) -> None:
        self._app, self._layer = app, layer(app, *args, **options)

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] != "http" or scope["path"] not in WHOLE:
            await self._layer(scope, receive, send)
            return
        from starlette.requests import Request
        from starlette.responses import Response

        async def call_next(request: "Request") -> Response:
            sent: list[Message] = []

            async def keep(message: "Message") -> None:
                sent.append(message)

            await self._app(scope, receive, keep)
            response = Response(b"".join(part.get("body", b"") for part in sent[1:]), sent[0]["status"])
            response.raw_headers = sent[0]["headers"]
            return response

        response = await self._layer.dispatch_func(Request(scope, receive), call_next)
        await response(scope, receive, send)

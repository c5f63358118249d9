"""Whether a server lets a node in, found out without joining it.

Flower looks at a node's key before it looks at the heartbeat that the node promises. So a request to join with a
heartbeat that is not allowed is refused for its key if that is unknown, and for its heartbeat if it is known; neither
changes anything at the server, nor disturbs a node that is connected by that key.
"""

from datetime import UTC, datetime
from typing import NamedTuple

import httpx
from flwr.proto.fleet_pb2 import ActivateNodeRequest
from flwr.supercore.error import ApiErrorCode, FlowerError

from sottovoce.deploy.connection import Connection
from sottovoce.deploy.flower.line import Line, Trouble, wrong_clock


class Probed(NamedTuple):
    """What a server that can be reached says to a node's key."""

    known: bool
    clock: str  # how this machine's clock differs from the server's, as a sentence; "" if it does not


def probe(connection: Connection) -> Probed:
    """Raises `Trouble`, in words, if the server cannot be reached, is another one, or refuses otherwise."""
    line = Line(connection)
    answers: list[httpx.Response] = []

    def joined() -> None:
        try:
            line.fleet.ActivateNode(ActivateNodeRequest(public_key=line.public_key, heartbeat_interval=-1.0))
        except httpx.HTTPStatusError as error:
            answers.append(error.response)
            raise

    try:
        line.call(joined)
    except Trouble:
        if not answers:
            raise
        clock = wrong_clock(answers[0].headers.get("date", ""), datetime.now(UTC))
        refusal = FlowerError.from_json(answers[0].text[: 2**16])
        code = None if refusal is None else refusal.code
        if code == ApiErrorCode.FLEET_INVALID_HEARTBEAT_INTERVAL:
            return Probed(True, clock)
        if code == ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED or clock:
            return Probed(False, clock)
        raise
    finally:
        line.close()
    return Probed(True, "")  # it was let in after all, which Flower 1.41 does not do

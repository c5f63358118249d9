"""A client's line to its server: Flower's fleet protocol over HTTPS, with what comes in bounded, and errors in words.

The parts are Flower's own: its HTTP client, which knows the requests, and its signatures. Around them here:

* no redirect is followed, for a false server could send signed requests elsewhere by one;
* a response says how long it is, is at most 8 MiB, is not compressed, and has a minute to come in whole;
* every error becomes a sentence that says what to do, and nothing here ends the process.

`get-run` and `get-fab`, by which a SuperNode fetches the code that a server wants it to run, are never called.
"""

import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.proto.fleet_pb2 import ActivateNodeRequest, DeactivateNodeRequest
from flwr.supercore.error import ApiErrorCode, FlowerError
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.runtime_version_compatibility import RuntimeVersionMetadata
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from sottovoce.core import check
from sottovoce.core.files import read_bytes
from sottovoce.deploy import wire
from sottovoce.deploy.flower.superlink import KEY_IN_USE, UNKNOWN_KEY
from sottovoce.deploy.keys import read_private
from sottovoce.deploy.lines import Connection

LARGEST, SECONDS = 2**23, 60.0  # bytes of a response, and the time it has
_CLOCK = 8.0  # seconds that clocks may differ: Flower refuses what is signed 10 s in its future
_BUSY = (500, 502, 503, 504)  # what a server says that may say otherwise in a moment
Request = ParamSpec("Request")
Got = TypeVar("Got")


class Trouble(check.SottovoceError):
    """The server cannot be asked, or refuses; `passing` if the same request may go through in a moment.

    `response`: what it refused with, if it could be asked.
    """

    def __init__(self, why: str, passing: bool = False, response: httpx.Response | None = None) -> None:
        super().__init__(why)
        self.passing, self.response = passing, response


class Line:
    """A connection to one server, by one key. Close it when done."""

    def __init__(self, connection: Connection) -> None:
        self.address, key = connection.address, _key(connection)
        self.public_key = public_key_to_bytes(key.public_key())
        version = RuntimeVersionMetadata.from_local_component("SuperNode")
        signing = [NodeAuthHttpInterceptor(key, key.public_key())]
        self.fleet = FleetHttpClient.from_server_address(
            self.address, insecure=False, root_certificates=None, interceptors=signing
        )
        self.fleet._client.close()
        self.fleet._client = httpx.Client(
            verify=_trusting(connection),
            timeout=30.0,
            follow_redirects=False,
            # Its version goes with every request. Flower's own way to say it ends the process where versions differ.
            headers={"accept-encoding": "identity", **dict(version.as_metadata())},
            event_hooks={"response": [_bounded]},
        )

    def close(self) -> None:
        self.fleet.close()

    def leave(self, request: DeactivateNodeRequest) -> None:
        """Tell the server that this client goes, if it can be told in a few seconds."""
        before, self.fleet._client.timeout = self.fleet._client.timeout, 5.0
        with suppress(Trouble):
            self.call(self.fleet.DeactivateNode, request)
        self.fleet._client.timeout = before

    def call(self, work: Callable[Request, Got], *request: Request.args, **options: Request.kwargs) -> Got:
        """What a request of `fleet` returns; or `Trouble`, in words."""
        try:
            return work(*request, **options)
        except httpx.HTTPStatusError as error:
            raise Trouble(*_refused(error.response), error.response) from None
        except httpx.TransportError as error:
            raise Trouble(f"{self.address} cannot be reached: {_reason(error)}", passing=True) from None
        except (httpx.HTTPError, ValueError) as error:  # what came in is no response of this protocol
            why = f"{self.address} answers what no SuperLink does ({type(error).__name__})"
            raise Trouble(why, passing=True) from None


class _Bounded(httpx.SyncByteStream):
    """A body that is refused once it is too long or takes too long."""

    def __init__(self, stream: httpx.SyncByteStream) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        size, until = 0, time.monotonic() + SECONDS
        for part in self._stream:
            size += len(part)
            if size > LARGEST or time.monotonic() > until:
                raise Trouble("the server's response is too long, or takes too long to come")
            yield part

    def close(self) -> None:
        self._stream.close()


def _bounded(response: httpx.Response) -> None:
    """Called with every response before its body is read."""
    if response.is_redirect:
        raise Trouble("the server sends this client elsewhere (a redirect), and that is never followed")
    length = response.headers.get("content-length", "")
    if "content-encoding" in response.headers or not length.isdigit() or int(length) > LARGEST:
        size = wire.printable(length, 20) or "unknown"
        raise Trouble(f"the server announces a response of {size} bytes, or a coded one; at most {LARGEST} are read")
    assert isinstance(response.stream, httpx.SyncByteStream)  # of a client that waits
    response.stream = _Bounded(response.stream)


def _key(connection: Connection) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_ssh_private_key(read_private(Path(connection.key)), None)
    except (ValueError, TypeError) as error:
        raise check.InvalidInput(f"{connection.key}: must be a private key in OpenSSH's form ({error})") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        hint = 'Make one with: ssh-keygen -t ecdsa -b 384 -N "" -f node.key'
        raise check.InvalidInput(f"{connection.key}: must be an ECDSA key. {hint}")
    return key


def _trusting(connection: Connection) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        content = read_bytes(Path(connection.certificate), missing="the certificate cannot be read (no such file)")
        context.load_verify_locations(cadata=content.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise check.InvalidInput(f"{connection.certificate}: must be a certificate in PEM ({error})") from None
    return context


class Probed(NamedTuple):
    """What a server that can be reached says to a node's key."""

    known: bool
    clock: str  # how this machine's clock differs from the server's, as a sentence; "" if it does not


def probe(connection: Connection) -> Probed:
    """Whether a server lets a node in, found out without joining it.

    Flower looks at a node's key before it looks at the heartbeat that the node promises. So a request to join with a
    heartbeat that is not allowed is refused for its key if that is unknown, and for its heartbeat if it is known;
    neither changes anything at the server, nor disturbs a node that is connected by that key.

    Raises `Trouble`, in words, if the server cannot be reached, is another one, or refuses otherwise.
    """
    with closing(Line(connection)) as line:
        try:
            line.call(line.fleet.ActivateNode, ActivateNodeRequest(public_key=line.public_key, heartbeat_interval=-1.0))
        except Trouble as trouble:
            if trouble.response is None:
                raise
            clock = wrong_clock(trouble.response.headers.get("date", ""), datetime.now(UTC))
            refusal = FlowerError.from_json(trouble.response.text[: 2**16])
            code = None if refusal is None else refusal.code
            if code == ApiErrorCode.FLEET_INVALID_HEARTBEAT_INTERVAL:
                return Probed(True, clock)
            if code == ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED or clock:
                return Probed(False, clock)
            raise
    return Probed(True, "")  # it was let in after all, which Flower 1.41 does not do


# ----------------------------------------------------------------------------------------------------- errors, in words


def _refused(response: httpx.Response) -> tuple[str, bool]:
    """Why a server refuses; and whether the same request may go through in a moment."""
    status, error = response.status_code, FlowerError.from_json(response.text[: 2**16])
    add_it = "On the server: sottovoce server add DIR LINE, with this client's line"
    if status == 401:
        not_known = f"the server does not accept this client's key (401): is it registered there? {add_it}"
        return wrong_clock(response.headers.get("date", ""), datetime.now(UTC)) or not_known, False
    extra = None if error is None else error.public_details
    if extra == UNKNOWN_KEY:
        return f"the server does not know this client's key. {add_it}", False
    if extra == KEY_IN_USE:
        return "another node is connected by this client's key, or this one was killed less than a minute ago", False
    if error is not None and error.code == ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED:
        in_use = "another node is connected by it, or this one was killed less than a minute ago"
        return f"the server does not let this client in: its key is not registered there, or {in_use}", False
    words = f": {wire.printable(error.message, 200)}" if error is not None else ""
    return f"the server refuses (HTTP {status}{words})", status in _BUSY


def wrong_clock(date: str, now: datetime) -> str:
    """A sentence, if this machine's clock and the server's, as the header `Date` tells it, differ by too much."""
    try:
        ahead = (now - parsedate_to_datetime(date)).total_seconds()
    except (ValueError, TypeError):
        return ""
    if abs(ahead) <= _CLOCK:
        return ""
    size = f"{abs(ahead):.0f} seconds" if abs(ahead) < 120 else f"{abs(ahead) / 60:.0f} minutes"
    way = "ahead of" if ahead > 0 else "behind"
    return f"this machine's clock is {size} {way} the server's: signatures carry the time, so set it right (NTP)"


def _reason(error: Exception) -> str:
    """Why a line could not be had, of all that OpenSSL and sockets say. The same words while the reason is the same."""
    text, clock = str(error), f"as this machine's clock has it ({datetime.now(UTC):%F}; `date -u` shows the time)"
    sentences = {
        "not yet valid": f"its certificate is not valid yet, {clock}",
        "has expired": f"its certificate has expired, {clock}",
        "ostname mismatch": "its certificate is for another host",
        "IP address mismatch": "its certificate is for another host",
        "CERTIFICATE_VERIFY_FAILED": "its certificate is not signed by the authority in this client's certificate file",
        "WRONG_VERSION_NUMBER": "it speaks without TLS there, and over an insecure line nothing is said",
        "RECORD_LAYER_FAILURE": "it speaks without TLS there, and over an insecure line nothing is said",
    }
    known = next((sentence for words, sentence in sentences.items() if words in text), "")
    return known or wire.printable(text, 200) or type(error).__name__

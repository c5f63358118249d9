"""The status as a page in a browser: on this machine alone, to be looked at and nothing else.

It listens on loopback and answers GET under a path that holds a random word, which is printed once: other accounts of
the machine, and pages of other sites that a browser shows (DNS rebinding), do not know it. The page loads nothing from
elsewhere, and its script writes what nodes said as text, never as HTML.
"""

import json
import secrets
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from sottovoce.core import check
from sottovoce.core.files import packaged_text
from sottovoce.core.plain import Json
from sottovoce.experiment.whole_files import finite

HOST = "127.0.0.1"
_FILES = {
    "": ("page.html", "text/html"),
    "page.css": ("page.css", "text/css"),
    "page.js": ("page.js", "text/javascript"),
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class StatusPage(ThreadingHTTPServer):
    """A page about what `look` returns, which is called for every reading."""

    daemon_threads = True

    def __init__(self, look: Callable[[], Json], port: int = 0) -> None:
        self._look, self._word = look, secrets.token_urlsafe(16)
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            raise check.InvalidInput(f"status: port {port} cannot be used ({error}). Choose another --port") from None

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/{self._word}/"

    def answer(self, path: str, hosts: list[str]) -> tuple[int, str, bytes]:
        """Status, type and content for a path; `hosts` are the Host headers, of which there must be one, and ours."""
        if hosts not in ([f"{HOST}:{self.server_port}"], [f"localhost:{self.server_port}"]):
            return 421, "text/plain", b"This page is for this machine alone.\n"
        first, _, rest = path.removeprefix("/").partition("/")
        if not secrets.compare_digest(first.encode(), self._word.encode()):
            return 404, "text/plain", b"Open the whole address that the terminal shows.\n"
        if rest == "status.json":
            return 200, "application/json", self._status()
        if rest not in _FILES:
            return 404, "text/plain", b"There is no such page.\n"
        name, kind = _FILES[rest]
        return 200, kind, packaged_text("deploy.status_files", name).encode()

    def _status(self) -> bytes:
        try:
            status = self._look()
        except check.SottovoceError as error:
            status = {"error": str(error)}
        except Exception as error:  # its text may quote anything
            status = {"error": f"{type(error).__name__}, an error of the program"}
        return json.dumps(finite(status), allow_nan=False).encode()


class _Handler(BaseHTTPRequestHandler):
    server_version, sys_version, timeout = "sottovoce", "", 30

    def do_GET(self) -> None:
        assert isinstance(self.server, StatusPage)
        status, kind, content = self.server.answer(self.path, self.headers.get_all("host") or [])
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the address would be in it."""

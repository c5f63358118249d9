"""A headless Chromium, spoken to over the DevTools protocol on a pair of pipes: no driver and no port is needed."""

import base64
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
WHY_NOT = "no Chromium on this machine (Debian: apt-get install chromium)"
# The browser reads from 3 and writes to 4: this puts our ends there, and becomes the browser.
_PLUG = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for place, end in zip((3, 4), ends):
    os.dup2(end, place)
os.execv(sys.argv[3], sys.argv[3:])
"""
_PATIENCE = 60  # seconds until a browser that says nothing is given up


class Page:
    """One open page and all that it has complained about."""

    def __init__(self, into: int, out: int) -> None:
        self._into, self._out, self._read, self._numbers = into, out, b"", itertools.count(1)
        self._session: str | None = None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def show(self, place: Path | str, width: int, height: int, dark: bool) -> None:
        """Open a file or an address and wait until its charts are drawn."""
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._call("Page.navigate", url=place if isinstance(place, str) else place.resolve().as_uri())
        give_up = time.monotonic() + _PATIENCE
        while self.ask("document.readyState") != "complete" or self.ask("location.href") == "about:blank":
            assert time.monotonic() < give_up, "the page was not loaded"
            time.sleep(0.05)

    def theme(self, dark: bool) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def picture(self, whole: bool = False) -> bytes:
        """A PNG of what is seen, or of all of the page."""
        shot = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(shot["data"])

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            heard = self._next()
            if heard.get("id") == number:
                assert "error" not in heard, heard
                return heard["result"]
            self._listen(heard)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            part = os.read(self._into, 1 << 20)
            assert part, "the browser has ended"
            self._read += part
        one, _, self._read = self._read.partition(b"\0")
        return json.loads(one)

    def _listen(self, event: dict[str, Any]) -> None:
        told = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(str(told["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if told["type"] in ("error", "warning", "assert"):
                self.complaints.append(str(told["args"]))
            case "Log.entryAdded" if told["entry"]["level"] in ("error", "warning"):
                self.complaints.append(told["entry"]["text"])
            case "Page.javascriptDialogOpening":
                self.complaints.append(f"dialog: {told['message']}")
                self._call("Page.handleJavaScriptDialog", accept=True)
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A page of a browser of its own, which keeps its things in `folder`."""
    assert PROGRAM is not None
    (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
    options = ["--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
    options += ["--disable-dev-shm-usage", "--disable-background-networking", f"--user-data-dir={folder}"]
    if os.geteuid() == 0:
        options.append("--no-sandbox")  # which root cannot have; the only pages opened are our own
    command = [sys.executable, "-c", _PLUG, str(theirs_in), str(theirs_out), PROGRAM, *options]
    started = subprocess.Popen(
        command, pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Page(ours_in, ours_out)
    finally:
        os.close(ours_out)  # at which it ends
        try:
            started.wait(timeout=20)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()
        os.close(ours_in)

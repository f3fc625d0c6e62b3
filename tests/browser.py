"""Headless Chromium for tests, driven over a pipe with its DevTools protocol: no driver to install, no port to open."""

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--disable-dev-shm-usage", "--remote-debugging-pipe",
)  # fmt: skip


# the pipe's ends must be numbers 3 and 4; they pass through two free numbers, since one may be the other's place
LAUNCH = """
import os, sys
reads, writes = os.dup(int(sys.argv[1])), os.dup(int(sys.argv[2]))
os.dup2(reads, 3), os.dup2(writes, 4), os.set_inheritable(3, True), os.set_inheritable(4, True)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Page:
    """One tab. `faults` are console errors and uncaught exceptions, `requests` every address it asked for."""

    def __init__(self, to: IO[bytes], back: IO[bytes]):
        self.to, self.back = to, back
        self.rest, self.number, self.session = b"", 0, None
        self.faults: list[str] = []
        self.requests: list[str] = []
        self.loaded = False
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> Any:
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.to.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self._hear(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            part = self.back.read(1 << 20)
            assert part, "Chromium has gone"
            self.rest += part
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def _hear(self, event: dict[str, Any]) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.faults.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.faults.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.faults.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded = True

    def open(self, file: Path | str) -> None:
        """A file, or an address."""
        self.loaded = False
        self.send("Page.navigate", url=file if isinstance(file, str) else file.absolute().as_uri())
        end = time.monotonic() + 30
        while not self.loaded:
            assert time.monotonic() < end, "the page did not load"
            self._hear(self._read())

    def run(self, script: str) -> Any:
        """The value of an expression, promises awaited."""
        answer = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def view(self, width: int, height: int, *, dark: bool = False, mobile: bool = False) -> None:
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def key(self, name: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=name, code=name)

    def click(self, selector: str, *, shift: bool = False) -> None:
        """With the mouse, in the middle of what the selector finds, brought into view first."""
        place = f"document.querySelector({json.dumps(selector)})"
        end = time.monotonic() + 20
        while not self.run(f"Boolean({place})"):
            assert time.monotonic() < end, f"there is no {selector}"
            self.run("new Promise(done => setTimeout(done, 50))")
        self.run(f"{place}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        x, y = self.run(f"(b => [b.x + b.width / 2, b.y + b.height / 2])({place}.getBoundingClientRect())")
        hit = self.run(f"{place}.contains(document.elementFromPoint({x}, {y}))")
        assert hit, f"something lies over {selector}"
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, modifiers=8 * shift, **button)

    def type(self, text: str) -> None:
        self.send("Input.insertText", text=text)

    def download(self, selector: str, folder: Path, name: str) -> Path:
        """Click, and wait for the file."""
        self.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
        self.click(selector)
        end = time.monotonic() + 30
        while not (folder / name).exists():
            assert time.monotonic() < end, "nothing was downloaded"
            self.run("new Promise(done => setTimeout(done, 50))")
        return folder / name

    def screenshot(self, file: Path, *, whole: bool = False) -> None:
        answer = self.send("Page.captureScreenshot", captureBeyondViewport=whole, **self._clip(whole))
        file.write_bytes(base64.b64decode(answer["data"]))

    def _clip(self, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {**size, "scale": 1}}


@contextmanager
def chromium(profile: Path) -> Iterator[Page]:
    """A browser with an empty profile, ended at the end."""
    assert CHROMIUM is not None
    (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCH, str(theirs_in), str(theirs_out), CHROMIUM, *FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(theirs_in, theirs_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    with os.fdopen(ours_out, "wb", buffering=0) as to, os.fdopen(ours_in, "rb", buffering=0) as back:
        try:
            yield Page(to, back)
        finally:
            process.terminate()
            process.wait(timeout=20)

"""A headless Chromium for tests of pages, driven over the DevTools pipe.

Owns the browser process and the few commands that tests need. It talks to nothing but the
files that a test opens; what a page tries to fetch is recorded.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PATIENCE = 60.0
_KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowRight": 39, "ArrowLeft": 37}


def find_browser() -> str | None:
    """Path of a Chromium on this machine, or None."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def _far_pipe() -> tuple[int, int]:
    """A pipe whose ends are clear of the descriptors that a child is to find elsewhere."""
    far = []
    for near in os.pipe():
        far.append(fcntl.fcntl(near, fcntl.F_DUPFD_CLOEXEC, 10))
        os.close(near)
    return far[0], far[1]


class Browser:
    """A browser with one page. Use it as a context manager.

    `requests` holds the addresses that the page asked for, `errors` what it complained of.
    """

    def __init__(self, program: str) -> None:
        self._profile = tempfile.TemporaryDirectory(
            prefix="graphgate-browser-", ignore_cleanup_errors=True
        )
        self._to_browser, self._from_browser, self._process = self._start(program)
        self._number = 0
        self._buffer = b""
        self.requests: list[str] = []
        self.errors: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session: str | None = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def _start(self, program: str) -> tuple[int, int, int]:
        """Ends of both pipes and the process; DevTools wants them as descriptors 3 and 4."""
        self._session = None
        (read_in, write_in), (read_out, write_out) = _far_pipe(), _far_pipe()
        options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe")
        quiet = ("--no-first-run", "--disable-background-networking", "--disable-dev-shm-usage")
        silence = os.open(os.devnull, os.O_RDWR)
        process = os.posix_spawn(
            program,
            [program, *options, *quiet, f"--user-data-dir={self._profile.name}", "about:blank"],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, read_in, 3),
                (os.POSIX_SPAWN_DUP2, write_out, 4),
                (os.POSIX_SPAWN_DUP2, silence, 1),
                (os.POSIX_SPAWN_DUP2, silence, 2),
            ],
        )
        for descriptor in (read_in, write_out, silence):
            os.close(descriptor)
        return write_in, read_out, process

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._to_browser)
        os.close(self._from_browser)
        self._profile.cleanup()

    def open(
        self,
        page: Path,
        *,
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
        at: str = "",
    ) -> None:
        """Show a file, at one of its ids if told, and wait until it has loaded."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._call("Page.navigate", url="about:blank")
        self._call("Page.navigate", url=page.as_uri() + (f"#{at}" if at else ""))
        deadline = time.monotonic() + _PATIENCE
        while self.run("document.readyState + location.protocol") != "completefile:":
            if time.monotonic() > deadline:
                raise TimeoutError(f"{page} did not load")
            time.sleep(0.02)

    def run(self, script: str) -> Any:
        """The value of an expression in the page, awaited if it is a promise."""
        done = self._call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in done:
            raise AssertionError(done["exceptionDetails"])
        return done["result"].get("value")

    def press(self, key: str) -> None:
        """A key pressed and let go."""
        about: dict[str, Any] = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS[key]}
        if key == "Enter":
            about["text"] = "\r"
        self._call("Input.dispatchKeyEvent", type="keyDown", **about)
        self._call("Input.dispatchKeyEvent", type="keyUp", **about)
        self.run("new Promise(done => setTimeout(done, 50))")

    def type(self, text: str) -> None:
        """Text typed where the focus is."""
        self._call("Input.insertText", text=text)

    def roles(self) -> set[str]:
        """The roles that assistive technology is told of."""
        nodes = self._call("Accessibility.getFullAXTree")["nodes"]
        return {node["role"]["value"] for node in nodes if "role" in node and not node["ignored"]}

    def picture(self, path: Path) -> None:
        """A PNG of what is shown."""
        data = self._call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to_browser, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer.get("method", ""), answer.get("params", {}))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            data = os.read(self._from_browser, 1 << 20)
            if not data:
                raise ConnectionError("the browser ended")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def _note(self, method: str, facts: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(facts["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(facts["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.errors.append(facts["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and facts["type"] in ("error", "warning"):
            self.errors.append(json.dumps(facts["args"]))

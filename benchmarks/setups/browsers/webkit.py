"""WebKitGTK's small browser, driven by WebDriver on a display that nobody sees.

Automated it keeps nothing: it has no HTTP cache, only what pages and workers hold in memory and the Cache API.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from benchmarks.setups.browsers.browser import PATIENCE_S, Browser, BrowserError, Kind, Tab
from quaestor.testing.servers import HOST, free_port

_DRIVER, _DISPLAY = shutil.which("WebKitWebDriver"), shutil.which("Xvfb")
_PROGRAM = next((str(path) for path in Path("/usr/lib").glob("*/webkit2gtk-4.*/MiniBrowser")), None)
_RUN = """
    const done = arguments[arguments.length - 1];
    (async () => {SCRIPT})().then((value) => done({ value }), (error) => done({ error: String(error) }));
"""
_SCRIPT_S = 15
"""A script whose tab leaves the page never gets an answer; a call to a tab between two pages is repeated."""


class _Driver:
    """A session with the driver."""

    def __init__(self, port: int) -> None:
        self._http = httpx.Client(base_url=f"http://{HOST}:{port}", timeout=PATIENCE_S, trust_env=False)
        self._path = ""

    def begin(self) -> str:
        """Have the browser started; its version."""
        options = {"binary": _PROGRAM, "args": ["--automation"]}
        wanted = {"pageLoadStrategy": "none", "webkitgtk:browserOptions": options}
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                session = self.call("POST", "/session", capabilities={"alwaysMatch": wanted})
                break
            except httpx.ConnectError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)
        self._path = f"/session/{session['sessionId']}"
        self.call("POST", "/timeouts", script=_SCRIPT_S * 1000)
        return str(session["capabilities"]["browserVersion"])

    def call(self, method: str, path: str, **body: Any) -> Any:
        """Return the result of a command."""
        answer = self._http.request(method, self._path + path, json=body if method == "POST" else None)
        value = answer.json()["value"]
        if answer.is_error:
            raise BrowserError(f"{path}: {value['error']}: {value['message'][:1000]}")
        return value

    def close(self) -> None:
        """End the browser."""
        self.call("DELETE", "")
        self._http.close()


class _WebKit(Browser):
    keeps = False

    def __init__(self, driver: _Driver, version: str) -> None:
        self._driver, self.version = driver, version
        self._first = driver.call("GET", "/window")

    def blank(self) -> Tab:
        self._driver.call("POST", "/window", handle=self._first)  # the one that was used last may be closed
        return _Tab(self._driver, self._driver.call("POST", "/window/new", type="tab")["handle"])


class _Tab(Tab):
    def __init__(self, driver: _Driver, handle: str) -> None:
        self._driver, self._handle = driver, handle

    def navigate(self, url: str) -> None:
        self._call("POST", "/url", url=url)

    def run(self, script: str) -> Any:
        answer = self._call("POST", "/execute/async", script=_RUN.replace("SCRIPT", script), args=[])
        if "error" in answer:
            raise BrowserError(answer["error"])
        return answer.get("value")

    def close(self) -> None:
        self._call("DELETE", "/window")

    def _call(self, method: str, path: str, **body: Any) -> Any:
        self._driver.call("POST", "/window", handle=self._handle)
        return self._driver.call(method, path, **body)


@contextlib.contextmanager
def _group(command: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A program, ended with all that it has started."""
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, start_new_session=True, text=True, **(quiet | options))
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_S)


@contextlib.contextmanager
def _running(profile: Path) -> Iterator[Browser]:
    assert _DRIVER is not None
    assert _DISPLAY is not None
    display = [_DISPLAY, "-displayfd", "1", "-screen", "0", "1280x1000x24", "-nolisten", "tcp"]
    port = free_port()
    with _group(display, stdout=subprocess.PIPE) as screen:
        assert screen.stdout is not None
        with screen.stdout:
            shown = {
                "DISPLAY": f":{screen.stdout.readline().strip()}",
                "HOME": str(profile),
                "XDG_RUNTIME_DIR": str(profile),
            }
        with _group([_DRIVER, f"--port={port}"], env=os.environ | shown):
            driver = _Driver(port)
            version = driver.begin()
            try:
                yield _WebKit(driver, f"WebKitGTK/{version}")
            finally:
                driver.close()


WEBKIT = Kind(name="webkit", path=_DRIVER if _DISPLAY and _PROGRAM else None, running=_running)

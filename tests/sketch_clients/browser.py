"""Chromium without a window, driven by its DevTools protocol over two pipes."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE_S = 60
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-background-networking", "--disable-component-update", "--no-first-run",
    "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
)  # fmt: skip


class BrowserError(Exception):
    """The browser, or the page in it, reports an error."""


class Browser:
    """One running browser. Not for several threads."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._last = 0
        self._pending = b""

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """What a method of the protocol returns."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise BrowserError(answer["error"])
                result: dict[str, Any] = answer["result"]
                return result

    def tab(self, url: str) -> Tab:
        """A new tab in which a page has run its script."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        tab = Tab(self, target, self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        tab.open(url)
        return tab

    def end_workers(self, tab: Tab) -> None:
        """End all service workers, as the browser does with idle ones."""
        self.call("ServiceWorker.enable", tab.session)
        self.call("ServiceWorker.stopAllWorkers", tab.session)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._pending:
            if not select.select([self._from], [], [], PATIENCE_S)[0]:
                raise BrowserError(f"no answer within {PATIENCE_S} s")
            if not (piece := os.read(self._from, 65536)):
                raise BrowserError("the browser has ended")
            self._pending += piece
        message, _, self._pending = self._pending.partition(b"\0")
        return dict(json.loads(message))


class Tab:
    """A tab. Pages set `window.ready` when their script has run."""

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self._browser, self._target, self.session = browser, target, session

    def open(self, url: str) -> None:
        """Go to a URL, or load it again."""
        self._browser.call("Runtime.evaluate", self.session, expression="window.left = true")
        self._browser.call("Page.navigate", self.session, url=url)
        until = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(BrowserError):  # between two pages there is none
                if self.run("return !window.left && window.ready === true"):
                    return
            if time.monotonic() > until:
                raise BrowserError(f"{url} has not run its script within {PATIENCE_S} s")

    def run(self, script: str) -> Any:
        """What a script, the body of an asynchronous function, returns."""
        answer = self._browser.call(
            "Runtime.evaluate", self.session, expression=f"(async () => {{{script}}})()", awaitPromise=True, returnByValue=True
        )  # fmt: skip
        if "exceptionDetails" in answer:
            raise BrowserError(json.dumps(answer["exceptionDetails"])[:1000])
        return answer["result"].get("value")

    def close(self) -> None:
        """Close it as a user does."""
        self._browser.call("Target.closeTarget", targetId=self._target)


@contextlib.contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """A browser that keeps what it keeps under `profile`."""
    assert CHROMIUM is not None
    commands_out, commands_in = os.pipe()
    answers_out, answers_in = os.pipe()

    # The browser reads its commands from descriptor 3 and answers on 4.
    script = f'exec "$@" 3<&{commands_out} 4>&{answers_in}'
    process = subprocess.Popen(
        ["/bin/bash", "-c", script, "bash", CHROMIUM, *_FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(commands_out, answers_in), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(commands_out)
    os.close(answers_in)
    browser = Browser(commands_in, answers_out)
    try:
        yield browser
        with contextlib.suppress(BrowserError, OSError):
            browser.call("Browser.close")
        process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        os.close(commands_in)
        os.close(answers_out)

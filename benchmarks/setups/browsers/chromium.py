"""Chromium, driven by its DevTools protocol over two pipes."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.setups.browsers.browser import PATIENCE_S, PLAIN_HOST, Browser, BrowserError, Kind, Tab

_PATH = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-background-networking", "--disable-component-update", "--no-first-run",
    "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe", f"--host-resolver-rules=MAP {PLAIN_HOST} 127.0.0.1",
)  # fmt: skip
_KEY_CODES = {"Enter": 13, "Tab": 9, "ArrowLeft": 37, "ArrowRight": 39, "Home": 36}


class _Pipes:
    """The two ends that are ours."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._last = 0
        self._pending = b""

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Return the result of a method of the protocol."""
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

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._pending:
            if not select.select([self._from], [], [], PATIENCE_S)[0]:
                raise BrowserError(f"no answer within {PATIENCE_S} s")
            if not (piece := os.read(self._from, 65536)):
                raise BrowserError("the browser has ended")
            self._pending += piece
        message, _, self._pending = self._pending.partition(b"\0")
        return dict(json.loads(message))


class _Chromium(Browser):
    def __init__(self, pipes: _Pipes) -> None:
        self._pipes = pipes
        self.version = pipes.call("Browser.getVersion")["product"]

    def blank(self) -> _Tab:
        return _Tab(self._pipes, self._pipes.call("Target.createTarget", url="about:blank")["targetId"])

    def end_workers(self) -> None:
        tab = self.blank()  # any other may be closing
        tab.end_workers()
        tab.close()


class _Tab(Tab):
    def __init__(self, pipes: _Pipes, target: str) -> None:
        self._pipes, self._target = pipes, target
        self._session = pipes.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def navigate(self, url: str) -> None:
        self._call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        expression = f"(async () => {{{script}}})()"
        answer = self._call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise BrowserError(json.dumps(answer["exceptionDetails"])[:1000])
        return answer["result"].get("value")

    def run_first(self, script: str) -> None:
        self._call("Page.enable")
        self._call("Page.addScriptToEvaluateOnNewDocument", source=script)

    def front(self) -> None:
        self._call("Page.bringToFront")

    def freeze(self, *, frozen: bool) -> None:
        self._call("Page.setWebLifecycleState", state="frozen" if frozen else "active")

    def offline(self, *, off: bool) -> None:
        self._call("Network.enable")
        self._call(
            "Network.emulateNetworkConditions", offline=off, latency=0, downloadThroughput=-1, uploadThroughput=-1
        )

    def look(self, *, width: int, height: int, dark: bool) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._call("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def enter(self, text: str) -> None:
        self._call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        fields: dict[str, Any] = {"key": key, "code": key, "windowsVirtualKeyCode": _KEY_CODES[key]}
        if key == "Enter":
            fields["text"] = "\r"
        self._call("Input.dispatchKeyEvent", type="keyDown", **fields)
        self._call("Input.dispatchKeyEvent", type="keyUp", **fields)

    def picture(self, *, top: int, width: int, height: int) -> bytes:
        clip = {"x": 0, "y": top, "width": width, "height": height, "scale": 1}
        taken = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(taken["data"])

    def close(self) -> None:
        self._pipes.call("Target.closeTarget", targetId=self._target)

    def end_workers(self) -> None:
        """End those of all tabs."""
        self._call("ServiceWorker.enable")
        self._call("ServiceWorker.stopAllWorkers")

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._pipes.call(method, self._session, **params)


@contextlib.contextmanager
def _running(profile: Path) -> Iterator[Browser]:
    assert _PATH is not None
    commands_out, commands_in = os.pipe()
    answers_out, answers_in = os.pipe()

    # The browser reads its commands from descriptor 3 and answers on 4.
    script = f'exec "$@" 3<&{commands_out} 4>&{answers_in}'
    process = subprocess.Popen(
        ["/bin/bash", "-c", script, "bash", _PATH, *_FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(commands_out, answers_in), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(commands_out)
    os.close(answers_in)
    pipes = _Pipes(commands_in, answers_out)
    try:
        yield _Chromium(pipes)
        with contextlib.suppress(BrowserError, OSError):
            pipes.call("Browser.close")
        process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        os.close(commands_in)
        os.close(answers_out)


CHROMIUM = Kind(name="chromium", path=_PATH, running=_running)

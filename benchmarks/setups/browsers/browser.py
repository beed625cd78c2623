"""Interface of a browser under test. A tab runs one call at a time; nothing here is for several threads."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

PATIENCE_S = 60
PLAIN_HOST = "shop.test"
"""This machine, by a name that browsers do not trust: without TLS pages there have no workers."""


class BrowserError(Exception):
    """The browser, or the page in it, reports an error."""


class Tab(ABC):
    """A tab. Pages set `window.ready` when their script has run. Not all can be handled as a user does."""

    def open(self, url: str) -> None:
        """Go to a URL, or load it again."""
        self.run("window.left = true")
        self.navigate(url)
        until = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(BrowserError):  # between two pages there is none
                if self.run("return !window.left && window.ready === true"):
                    return
            if time.monotonic() > until:
                raise BrowserError(f"{url} has not run its script within {PATIENCE_S} s")

    @abstractmethod
    def navigate(self, url: str) -> None:
        """Begin to go to a URL."""

    @abstractmethod
    def run(self, script: str) -> Any:
        """Run a script, the body of an asynchronous function; return its result, a value that JSON can represent."""

    @abstractmethod
    def close(self) -> None:
        """Close it as a user does."""

    def run_first(self, script: str) -> None:
        """Have a script run in every page of this tab that is loaded from now on, before the page's own."""
        self._beyond()

    def front(self) -> None:
        """Have this tab seen."""
        self._beyond()

    def freeze(self, *, frozen: bool) -> None:
        """Have the page frozen as the browser freezes hidden ones, or run again."""
        self._beyond()

    def offline(self, *, off: bool) -> None:
        """Have the page without a network, or with it again."""
        self._beyond()

    def look(self, *, width: int, height: int, dark: bool) -> None:
        """Have the page so large, and light or dark; below 600 a phone's where the browser can be one."""
        self._beyond()

    def enter(self, text: str) -> None:
        """Text as it is typed into what has the focus."""
        self._beyond()

    def press(self, key: str) -> None:
        """A key, by its name in events, pressed and let go."""
        self._beyond()

    def picture(self, *, top: int, width: int, height: int) -> bytes:
        """A part of the whole page, as PNG."""
        return self._beyond()

    @staticmethod
    def _beyond() -> NoReturn:
        pytest.skip("this browser's tabs cannot be handled as a user does")


class Browser(ABC):
    """One running browser.

    version: name and version.
    keeps: whether it has an HTTP cache, and a profile that outlives it.
    """

    version: str
    keeps = True

    @abstractmethod
    def blank(self) -> Tab:
        """A new tab, in which there is no page yet."""

    def tab(self, url: str) -> Tab:
        """A new tab in which a page has run its script."""
        tab = self.blank()
        tab.open(url)
        return tab

    def has_to_keep(self) -> None:
        """Skip the test that asks for it in a browser without an HTTP cache."""
        if not self.keeps:
            pytest.skip("this browser has no HTTP cache when it is driven")

    def end_workers(self) -> None:
        """End all service workers, as the browser does with idle ones."""
        pytest.skip("this browser's workers cannot be ended")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A browser that this machine may have.

    name: as its package is called, and the target of the `Makefile` that installs it.
    path: of its program; None: it is not here.
    running: one that keeps what it keeps in a folder, and is ended with the block.
    """

    name: str
    path: str | None
    running: Callable[[Path], AbstractContextManager[Browser]]

"""Seam between pages on the web and the part that makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class PageHead(Protocol):
    """Page of a log, by its number. Numbers grow."""

    @property
    def run(self) -> int:
        """Number of the page."""
        ...

    @property
    def rows(self) -> int:
        """Number of its rows."""
        ...


class PageSource(Protocol):
    """Logs of pages, by name. Methods block, and may be called from any thread.

    Methods raise ConfigurationError for an unknown name, DependencyError if the storage fails.
    """

    def newest(self, name: str) -> int | None:
        """Return the number of the newest page; None: there is none."""
        ...

    def after(self, name: str, run: int, limit: int) -> Sequence[PageHead]:
        """Return the pages after a number, oldest first."""
        ...

    def body(self, name: str, run: int, first: int = 0) -> str | None:
        """Return the rows of a page from a row on, as JSON with the field `more`; None: there are no such rows.

        The text of a page never changes.
        """
        ...

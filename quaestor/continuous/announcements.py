"""Announcements of new results: each changed name is reported until a report raises no error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from quaestor.errors import ConfigurationError, QuaestorError


async def unheard(_name: str) -> None:
    """Do nothing: no part of the process wants to know of results."""


class Announcements:
    """Names whose results have changed and were not reported yet.

    published: called with each name.
    failed: called with the name and the error of a report that failed.
    """

    def __init__(
        self, published: Callable[[str], Awaitable[object]], failed: Callable[[str, QuaestorError], object]
    ) -> None:
        self._published = published
        self._failed = failed
        self._names: set[str] = set()

    def add(self, name: str) -> None:
        """Note that the results of a name have changed."""
        self._names.add(name)

    async def report(self) -> None:
        """Report all names, until a report fails. The next call repeats that report."""
        for name in sorted(self._names):
            try:
                self._names.discard(name)
                await self._published(name)
            except ConfigurationError:
                self._names.add(name)  # no database is watched yet, so nothing can be invalidated
                return
            except QuaestorError as error:
                self._names.add(name)
                self._failed(name, error)
                return

"""Continuous queries of an application: the declarations on its async functions, and the administration of its folder."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

from quaestor.runtime.hosted_channels import HostedChannels
from quaestor.runtime.supervision.process_context import ProcessContext

if TYPE_CHECKING:
    from quaestor.continuous.administration import Administration
    from quaestor.continuous.runs.pages import ResultPages


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """Declared query. The libraries of continuous queries are loaded at the start, not here.

    function: receives each batch of results.
    """

    text: str
    every: str
    name: str
    at_most: str
    function: Callable[[Any], Awaitable[object]]


class ContinuousQueries:
    """Continuous queries of one application.

    declared: before its start.
    observers: called with the name of each query whose results have changed, in the process that runs the queries.
    channels: channels of the same folder.
    """

    def __init__(self, process: ProcessContext) -> None:
        self.declared: list[Declaration] = []
        self.observers: list[Callable[[str], Awaitable[object]]] = []
        self.channels = HostedChannels(process)
        self._process = process
        self._lock = Lock()
        self._administration: Administration | None = None
        self._pages: ResultPages | None = None

    def administration(self) -> Administration:
        """Return the administration that the service, the admin API and the results of this process share.

        Raises ConfigurationError without `continuous_folder`. Blocks at its first use; thread-safe.
        """
        with self._lock:
            if self._administration is None:
                from quaestor.continuous.hosting import administration_of

                process = self._process
                self._administration = administration_of(process.settings.continuous, clock=process.clock)
            return self._administration

    def pages(self) -> ResultPages:
        """Return the results as pages. Raises and blocks as `administration` does."""
        administration = self.administration()
        with self._lock:
            if self._pages is None:
                from quaestor.continuous.runs.pages import ResultPages

                self._pages = ResultPages(administration.catalogue, administration.installed)
            return self._pages

    async def published(self, name: str) -> None:
        """Call the observers. Raises what an observer raises; those after it are called again with it."""
        for observer in self.observers:
            await observer(name)

"""Channels of an application: their parts, loaded at the first use, and the observers of their results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from threading import Lock
from typing import TYPE_CHECKING

from quaestor.runtime.supervision.process_context import ProcessContext

if TYPE_CHECKING:
    from quaestor.channels.administration import Channels
    from quaestor.channels.running import RunningChannels


class HostedChannels:
    """Channels of one application.

    observers: called with the name of each channel that has new results, in the process that runs the channels.
    takes_posts: whether this application has a route for the posts of feeds.
    """

    def __init__(self, process: ProcessContext) -> None:
        self.observers: list[Callable[[str], Awaitable[object]]] = []
        self.takes_posts = False
        self._process = process
        self._lock = Lock()
        self._channels: Channels | None = None
        self._running: RunningChannels | None = None

    def administration(self) -> Channels:
        """Return the channels that the service, the admin API and the routes of this process share.

        Raises ConfigurationError without `continuous_folder`. Blocks at its first use; thread-safe.
        """
        with self._lock:
            if self._channels is None:
                from quaestor.channels.administration import channels_of

                process = self._process
                self._channels = channels_of(process.settings.continuous, clock=process.clock)
            return self._channels

    def running(self) -> RunningChannels:
        """Return the runs, feeds and results of this process. Raises and blocks as `administration` does."""
        channels = self.administration()
        with self._lock:
            if self._running is None:
                from quaestor.channels.running import RunningChannels

                process = self._process
                self._running = RunningChannels(
                    channels, process.settings.continuous, process.telemetry, clock=process.clock
                )
            return self._running

    async def published(self, name: str) -> None:
        """Call the observers. Raises what an observer raises; those after it are called again with it."""
        for observer in self.observers:
            await observer(name)

"""Results of channels as a source of the endpoint for readers: pages, signatures of brokers, acknowledgements."""

from __future__ import annotations

import asyncio

from quaestor.channels.brokers.acknowledgements import Acknowledgements
from quaestor.channels.brokers.reading import Page, Reading
from quaestor.channels.brokers.registry import Brokers
from quaestor.channels.brokers.watch import RunWatch
from quaestor.channels.pages import ResultPages


class ServedResults:
    """Results of all channels. Implements ResultSource (quaestor/live/results/source.py).

    look_s: see RunWatch.

    Methods raise ConfigurationError for an unknown channel, broker or subscription, DependencyError if the storage fails.
    """

    def __init__(
        self, pages: ResultPages, brokers: Brokers, acknowledgements: Acknowledgements, *, look_s: float = 0.5
    ) -> None:
        self._pages = pages
        self._reading = Reading(pages)
        self._brokers = brokers
        self._acknowledgements = acknowledgements
        self.watch = RunWatch(lambda channel: asyncio.to_thread(pages.newest_filled, channel), look_s=look_s)

    def for_broker(self, channel: str, broker: str, after: int, limit: int, upto: int | None) -> Page:
        """Return a page for a broker."""
        return self._reading.for_broker(channel, broker, after=after, limit=limit, upto=upto)

    def for_subscription(self, channel: str, subscription: str, after: int, limit: int, upto: int | None) -> Page:
        """Return a page for a subscription."""
        return self._reading.for_subscription(channel, subscription, after=after, limit=limit, upto=upto)

    def newest(self, channel: str) -> int:
        """Return the newest run of a channel that has results; 0: there was none."""
        return self._pages.newest_filled(channel)

    def is_public(self, broker: str) -> bool:
        """Whether everybody may read the pages of a broker."""
        return self._brokers.get(broker).is_public

    def admits(self, broker: str, fields: dict[str, str], content: str) -> bool:
        """Whether a broker has signed this content. An admitted request is a sign of life."""
        if not self._brokers.get(broker).signer.accepts(fields, content):
            return False
        self._brokers.renew(broker)
        return True

    def acknowledge(self, channel: str, broker: str, run: int) -> int:
        """Acknowledge a run; return the highest run up to which everything is acknowledged."""
        return self._acknowledgements.acknowledge(broker, channel, run, self._pages)

    async def wait(self, channel: str, after: int, within_s: float) -> bool:
        """Wait for a run after a run; return whether there is one within the time."""
        return await self.watch.wait(channel, after, within_s)

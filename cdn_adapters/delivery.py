"""Purges of one place, kept until it has acknowledged them: a CdnAdapter made of any place and its queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from cdn_adapters.batching import BatchLimits, PurgeBatches, PurgeEvent
from cdn_adapters.place import Place
from cdn_adapters.requests import sending


class Delivery:
    """Implements CdnAdapter for one place, with batches, pauses and retries. Use it from one event loop at a time.

    limits: batching, pace and retries.
    observe: called with a PurgeEvent after every batch, for metrics; must not raise.
    """

    def __init__(
        self,
        place: Place,
        *,
        limits: BatchLimits | None = None,
        observe: Callable[[PurgeEvent], None] = lambda event: None,
    ) -> None:
        self.name = place.name
        self._place = place
        self._batches = PurgeBatches(partial(sending, place), place=place.address, limits=limits, observe=observe)

    @property
    def pending(self) -> int:
        """Purges that the place has not acknowledged yet."""
        return self._batches.pending

    def response_headers(self, tags: Sequence[str]) -> list[tuple[bytes, bytes]]:
        """See CdnAdapter."""
        return self._place.response_headers(tags)

    async def purge(self, *, tags: Sequence[str], urls: Sequence[str]) -> None:
        """See CdnAdapter. After a retryable CdnError the purge is kept and repeated until the place has taken it."""
        await self._batches.purge(self._place.targets(tags=tags, urls=urls))

    async def aclose(self) -> None:
        """Close the connections. Purges that are still pending are given up."""
        await self._batches.aclose()

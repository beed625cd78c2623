"""Purging of CDNs: invalidated answers that were handed out are purged from all CDNs at once, until acknowledged.

A purge in the outbox is safe: it is sent even if this process dies. For an adapter without the outbox the claim of the
invalidation remembers the purge. The claim is kept until the adapter has acknowledged twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol, runtime_checkable

from quaestor.clock import Clock
from quaestor.errors import CdnError, StoreError
from quaestor.invalidation.effects.until_done import RETRY_S
from quaestor.model import Dependent
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import CdnAdapter
from quaestor.purge_ports import PurgeOutbox
from quaestor.runtime.supervision.supervisor import Supervisor

_LONGEST_PAUSE_S: Final = 10.0
_AT_LEAST_MS: Final = 60_000
"""Shortest time that a purge stays in the outbox: the clocks of several hosts may differ."""

Wait = Callable[[], Awaitable[None]]


@runtime_checkable
class QueuedCdn(Protocol):
    """A CDN adapter whose purges go through an outbox."""

    def begin(
        self, outbox: PurgeOutbox, *, telemetry: Telemetry, repurge_after_ms: int, supervisor: Supervisor
    ) -> None:
        """Begin to send the purges of the outbox, present and future, in the running event loop. Ended by aclose().

        repurge_after_ms: time after which each purge is repeated.
        """

    async def put(self, *, tags: Sequence[str], urls: Sequence[str], until_ms: int) -> Wait:
        """Put a purge into the outbox. Returns, once it is there, a wait for the acknowledgement.

        Raises StoreError, or a CdnError that is not retryable for a target that cannot be purged.
        """


class Purging:
    """Purging of some CDNs. Use from one event loop.

    cdn: the CDNs; others may be added later.
    """

    def __init__(self, cdn: Sequence[CdnAdapter], *, telemetry: Telemetry, clock: Clock) -> None:
        self._cdn = cdn
        self._telemetry = telemetry
        self._clock = clock
        self._begun: list[CdnAdapter] = []

    def begin(self, outbox: PurgeOutbox, *, repurge_after_ms: int, supervisor: Supervisor) -> None:
        """Let the adapters with an outbox send its purges."""
        for adapter in self._cdn:
            if isinstance(adapter, QueuedCdn):
                adapter.begin(
                    outbox, telemetry=self._telemetry, repurge_after_ms=repurge_after_ms, supervisor=supervisor
                )
                self._begun.append(adapter)

    @property
    def remembers(self) -> bool:
        """Whether all purges put so far are safe, and repeated, without the claim."""
        return len(self._begun) == len(self._cdn)

    async def put(self, dependents: Sequence[Dependent]) -> Wait | None:
        """Put purges of these entries, into the outbox where there is one; return a wait for the acknowledgement of every CDN.

        None: there is nothing to purge.
        """
        if not dependents or not self._cdn:
            return None
        tags = tuple(dict.fromkeys(d.tags[0] for d in dependents if d.tags))
        urls = tuple(dict.fromkeys(url for d in dependents for url in d.urls))
        return await self._put_all(tags, urls, max(d.copies_until_ms for d in dependents))

    def of(self, adapter: CdnAdapter) -> Callable[[Sequence[str], Sequence[str]], Awaitable[None]]:
        """Return a purge of tags and URLs in this CDN only, within the limits of all. The purge raises CdnError or StoreError."""

        async def purge(tags: Sequence[str], urls: Sequence[str]) -> None:
            if adapter in self._begun and isinstance(adapter, QueuedCdn):
                await (await adapter.put(tags=tags, urls=urls, until_ms=self._clock() + _AT_LEAST_MS))()
            else:
                await adapter.purge(tags=tags, urls=urls)

        return purge

    async def again(self, dependent: Dependent) -> None:
        """Purge an answer that died while it was being sent, in every CDN."""
        self._telemetry.invalidations.sent_dead.inc()
        wait = await self.put((dependent,))
        if wait is not None:
            await wait()

    async def purge_tag(self, tag: str, *, until_ms: int) -> None:
        """Purge all answers with this tag; no copy is alive after until_ms."""
        await (await self._put_all((tag,), (), until_ms))()

    async def _put_all(self, tags: Sequence[str], urls: Sequence[str], until_ms: int) -> Wait:
        waits: list[Wait] = []
        for adapter in self._cdn:
            if adapter in self._begun and isinstance(adapter, QueuedCdn):
                waits.append(await self._put(adapter, adapter.name, tags, urls, until_ms))
            else:
                waits.append(partial(self._purge, adapter, tags, urls, until_ms))

        async def acknowledged() -> None:
            with self._telemetry.tracing.span("quaestor.purge", tags=len(tags), urls=len(urls)):
                async with asyncio.TaskGroup() as purges:
                    for wait in waits:
                        purges.create_task(_awaited(wait))

        return acknowledged

    async def _put(
        self, adapter: QueuedCdn, name: str, tags: Sequence[str], urls: Sequence[str], until_ms: int
    ) -> Wait:
        """Put a purge into the outbox, repeated until it is there: no purge is dropped while the outbox is away."""
        kept_until_ms = max(until_ms, self._clock() + _AT_LEAST_MS)
        while True:
            try:
                return await adapter.put(tags=tags, urls=urls, until_ms=kept_until_ms)
            except StoreError as error:
                self._telemetry.failure("store", "effects.outbox_failed", error)
                await asyncio.sleep(RETRY_S)
            except CdnError as error:
                self._telemetry.failure("cdn", "effects.purge_failed", error, cdn=name)
                return _nothing

    async def _purge(self, adapter: CdnAdapter, tags: Sequence[str], urls: Sequence[str], until_ms: int) -> None:
        """Purge until it is acknowledged, or until every copy has expired."""
        pause_s = RETRY_S
        while True:
            try:
                await adapter.purge(tags=tags, urls=urls)
                self._telemetry.invalidations.purges.labels(adapter.name, "done").inc()
                return
            except CdnError as error:
                self._telemetry.invalidations.purges.labels(adapter.name, "failed").inc()
                self._telemetry.failure("cdn", "effects.purge_failed", error, cdn=adapter.name)
                if self._clock() > until_ms:
                    return
                await asyncio.sleep(error.retry_after_s or pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


async def _awaited(wait: Wait) -> None:
    await wait()


async def _nothing() -> None:
    """Return at once."""

"""Delivery of one place's purges: a CdnAdapter of a place and the queue that keeps purges until acknowledged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from quaestor.cdn_adapters.backlog import SHORT_MS
from quaestor.cdn_adapters.batching import BatchLimits, PurgeBatches, PurgeEvent
from quaestor.cdn_adapters.budget import checked_cost
from quaestor.cdn_adapters.place import Place
from quaestor.cdn_adapters.requests import at_once, sending
from quaestor.cdn_adapters.sender import Sender
from quaestor.cdn_adapters.sender_options import UNLIMITED, SenderContext, SenderOptions
from quaestor.cdn_ports import CdnReport, Facts, Finding
from quaestor.errors import ConfigurationError
from quaestor.observability.telemetry import Telemetry
from quaestor.purge_ports import PurgeOutbox
from quaestor.runtime.supervision.supervisor import Supervisor


class Delivery:
    """Implementation of CdnAdapter for one place, with batches, pauses and retries. Use it from one event loop at a time.

    limits: batching, pace and retries.
    observe: called with a PurgeEvent after every batch, for metrics; must not raise.
    budget_usd: bound of a month's price of purges, beyond the free ones. Once it is spent, nothing is sent before the month ends,
        and copies live for seconds. None: no bound.

    Raises ConfigurationError for a budget of a place without a price.
    """

    def __init__(
        self,
        place: Place,
        *,
        limits: BatchLimits | None = None,
        observe: Callable[[PurgeEvent], None] = lambda event: None,
        budget_usd: float | None = None,
    ) -> None:
        if budget_usd is not None:
            checked_cost(place, budget_usd)
        self.name = place.name
        self._place = place
        self._limits = limits
        self._observe = observe
        self._budget_usd = budget_usd
        self._sender: Sender | None = None
        self._telemetry: Telemetry | None = None
        self._doubtful = False
        connect = partial(sending, place, most=at_once(limits))
        self._batches = PurgeBatches(connect, place=place.address, limits=limits, observe=observe)

    @property
    def pending(self) -> int:
        """Purges that the place has not acknowledged yet."""
        return self._batches.pending

    def response_headers(self, tags: Sequence[str]) -> list[tuple[bytes, bytes]]:
        """See CdnAdapter."""
        return self._place.response_headers(tags)

    def lifetime_headers(self, *, lives_s: int, until_s: int) -> list[tuple[bytes, bytes]]:
        """See LifetimeCdn."""
        field = self._place.capabilities.lifetime_field
        return [] if field is None else [field.header(lives_s=lives_s, until_s=until_s)]

    @property
    def places(self) -> list[Place]:
        """The place."""
        return [self._place]

    async def purge(self, *, tags: Sequence[str], urls: Sequence[str]) -> None:
        """See CdnAdapter. After a retryable CdnError the purge is kept and repeated until the place has taken it."""
        await self._batches.purge(self._place.targets(tags=tags, urls=urls))

    @property
    def senders(self) -> list[Sender]:
        """The sender, once begun."""
        return [] if self._sender is None else [self._sender]

    def begin(
        self,
        outbox: PurgeOutbox,
        *,
        telemetry: Telemetry,
        repurge_after_ms: int,
        below: Sequence[Sender] = (),
        supervisor: Supervisor | None = None,
    ) -> None:
        """See QueuedCdn: from now on put() may be called.

        below: senders of the places that this place fills.
        """
        self._telemetry = telemetry
        self._sender = Sender(
            self._place,
            outbox,
            options=SenderOptions(
                repurge_after_ms=repurge_after_ms, limits=self._limits or UNLIMITED, budget_usd=self._budget_usd
            ),
            context=SenderContext(telemetry=telemetry, supervisor=supervisor or Supervisor(telemetry)),
            observe=self._observe,
            below=below,
        )
        self._sender.start()

    async def put(self, *, tags: Sequence[str], urls: Sequence[str], until_ms: int) -> Callable[[], Awaitable[None]]:
        """See QueuedCdn."""
        if self._sender is None or self._telemetry is None:
            raise ConfigurationError(f"{self.name} was not begun: call begin() first")
        targets = self._place.targets(tags=tags, urls=urls)
        if not targets and (tags or urls):
            why = (
                f"{self._place.address} can be purged by {', '.join(self._place.capabilities.kinds)} only, which does not"
                " express this: what it keeps is served until its lifetime is over"
            )
            self._telemetry.failure("cdn", "cdn.not_purged", why, cdn=self.name)
        return await self._sender.put(targets, until_ms=until_ms)

    def copies_live_ms(self) -> int | None:
        """See BoundedCdn."""
        if self._doubtful:
            return SHORT_MS
        return None if self._sender is None else self._sender.watched.copies_live_ms()

    async def diagnose(self, facts: Facts) -> list[Finding]:
        """See DiagnosedCdn."""
        return [] if self._sender is None else await self._sender.watched.diagnose(facts)

    def reports(self) -> list[CdnReport]:
        """See ReportingCdn."""
        return [] if self._sender is None else [self._sender.watched.report()]

    def doubt(self, doubtful: bool) -> None:
        """See DoubtfulCdn."""
        self._doubtful = doubtful

    async def aclose(self) -> None:
        """Close the connections. Purges in the outbox stay there; other pending purges are given up."""
        if self._sender is not None:
            await self._sender.aclose()
            self._sender = None
        await self._batches.aclose()

"""Caches before caches: the upper tier, which fills the lower ones, is purged first.

An edge that is purged before its shield refetches the old answer from the shield and keeps it. The lower tiers are therefore
purged after the upper tier has acknowledged. The upper tier's sender puts the purge into their queues before it forgets its own
purge. The lower purges therefore happen even if a process dies in between.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from quaestor.cdn_adapters.fan_out import FanOut, PendingPurges
from quaestor.cdn_ports import CdnReport, Facts, Finding
from quaestor.errors import ConfigurationError
from quaestor.observability.telemetry import Telemetry
from quaestor.purge_ports import PurgeOutbox
from quaestor.runtime.supervision.supervisor import Supervisor


class Tiers:
    """Implementation of CdnAdapter for an upper tier and the tier that it fills.

    name: of both together, for metrics.
    shield: the tier that fetches from the application.
    edge: the tier that fetches from the shield; several caches as a FanOut.

    Tags and URLs must be the same in both tiers: the URLs that clients send to the edge. The edge must support the shield's
    first kind of purge; raises ConfigurationError otherwise.
    """

    def __init__(self, name: str, *, shield: FanOut, edge: FanOut) -> None:
        for lower in edge.places:
            for upper in shield.places:
                if upper.capabilities.kinds[0] not in lower.capabilities.kinds:
                    raise ConfigurationError(
                        f"{name}: {upper.name} is purged by {upper.capabilities.kinds[0]}, which {lower.name} cannot be:"
                        " have both purged by URL, e.g. VarnishAdapter(..., tags=False)"
                    )
        self.name = name
        self._shield = shield
        self._edge = edge

    @property
    def pending(self) -> int:
        """Purges that a tier has not acknowledged yet."""
        return sum(tier.pending for tier in (self._shield, self._edge) if isinstance(tier, PendingPurges))

    def response_headers(self, tags: Sequence[str]) -> list[tuple[bytes, bytes]]:
        """Return the headers of both tiers, each once."""
        return list(dict.fromkeys([*self._shield.response_headers(tags), *self._edge.response_headers(tags)]))

    def lifetime_headers(self, *, lives_s: int, until_s: int) -> list[tuple[bytes, bytes]]:
        """See LifetimeCdn: the fields of both tiers, each once."""
        both = [
            header
            for tier in (self._shield, self._edge)
            for header in tier.lifetime_headers(lives_s=lives_s, until_s=until_s)
        ]
        return list(dict.fromkeys(both))

    async def purge(self, *, tags: Sequence[str], urls: Sequence[str]) -> None:
        """See CdnAdapter: the shield, and then the edge."""
        await self._shield.purge(tags=tags, urls=urls)
        await self._edge.purge(tags=tags, urls=urls)

    def begin(
        self,
        outbox: PurgeOutbox,
        *,
        telemetry: Telemetry,
        repurge_after_ms: int,
        supervisor: Supervisor | None = None,
    ) -> None:
        """See QueuedCdn."""
        self._edge.begin(outbox, telemetry=telemetry, repurge_after_ms=repurge_after_ms, supervisor=supervisor)
        self._shield.begin(
            outbox,
            telemetry=telemetry,
            repurge_after_ms=repurge_after_ms,
            below=self._edge.senders,
            supervisor=supervisor,
        )

    async def put(self, *, tags: Sequence[str], urls: Sequence[str], until_ms: int) -> Callable[[], Awaitable[None]]:
        """See QueuedCdn. The shield's sender puts in the edge's purges. The wait puts them in once more, to wait for them."""
        upper = await self._shield.put(tags=tags, urls=urls, until_ms=until_ms)

        async def acknowledged() -> None:
            await upper()
            lower = await self._edge.put(tags=tags, urls=urls, until_ms=until_ms)
            await lower()

        return acknowledged

    def copies_live_ms(self) -> int | None:
        """See BoundedCdn: the shorter lifetime of the two."""
        return min(
            (ms for tier in (self._shield, self._edge) if (ms := tier.copies_live_ms()) is not None), default=None
        )

    async def diagnose(self, facts: Facts) -> list[Finding]:
        """See DiagnosedCdn: the findings of both tiers, each once."""
        return list(dict.fromkeys([*await self._shield.diagnose(facts), *await self._edge.diagnose(facts)]))

    def reports(self) -> list[CdnReport]:
        """See ReportingCdn."""
        return [*self._shield.reports(), *self._edge.reports()]

    def doubt(self, doubtful: bool) -> None:
        """See DoubtfulCdn."""
        self._edge.doubt(doubtful)

    async def aclose(self) -> None:
        """Close both."""
        await self._shield.aclose()
        await self._edge.aclose()

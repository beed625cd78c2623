"""Several CDN adapters as one: every purge goes to all of them at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol, runtime_checkable

from quaestor.cdn_adapters.delivery import Delivery
from quaestor.cdn_adapters.place import Place
from quaestor.cdn_adapters.sender import Sender
from quaestor.cdn_ports import CdnReport, DiagnosedCdn, Facts, Finding, ReportingCdn
from quaestor.clock import system_clock
from quaestor.errors import CdnError, ConfigurationError
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import BoundedCdn, CdnAdapter, LifetimeCdn
from quaestor.purge_ports import PurgeOutbox
from quaestor.runtime.supervision.supervisor import Supervisor

_RETRY_S = 1.0


@runtime_checkable
class PendingPurges(Protocol):
    """An adapter that keeps purges until acknowledged, and can count them."""

    @property
    def pending(self) -> int:
        """Purges that are not acknowledged yet."""


class FanOut:
    """Implementation of CdnAdapter around other adapters. A purge is done when every adapter has acknowledged it.

    name: of all of them together, for metrics.

    A failing adapter does not keep the others from their purge. Raises ConfigurationError if there is no adapter.
    """

    def __init__(self, name: str, adapters: Sequence[CdnAdapter]) -> None:
        if not adapters:
            raise ConfigurationError(f"{name} needs at least one place to purge")
        self.name = name
        self._adapters = tuple(adapters)

    @property
    def pending(self) -> int:
        """Purges that some adapter has not acknowledged yet. Only adapters that keep purges count."""
        return sum(adapter.pending for adapter in self._adapters if isinstance(adapter, PendingPurges))

    def response_headers(self, tags: Sequence[str]) -> list[tuple[bytes, bytes]]:
        """Return the header fields of all adapters, each once."""
        headers = (header for adapter in self._adapters for header in adapter.response_headers(tags))
        return list(dict.fromkeys(headers))

    def lifetime_headers(self, *, lives_s: int, until_s: int) -> list[tuple[bytes, bytes]]:
        """See LifetimeCdn: the fields of all adapters, each once."""
        adapters = (adapter for adapter in self._adapters if isinstance(adapter, LifetimeCdn))
        headers = (
            header for adapter in adapters for header in adapter.lifetime_headers(lives_s=lives_s, until_s=until_s)
        )
        return list(dict.fromkeys(headers))

    @property
    def places(self) -> list[Place]:
        """The places that are purged through queues."""
        return [
            place for adapter in self._adapters if isinstance(adapter, Delivery | FanOut) for place in adapter.places
        ]

    async def purge(self, *, tags: Sequence[str], urls: Sequence[str]) -> None:
        """See CdnAdapter. Raises one CdnError for all failures, retryable if one of them is."""
        purges = (adapter.purge(tags=tags, urls=urls) for adapter in self._adapters)
        outcomes = await asyncio.gather(*purges, return_exceptions=True)
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if failures:
            raise _joined(failures)

    @property
    def senders(self) -> list[Sender]:
        """The senders that have begun."""
        return [
            sender for adapter in self._adapters if isinstance(adapter, Delivery | FanOut) for sender in adapter.senders
        ]

    def begin(
        self,
        outbox: PurgeOutbox,
        *,
        telemetry: Telemetry,
        repurge_after_ms: int,
        below: Sequence[Sender] = (),
        supervisor: Supervisor | None = None,
    ) -> None:
        """See QueuedCdn. Adapters that do not know the outbox purge directly in put(): their purges die with the process.

        below: senders of the places that these adapters fill.
        """
        for adapter in self._adapters:
            if isinstance(adapter, Delivery | FanOut):
                adapter.begin(
                    outbox,
                    telemetry=telemetry,
                    repurge_after_ms=repurge_after_ms,
                    below=below,
                    supervisor=supervisor,
                )

    async def put(self, *, tags: Sequence[str], urls: Sequence[str], until_ms: int) -> Callable[[], Awaitable[None]]:
        """See QueuedCdn."""
        waits: list[Callable[[], Awaitable[None]]] = []
        for adapter in self._adapters:
            if isinstance(adapter, Delivery | FanOut):
                waits.append(await adapter.put(tags=tags, urls=urls, until_ms=until_ms))
            else:
                waits.append(partial(_purged, adapter, tags, urls, until_ms))

        async def acknowledged() -> None:
            for wait in waits:
                await wait()

        return acknowledged

    def copies_live_ms(self) -> int | None:
        """See BoundedCdn: the shortest lifetime of all adapters."""
        lifetimes_ms = (adapter.copies_live_ms() for adapter in self._adapters if isinstance(adapter, BoundedCdn))
        return min((ms for ms in lifetimes_ms if ms is not None), default=None)

    async def diagnose(self, facts: Facts) -> list[Finding]:
        """See DiagnosedCdn: the findings of all adapters, each once."""
        reports = [await adapter.diagnose(facts) for adapter in self._adapters if isinstance(adapter, DiagnosedCdn)]
        return list(dict.fromkeys(finding for some in reports for finding in some))

    def reports(self) -> list[CdnReport]:
        """See ReportingCdn."""
        return [
            report for adapter in self._adapters if isinstance(adapter, ReportingCdn) for report in adapter.reports()
        ]

    def doubt(self, doubtful: bool) -> None:
        """See DoubtfulCdn."""
        for adapter in self._adapters:
            if isinstance(adapter, Delivery | FanOut):
                adapter.doubt(doubtful)

    async def aclose(self) -> None:
        """Close every adapter."""
        await asyncio.gather(*(adapter.aclose() for adapter in self._adapters))


async def _purged(adapter: CdnAdapter, tags: Sequence[str], urls: Sequence[str], until_ms: int) -> None:
    """Purge by an adapter that does not know the outbox, until the purge is acknowledged, refused for good, or every copy has
    expired.
    """
    while True:
        try:
            return await adapter.purge(tags=tags, urls=urls)
        except CdnError as error:
            if not error.retryable or system_clock() > until_ms:
                return None
            await asyncio.sleep(error.retry_after_s or _RETRY_S)


def _joined(failures: Sequence[BaseException]) -> BaseException:
    """Return one error with the messages of all failures. The first failure that is no CdnError is returned unchanged instead."""
    errors = [failure for failure in failures if isinstance(failure, CdnError)]
    if len(errors) < len(failures):
        return next(failure for failure in failures if not isinstance(failure, CdnError))
    joined = CdnError(
        "; ".join(dict.fromkeys(map(str, errors))),
        retryable=any(error.retryable for error in errors),
        retry_after_s=max(error.retry_after_s or 0.0 for error in errors) or None,
    )
    joined.__cause__ = errors[0]
    return joined

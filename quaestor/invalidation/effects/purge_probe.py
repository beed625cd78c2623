"""Purge probe of a CDN: a tagged answer, read through the CDN's public address, purged, and read again.

A provider may acknowledge a purge that has no effect: for a wrong zone, a stripped tag field, a configuration without tags, a
revoked token. No answer of the provider shows such a fault; the probe finds it.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from quaestor.cdn_ports import Finding, Level
from quaestor.clock import Clock, system_clock
from quaestor.errors import CdnError, ConfigurationError, StoreError
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import CdnAdapter
from quaestor.purge_ports import PurgeOutbox
from quaestor.tasks import ended

if TYPE_CHECKING:
    import httpx

PATH: Final = "/quaestor/canary"
"""Path where the middleware answers with a new body each time."""
MARK: Final = "quaestor-canary"
"""Response field that marks the probe's answer; it holds the server's clock in ms."""
_WITHIN_S: Final = 30.0
_LOOK_AGAIN_S: Final = 0.25
_SKEW_S: Final = 5.0
_LEASE_S: Final = 9.0
"""Silence of the probing process after which another process takes over."""

Purge = Callable[[Sequence[str], Sequence[str]], Awaitable[None]]
"""Purge of tags and URLs; returns when it is acknowledged."""


@runtime_checkable
class DoubtfulCdn(Protocol):
    """A CDN adapter that accepts a report that its purges have no effect."""

    def doubt(self, doubtful: bool) -> None:
        """Shorten the life of copies, or restore the usual one."""


def probe_tag(scope: str) -> str:
    """Return the surrogate key of the probe's answer in one deployment."""
    return f"quaestor-{scope}-canary"


def addresses(entries: Sequence[str]) -> dict[str, str]:
    """Return the public addresses by CDN name, from entries NAME=URL. Raises ConfigurationError."""
    urls = {}
    for entry in entries:
        name, _, url = entry.partition("=")
        if not name or not url.startswith(("http://", "https://")):
            raise ConfigurationError(f"cdn_addresses: {entry!r} is not NAME=URL; write varnish=https://shop.example")
        urls[name] = url.rstrip("/")
    return urls


async def check(address: str, tag: str, purge: Purge, *, within_s: float = _WITHIN_S) -> Finding:
    """Read the answer, purge it, read again; return the finding. Raises no Exception except for mistakes in this code."""
    import httpx  # imported only by apps with a CDN

    url = address + PATH
    try:
        async with httpx.AsyncClient(timeout=within_s, trust_env=False) as client:
            return await _check(client, url, tag, purge, within_s)
    except httpx.HTTPError as error:
        why = f"{url} does not answer ({error or type(error).__name__}): is it the CDN's public address?"
        return Finding(level=Level.BLOCK, sentence=why)


async def _check(client: httpx.AsyncClient, url: str, tag: str, purge: Purge, within_s: float) -> Finding:
    first = await client.get(url)
    if first.status_code != 200 or MARK not in first.headers:
        why = f"{url} answers {first.status_code} and is not this application's: point cdn_addresses at its CDN"
        return Finding(level=Level.BLOCK, sentence=why)
    known = await client.get(url)
    if known.text != first.text:
        why = f"{url} is not kept: the server there is no cache, or ignores CDN-Cache-Control"
        return Finding(level=Level.WARN, sentence=why)
    begun_s = time.perf_counter()
    try:
        if await _gone(client, url, known.text, purge, [tag], [url], within_s):
            took_s = time.perf_counter() - begun_s
            skew_s = abs(int(known.headers[MARK]) / 1_000 + float(known.headers.get("age", 0)) - time.time())
            if skew_s > _SKEW_S + took_s:
                why = (
                    f"gone within {took_s:.1f} s, but the clocks of CDN, application and probe differ by {skew_s:.0f} s"
                )
                return Finding(level=Level.WARN, sentence=why)
            return Finding(level=Level.OK, sentence=f"kept, purged, and gone within {took_s:.1f} s")
        if await _gone(client, url, known.text, purge, [], [url], within_s):
            why = (
                "a purge by tag has no effect, but a purge by URL has: the tag field is stripped, or the CDN lacks set-up"
                " for tags"
            )
            return Finding(level=Level.BLOCK, sentence=why)
    except TimeoutError:
        why = f"no purge was acknowledged within {within_s:.0f} s: refused, throttled or away; see `cdn.*` in the log"
        return Finding(level=Level.BLOCK, sentence=why)
    except (CdnError, StoreError) as error:
        return Finding(level=Level.BLOCK, sentence=f"the purge failed: {error}")
    why = "purges are acknowledged and have no effect: they reach another zone, service or host than clients use"
    return Finding(level=Level.BLOCK, sentence=why)


async def _gone(
    client: httpx.AsyncClient,
    url: str,
    old: str,
    purge: Purge,
    tags: Sequence[str],
    urls: Sequence[str],
    within_s: float,
) -> bool:
    """Whether a purge removes the old body in time. Raises TimeoutError if the purge is not acknowledged."""
    async with asyncio.timeout(within_s):
        await purge(tags, urls)
    until_s = time.monotonic() + within_s
    while (await client.get(url)).text == old:
        if time.monotonic() > until_s:
            return False
        await asyncio.sleep(_LOOK_AGAIN_S)
    return True


class PurgeProbes:
    """Purge probes of one process: one for each CDN with a known public address.

    One process of a deployment probes, by lease. The others act on its findings.

    addresses: public addresses by CDN name.
    purge_of: returns the purge of one CDN.
    outbox: outbox of the purges; it keeps the leases and the findings.
    """

    def __init__(
        self,
        cdn: Sequence[CdnAdapter],
        *,
        addresses: dict[str, str],
        tag: str,
        purge_of: Callable[[CdnAdapter], Purge],
        outbox: PurgeOutbox,
        telemetry: Telemetry,
        clock: Clock = system_clock,
        within_s: float = _WITHIN_S,
    ) -> None:
        self._cdn = [adapter for adapter in cdn if adapter.name in addresses]
        self._addresses = addresses
        self._tag = tag
        self._purge_of = purge_of
        self._outbox = outbox
        self._telemetry = telemetry
        self._clock = clock
        self._within_s = within_s
        self._name = secrets.token_hex(6)

    async def run(self, every_s: float) -> None:
        """Check every CDN at once, then again and again."""
        probes = [asyncio.create_task(self._run(adapter, every_s)) for adapter in self._cdn]
        try:
            await asyncio.gather(*probes)
        finally:
            # A TaskGroup cancels once, and would wait for ever for a probe that missed its cancellation.
            await ended(probes)

    async def check(self, adapter: CdnAdapter) -> Finding:
        """Check one CDN, report the finding to metrics and log, and distrust the CDN if its purges have no effect."""
        purge = self._purge_of(adapter)
        finding = await check(self._addresses[adapter.name], self._tag, purge, within_s=self._within_s)
        if finding.level is not Level.OK:
            self._telemetry.failure("cdn", "cdn.canary_failed", finding.sentence, cdn=adapter.name)
        self._show(adapter, finding)
        return finding

    async def _run(self, adapter: CdnAdapter, every_s: float) -> None:
        due_s = 0.0
        try:
            while True:
                with suppress(StoreError):  # the sender of the purges reports it
                    if not await self._leads(adapter):
                        due_s = 0.0  # a new leader checks at once: the former one may have had other credentials
                        await self._hear(adapter)
                    elif time.monotonic() >= due_s:
                        await self._checked(adapter, every_s)
                        due_s = time.monotonic() + every_s * random.uniform(0.8, 1.2)
                await asyncio.sleep(_LEASE_S / 3)
        finally:
            with suppress(StoreError):
                await self._outbox.resign(_lease(adapter), token=self._name)

    async def _checked(self, adapter: CdnAdapter, every_s: float) -> None:
        """Check while keeping the lease, and note the finding for the other processes."""
        checking = asyncio.create_task(self.check(adapter))
        try:
            while not (await asyncio.wait({checking}, timeout=_LEASE_S / 3))[0]:
                await self._leads(adapter)
        finally:
            await ended((checking,))
        finding = checking.result()
        kept_ms = int((2 * every_s + _LEASE_S) * 1_000)
        await self._outbox.note(_lease(adapter), f"{finding.level} {finding.sentence}", for_ms=kept_ms)

    async def _hear(self, adapter: CdnAdapter) -> None:
        """Act on the last finding of the probing process."""
        level, _, sentence = (await self._outbox.noted(_lease(adapter)) or "").partition(" ")
        if level in set(Level):
            self._show(adapter, Finding(level=Level(level), sentence=sentence))

    async def _leads(self, adapter: CdnAdapter) -> bool:
        lease_ms = int(_LEASE_S * 1_000)
        return await self._outbox.lead(_lease(adapter), token=self._name, lease_ms=lease_ms, now_ms=self._clock())

    def _show(self, adapter: CdnAdapter, finding: Finding) -> None:
        for level in Level:
            self._telemetry.purging.canary.labels(adapter.name, level.value).set(level is finding.level)
        if isinstance(adapter, DoubtfulCdn):
            adapter.doubt(finding.level is Level.BLOCK)


def _lease(adapter: CdnAdapter) -> str:
    return f"canary of {adapter.name}"

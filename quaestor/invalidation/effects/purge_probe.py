"""Purge probe of a CDN: a tagged answer that is read through the CDN's public address, purged, and read again.

A purge that is acknowledged and does nothing shows in no answer of the provider: a wrong zone, a tag field that something strips,
a configuration without tags, a token that was revoked. It shows here.
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
"""Where the middleware answers with a body that is new each time."""
MARK: Final = "quaestor-canary"
"""Response field by which that answer is known, with the server's clock in ms."""
_WITHIN_S: Final = 30.0
_LOOK_AGAIN_S: Final = 0.25
_SKEW_S: Final = 5.0
_LEASE_S: Final = 9.0
"""How long the process that looks is silent before another one does."""

Purge = Callable[[Sequence[str], Sequence[str]], Awaitable[None]]
"""Purges tags and URLs; returns when it was acknowledged."""


@runtime_checkable
class DoubtfulCdn(Protocol):
    """A CDN adapter that can be told that its purges have no effect."""

    def doubt(self, doubtful: bool) -> None:
        """Let copies live for a short time only, or as long as otherwise again."""


def probe_tag(scope: str) -> str:
    """Return the surrogate key of the probe's answer in one deployment."""
    return f"quaestor-{scope}-canary"


def addresses(entries: Sequence[str]) -> dict[str, str]:
    """Public addresses by the CDN's name, from NAME=URL. Raises ConfigurationError."""
    found = {}
    for entry in entries:
        name, _, url = entry.partition("=")
        if not name or not url.startswith(("http://", "https://")):
            raise ConfigurationError(f"cdn_addresses: {entry!r} is not NAME=URL; write varnish=https://shop.example")
        found[name] = url.rstrip("/")
    return found


async def check(address: str, tag: str, purge: Purge, *, within_s: float = _WITHIN_S) -> Finding:
    """Read, purge, read again. Never raises an Exception but of a mistake of ours."""
    import httpx  # for apps with a CDN alone

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
        why = f"{url} answers {first.status_code} and is not this application's: point cdn_addresses at what asks it"
        return Finding(level=Level.BLOCK, sentence=why)
    known = await client.get(url)
    if known.text != first.text:
        why = f"{url} is not kept: what is there is no cache, or it does not follow CDN-Cache-Control"
        return Finding(level=Level.WARN, sentence=why)
    begun_s = time.perf_counter()
    try:
        if await _gone(client, url, known.text, purge, [tag], [url], within_s):
            took_s = time.perf_counter() - begun_s
            skew_s = abs(int(known.headers[MARK]) / 1_000 + float(known.headers.get("age", 0)) - time.time())
            if skew_s > _SKEW_S + took_s:
                why = f"gone within {took_s:.1f} s, but the clocks of CDN, application and this process differ by {skew_s:.0f} s"
                return Finding(level=Level.WARN, sentence=why)
            return Finding(level=Level.OK, sentence=f"kept, purged, and gone within {took_s:.1f} s")
        if await _gone(client, url, known.text, purge, [], [url], within_s):
            why = (
                "a purge by tag has no effect, one by URL has: the tag field is stripped on the way, or the CDN is not set up"
                " for tags"
            )
            return Finding(level=Level.BLOCK, sentence=why)
    except TimeoutError:
        why = f"no purge was acknowledged within {within_s:.0f} s: refused, throttled or away; `cdn.*` in the log says which"
        return Finding(level=Level.BLOCK, sentence=why)
    except (CdnError, StoreError) as error:
        return Finding(level=Level.BLOCK, sentence=f"the purge failed: {error}")
    why = "purges are acknowledged and have no effect: they go to another zone, service or host than clients ask"
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
    """Whether a purge makes the old body go in time. Raises TimeoutError if it is not acknowledged."""
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

    One process of a deployment probes, by lease; the others act on its findings.

    addresses: by the CDN's name.
    purge_of: purges one CDN.
    outbox: of the purges; it has the leases and the findings.
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
        """Check at once, and again and again."""
        async with asyncio.TaskGroup() as probes:
            for adapter in self._cdn:
                probes.create_task(self._run(adapter, every_s))

    async def check(self, adapter: CdnAdapter) -> Finding:
        """Check one CDN, tell the metrics and the log, and rely on it no longer if its purges have no effect."""
        purge = self._purge_of(adapter)
        found = await check(self._addresses[adapter.name], self._tag, purge, within_s=self._within_s)
        if found.level is not Level.OK:
            self._telemetry.failure("cdn", "cdn.canary_failed", found.sentence, cdn=adapter.name)
        self._found(adapter, found)
        return found

    async def _run(self, adapter: CdnAdapter, every_s: float) -> None:
        due_s = 0.0
        try:
            while True:
                with suppress(StoreError):  # told by what sends the purges
                    if not await self._leads(adapter):
                        due_s = 0.0  # whoever takes over looks at once: the one before may have had other credentials
                        await self._hear(adapter)
                    elif time.monotonic() >= due_s:
                        await self._checked(adapter, every_s)
                        due_s = time.monotonic() + every_s * random.uniform(0.8, 1.2)
                await asyncio.sleep(_LEASE_S / 3)
        finally:
            with suppress(StoreError):
                await self._outbox.resign(_lease(adapter), token=self._name)

    async def _checked(self, adapter: CdnAdapter, every_s: float) -> None:
        """Check, keep the lease meanwhile, and tell the others."""
        checking = asyncio.create_task(self.check(adapter))
        try:
            while not (await asyncio.wait({checking}, timeout=_LEASE_S / 3))[0]:
                await self._leads(adapter)
        finally:
            await ended((checking,))
        found = checking.result()
        kept_ms = int((2 * every_s + _LEASE_S) * 1_000)
        await self._outbox.note(_lease(adapter), f"{found.level} {found.sentence}", for_ms=kept_ms)

    async def _hear(self, adapter: CdnAdapter) -> None:
        """Act on what the process that looks has found last."""
        level, _, sentence = (await self._outbox.noted(_lease(adapter)) or "").partition(" ")
        if level in set(Level):
            self._found(adapter, Finding(level=Level(level), sentence=sentence))

    async def _leads(self, adapter: CdnAdapter) -> bool:
        lease_ms = int(_LEASE_S * 1_000)
        return await self._outbox.lead(_lease(adapter), token=self._name, lease_ms=lease_ms, now_ms=self._clock())

    def _found(self, adapter: CdnAdapter, found: Finding) -> None:
        for level in Level:
            self._telemetry.purging.canary.labels(adapter.name, level.value).set(level is found.level)
        if isinstance(adapter, DoubtfulCdn):
            adapter.doubt(found.level is Level.BLOCK)


def _lease(adapter: CdnAdapter) -> str:
    return f"canary of {adapter.name}"

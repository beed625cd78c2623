"""Canary of a CDN: a tagged answer that is read through the CDN's public address, purged, and read again.

A purge that is acknowledged and does nothing shows in no answer of the provider: a wrong zone, a tag field that something strips,
a configuration without tags, a token that was revoked. It shows here.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, runtime_checkable

import httpx

from quaestor.errors import CdnError, ConfigurationError, StoreError
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import CdnAdapter

PATH: Final = "/quaestor/canary"
"""Where the middleware answers with a body that is new each time."""
MARK: Final = "quaestor-canary"
"""Response field by which that answer is known, with the server's clock in ms."""
_WITHIN_S: Final = 30.0
_LOOK_AGAIN_S: Final = 0.25
_SKEW_S: Final = 5.0

Purge = Callable[[Sequence[str], Sequence[str]], Awaitable[None]]
"""Purges tags and URLs; returns when it was acknowledged."""


class Level(StrEnum):
    """Levels of a finding."""

    OK = "ok"
    WARN = "warn"
    """Right, but of less use than it could be."""
    BLOCK = "block"
    """Purges have no effect: nothing may rely on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Finding about one CDN.

    sentence: what was found, and what mends it.
    """

    level: Level
    sentence: str


@runtime_checkable
class DoubtfulCdn(Protocol):
    """A CDN adapter that can be told that its purges have no effect."""

    def doubt(self, doubtful: bool) -> None:
        """Let copies live for a short time only, or as long as otherwise again."""


def canary_tag(scope: str) -> str:
    """The surrogate key of the canary's answer in one deployment."""
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


class Canaries:
    """The canaries of one process: one for each CDN whose public address is known.

    addresses: by the CDN's name.
    purge_of: purges one CDN.
    """

    def __init__(
        self,
        cdn: Sequence[CdnAdapter],
        *,
        addresses: dict[str, str],
        tag: str,
        purge_of: Callable[[CdnAdapter], Purge],
        telemetry: Telemetry,
        within_s: float = _WITHIN_S,
    ) -> None:
        self._cdn = cdn
        self._addresses = addresses
        self._tag = tag
        self._purge_of = purge_of
        self._telemetry = telemetry
        self._within_s = within_s

    async def run(self, every_s: float) -> None:
        """Check at once, and again and again. Several processes do so, not in step."""
        while True:
            for adapter in self._cdn:
                if adapter.name in self._addresses:
                    with suppress(StoreError):
                        await self.check(adapter)
            await asyncio.sleep(every_s * random.uniform(0.8, 1.2))

    async def check(self, adapter: CdnAdapter) -> Finding:
        """Check one CDN, tell the metrics and the log, and rely on it no longer if its purges have no effect."""
        purge = self._purge_of(adapter)
        found = await check(self._addresses[adapter.name], self._tag, purge, within_s=self._within_s)
        for level in Level:
            self._telemetry.purging.canary.labels(adapter.name, level.value).set(level is found.level)
        if isinstance(adapter, DoubtfulCdn):
            adapter.doubt(found.level is Level.BLOCK)
        if found.level is not Level.OK:
            self._telemetry.failure("cdn", "cdn.canary_failed", found.sentence, cdn=adapter.name)
        return found

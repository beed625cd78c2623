"""Checks of proxies in front of live routes: a stream of events is opened through a public URL, as a browser opens it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import httpx

from quaestor.doctor.diagnosis import Diagnosis, mend, ok, warn
from quaestor.doctor.live_sockets import SUBJECT, socket_diagnosis

_LEAST_S: Final = 5.0
"""Time for the first event, or five times the time of the plain answer if that is longer."""
_SLACK_S: Final = 2.0
_UNBUFFERED: Final = (
    "proxy_buffering off;  # nginx, in the location of the live routes",
    "# nginx without proxy_ignore_headers X-Accel-Buffering; elsewhere: no buffering, no compression of text/event-stream",
)


class _Seen(Enum):
    """Pieces of a stream, and its end."""

    EVENT = auto()
    SIGN_OF_LIFE = auto()
    END_EVENT = auto()
    NOTHING = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class LiveUrls:
    """Public URLs to examine.

    urls: live routes (http, https) and endpoints of live queries (ws, wss).
    heartbeat_s: interval of the signs of life of an idle stream.
    """

    urls: tuple[str, ...]
    heartbeat_s: float

    async def examined(self) -> list[Diagnosis]:
        """Diagnoses of all URLs, side by side."""
        findings = await asyncio.gather(*(_examined(url, self.heartbeat_s) for url in self.urls))
        return list(findings)


async def _examined(url: str, heartbeat_s: float) -> Diagnosis:
    if url.startswith(("ws://", "wss://")):
        return await socket_diagnosis(url)
    try:
        async with httpx.AsyncClient(timeout=httpx.Timeout(30.0, read=None)) as client:
            return await _stream_diagnosis(client, url, heartbeat_s)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return mend(SUBJECT, f"{url}: no answer ({error!r})")
    except TimeoutError:
        return mend(SUBJECT, f"{url}: no answer to a plain GET within 30 s")


async def _stream_diagnosis(client: httpx.AsyncClient, url: str, heartbeat_s: float) -> Diagnosis:
    began_s = time.monotonic()
    async with asyncio.timeout(30.0):
        await client.get(url)
    patience_s = max(_LEAST_S, 5 * (time.monotonic() - began_s))
    request = client.build_request("GET", url, headers={"accept": "text/event-stream"})
    try:
        async with asyncio.timeout(patience_s):
            response = await client.send(request, stream=True)
    except TimeoutError:
        return mend(
            SUBJECT, f"{url}: a proxy holds the stream back: a plain GET is answered, and no event came", *_UNBUFFERED
        )
    try:
        return _refusal(url, response) or await _events_diagnosis(url, response, patience_s, heartbeat_s)
    finally:
        await response.aclose()


def _refusal(url: str, response: httpx.Response) -> Diagnosis | None:
    """Diagnosis of an answer that is no stream."""
    status, kind = response.status_code, response.headers.get("content-type", "")
    if status == 406:
        return warn(SUBJECT, f"{url}: the route cannot be followed", "@cached(live=True)  # on its handler")
    if status in (401, 403):
        return warn(SUBJECT, f"{url}: the application wants credentials ({status}); name a public live route instead")
    if status != 200:
        return mend(SUBJECT, f"{url}: the request for a stream got status {status}")
    if not kind.lower().startswith("text/event-stream"):
        return mend(
            SUBJECT,
            f"{url}: the request for a stream got a plain answer ({kind or 'no type'}): a cache answered with a copy, or the "
            "application has no live route",
            "# let the cache pass requests with Accept: text/event-stream, or follow Vary: Accept",
            "@cached(live=True)  # on its handler",
        )
    return None


async def _events_diagnosis(url: str, response: httpx.Response, patience_s: float, heartbeat_s: float) -> Diagnosis:
    async with aclosing(_pieces(response)) as pieces:
        first = await _next(pieces, patience_s)
        if first is _Seen.NOTHING:
            return mend(SUBJECT, f"{url}: a proxy holds events back: the stream began, and no event came", *_UNBUFFERED)
        if first is _Seen.END_EVENT:
            return warn(SUBJECT, f"{url}: the application ended the stream at once; its event `end` has the reason")
        if first is _Seen.END:
            return mend(SUBJECT, f"{url}: the stream was cut before its first event")
        began_s = time.monotonic()
        while (seen := await _next(pieces, began_s + 1.5 * heartbeat_s + _SLACK_S - time.monotonic())) is _Seen.EVENT:
            pass
        idle_s = time.monotonic() - began_s
    if seen is _Seen.SIGN_OF_LIFE or seen is _Seen.END_EVENT:
        return ok(SUBJECT, f"{url}: events pass at once, and so did a sign of life after {idle_s:.1f} s")
    if seen is _Seen.END:
        return mend(
            SUBJECT,
            f"{url}: a proxy cut an idle stream after {idle_s:.1f} s, before a sign of life (live_heartbeat_ms)",
            "proxy_read_timeout 60s;  # nginx; elsewhere the idle time-out of the proxy",
            f"QUAESTOR_LIVE_HEARTBEAT_MS={max(10, int(idle_s * 500))}  # or more signs of life",
        )
    return warn(
        SUBJECT,
        f"{url}: events pass at once; no sign of life came within {idle_s:.1f} s. Does the application have another "
        f"live_heartbeat_ms than {heartbeat_s * 1_000:.0f}, or does a proxy hold short pieces back?",
    )


async def _pieces(response: httpx.Response) -> AsyncGenerator[_Seen, None]:
    """Events and comments of a stream, and its end."""
    name, data = "", False
    try:
        async for line in response.aiter_lines():
            if line.startswith(":"):
                yield _Seen.EVENT if "unchanged" in line else _Seen.SIGN_OF_LIFE
            elif line.startswith("event:"):
                name = line[6:].strip()
            elif line.startswith("data:"):
                data = True
            elif not line:
                if data:
                    yield _Seen.END_EVENT if name == "end" else _Seen.EVENT
                name, data = "", False
    except httpx.TransportError:
        pass
    yield _Seen.END


async def _next(pieces: AsyncIterator[_Seen], within_s: float) -> _Seen:
    try:
        async with asyncio.timeout(max(0.0, within_s)):
            return await anext(pieces, _Seen.END)
    except TimeoutError:
        return _Seen.NOTHING

"""HTTP source: a POST with JSON objects writes records, and is answered once they are durable."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from quaestor.channels.feeds.feed import MOST_RECORDS, Feed, Taken
from quaestor.channels.feeds.records import FeedError, Incoming, Inflated, Lines, Objects
from quaestor.errors import DependencyError
from quaestor.observability.telemetry import Telemetry

_KEY: Final = re.compile(r"[\x21-\x7e]{1,200}")
_BATCH_BYTES: Final = 8 << 20
_SLOWEST: Final = 1_024
"""Bytes a second that a client sends at least, once it has taken as long as a silent client may."""
_LINES: Final = ("application/x-ndjson", "application/jsonl", "application/ndjson")


class HttpSource:
    """POST requests of one feed.

    most_bytes: of a body, when it is expanded. A body with an idempotency key is one batch, at most 8 MiB.
    waiting: requests that may wait for the feed; further ones are answered 429.
    silent_s: time after which a silent client is left, and a client that sends less than 1 KiB a second.
    """

    def __init__(
        self,
        feed: Feed,
        telemetry: Telemetry,
        *,
        most_bytes: int = 1 << 30,
        waiting: int = 16,
        silent_s: float = 30.0,
    ) -> None:
        self._feed = feed
        self._telemetry = telemetry
        self._most_bytes = most_bytes
        self._waiting = waiting
        self._silent_s = silent_s
        self._lock = asyncio.Lock()
        self._requests = 0
        self._is_stopped = False
        self._idle = asyncio.Event()
        self._idle.set()

    async def stop(self) -> None:
        """Refuse further requests, and return when the present ones are answered."""
        self._is_stopped = True
        await self._idle.wait()

    async def answer(self, request: Request) -> Response:
        """Answer a request."""
        name = self._feed.definition.name
        if self._is_stopped:
            return _refused(503, f"the feed {name!r} is stopped", retry_after_s=10)
        if self._requests >= self._waiting:
            self._telemetry.feeds.refused.labels(name).inc()
            return _refused(429, "too many requests wait for this feed", retry_after_s=1)
        self._requests += 1
        self._idle.clear()
        try:
            return await self._answer(request)
        except FeedError as error:
            return _refused(413 if "more than" in str(error) else 400, str(error))
        except TimeoutError as error:
            return _refused(408, str(error) or f"no bytes came for {self._silent_s:g} s")
        except DependencyError as error:
            self._telemetry.failure("feeds", "feeds.write_failed", error, feed=name)
            return _refused(503, "the records cannot be written now", retry_after_s=5)
        except ClientDisconnect:
            return _refused(400, "the client has left")
        finally:
            self._requests -= 1
            if not self._requests:
                self._idle.set()

    async def _answer(self, request: Request) -> Response:
        key = request.headers.get("idempotency-key", "").strip('"')
        if key and not _KEY.fullmatch(key):
            return _refused(400, "an idempotency key has 1 to 200 printable characters")
        accepted = rejected = 0
        is_repeated = False
        async for batch in self._batches(request, whole=bool(key)):
            async with self._lock:
                taken: Taken = await asyncio.to_thread(self._feed.take, batch, key)
            accepted, rejected = accepted + taken.accepted, rejected + taken.rejected
            is_repeated |= taken.is_repeated
        return JSONResponse({"accepted": accepted, "rejected": rejected, "repeated": is_repeated})

    async def _batches(self, request: Request, *, whole: bool) -> AsyncIterator[list[Incoming]]:
        """Yield the records of a body in batches. whole: all of them in one batch, if they fit."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        splitter = Lines() if kind in _LINES else Objects()
        batch: list[Incoming] = []
        size = 0
        async for part in self._parts(request):
            for data in splitter.feed(part):
                batch.append(Incoming(data))
                size += len(data)
            if size > _BATCH_BYTES and whole:
                raise FeedError(f"a body with an idempotency key has no more than {_BATCH_BYTES} bytes")
            if not whole and (len(batch) >= MOST_RECORDS or size > _BATCH_BYTES):
                yield batch
                batch, size = [], 0
        batch += [Incoming(data) for data in splitter.end()]
        if batch:
            yield batch

    async def _parts(self, request: Request) -> AsyncIterator[bytes]:
        """Yield the body in parts, expanded, and bounded in size and silence."""
        encoding = request.headers.get("content-encoding", "identity").lower()
        if encoding not in ("identity", "gzip"):
            raise FeedError(f"the content encoding {encoding!r} is unknown: send gzip, or none")
        expand: Callable[[bytes], Iterator[bytes]] | None = (
            Inflated(self._most_bytes).feed if encoding == "gzip" else None
        )
        read, waited_s = 0, 0.0
        stream = aiter(request.stream())
        while True:
            began_s = time.monotonic()
            async with asyncio.timeout(self._silent_s):
                part = await anext(stream, None)
            if part is None:
                return
            read += len(part)
            waited_s += time.monotonic() - began_s  # only the client's time: it does not answer for the writing
            if waited_s > self._silent_s and read < waited_s * _SLOWEST:
                raise TimeoutError(f"less than {_SLOWEST} bytes a second came")
            if read > self._most_bytes:
                raise FeedError(f"a body has no more than {self._most_bytes} bytes")
            for expanded in [part] if expand is None else expand(part):
                yield expanded


def _refused(status: int, reason: str, *, retry_after_s: int = 0) -> Response:
    """Refuse a request and close its connection: the rest of the body is not read."""
    fields = {"connection": "close"}
    if retry_after_s:
        fields["retry-after"] = str(retry_after_s)
    return JSONResponse({"error": reason}, status_code=status, headers=fields)

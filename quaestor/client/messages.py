"""Requests and responses in httpx's form: which belong to the client, and how they are sent and made."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping

import httpx

from quaestor.client.copies import Copy
from quaestor.client.levels import EXTENSION, FROM_CACHE
from quaestor.client.server_time import Moment
from quaestor.client.sketches import NONCES, SketchRequest
from quaestor.client.steps import Ask, Source
from quaestor.errors import ConfigurationError

SKETCH_TIMEOUT_S = 5.0
"""Timeout of a load: no request waits for a sketch."""
_SCHEMES = ("http", "https")


_WITH_SLEEP = getattr(time, "CLOCK_BOOTTIME", None)
"""Linux's monotonic clock that goes on while the machine is suspended; `time.monotonic` stands still then."""


def moment() -> Moment:
    """Return the present moment by both clocks of this machine."""
    monotonic_s = time.monotonic() if _WITH_SLEEP is None else time.clock_gettime(_WITH_SLEEP)
    return Moment(time.time() * 1000, monotonic_s * 1000)


def fields_of(request: httpx.Request) -> dict[str, str]:
    """Return the header fields of a request by their names in lower case. Faster than httpx's own look-up, name by name."""
    fields: dict[str, str] = {}
    for raw_name, raw_value in request.headers.raw:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        fields[name] = f"{fields[name]}, {value}" if name in fields else value
    return fields


def nonce() -> int:
    """Return a number that no cache has seen."""
    return 1 + secrets.randbelow(NONCES)


class Server:
    """The server whose answers are kept.

    Raises ConfigurationError for an invalid URL or path.
    """

    def __init__(self, url: str, sketch: str) -> None:
        try:
            parsed = httpx.URL(url)
        except (httpx.InvalidURL, TypeError) as error:
            raise ConfigurationError(f"the server must be a URL such as https://shop.example, not {url!r}") from error
        if parsed.scheme not in _SCHEMES or not parsed.host:
            raise ConfigurationError(f"the server must be a URL such as https://shop.example, not {url!r}")
        if not sketch.startswith("/") or "?" in sketch or "#" in sketch:
            raise ConfigurationError(f"sketch must be a path such as /quaestor/sketch, not {sketch!r}")
        self._scheme, self._name, self._port = parsed.raw_scheme, parsed.raw_host, parsed.port
        self._host = parsed.netloc.decode("ascii")
        self._sketch = parsed.copy_with(path=sketch, query=None, fragment=None, username=None, password=None)

    def serves(self, url: httpx.URL, request_fields: Mapping[str, str]) -> bool:
        """Whether a request is for this server, by its URL and its field `Host`."""
        named = url.raw_host == self._name and url.raw_scheme == self._scheme and url.port == self._port
        return named and request_fields.get("host", "").lower() == self._host

    def sketch_request(self, request: SketchRequest) -> httpx.Request:
        """Return a request for a sketch, without cookies and credentials."""
        path = self._sketch.path + (f"/{request.partition}" if request.partition else "")
        url = self._sketch.copy_with(path=path, query=b"nonce=%d" % request.nonce if request.nonce else None)
        return httpx.Request(
            "GET", url, headers=list(request.headers),
            extensions={"timeout": dict.fromkeys(("connect", "read", "write", "pool"), SKETCH_TIMEOUT_S)},
        )  # fmt: skip


def waits_s(request: httpx.Request) -> float | None:
    """Return how long a request waits for the answer to an equal one, in s: its read timeout. None: without limit."""
    limit = request.extensions.get("timeout", {}).get("read")
    return limit if isinstance(limit, int | float) else None


def sent(request: httpx.Request, ask: Ask) -> httpx.Request:
    """Return a request in the form to send. The caller's own is not changed."""
    if not ask.fields:
        return request
    headers = [*request.headers.raw, *((name.encode(), value.encode("latin-1")) for name, value in ask.fields)]
    return httpx.Request(
        request.method, request.url, headers=headers, stream=request.stream, extensions=request.extensions
    )


def response_of(copy: Copy, source: Source) -> httpx.Response:
    """Return an answer out of memory."""
    return httpx.Response(
        200, headers=list(copy.headers), stream=httpx.ByteStream(copy.body),
        extensions={"http_version": b"HTTP/1.1", EXTENSION: source, FROM_CACHE: True},
    )  # fmt: skip


class _Collector:
    """The bytes of one body, up to a limit. `whole` receives them when the body is complete."""

    def __init__(self, limit_bytes: int, whole: Callable[[bytes], object]) -> None:
        self._chunks: list[bytes] = []
        self._room = limit_bytes
        self._whole = whole

    def add(self, chunk: bytes) -> None:
        self._room -= len(chunk)
        if self._room >= 0:
            self._chunks.append(chunk)
        else:
            self._chunks.clear()

    def end(self) -> None:
        if self._room >= 0:
            self._whole(b"".join(self._chunks))


class KeptAsyncStream(httpx.AsyncByteStream):
    """A body that is passed on as it comes, and kept when it is complete."""

    def __init__(self, stream: httpx.AsyncByteStream, limit_bytes: int, whole: Callable[[bytes], object]) -> None:
        self._stream = stream
        self._collector = _Collector(limit_bytes, whole)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._collector.add(chunk)
            yield chunk
        self._collector.end()

    async def aclose(self) -> None:
        """Close the underlying stream."""
        await self._stream.aclose()


class ResumedAsyncStream(httpx.AsyncByteStream):
    """A body that was read in part already."""

    def __init__(self, read: bytes, rest: AsyncIterator[bytes], stream: httpx.AsyncByteStream) -> None:
        self._read, self._rest, self._stream = read, rest, stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._read
        async for chunk in self._rest:
            yield chunk

    async def aclose(self) -> None:
        """Close the underlying stream."""
        await self._stream.aclose()


class ResumedSyncStream(httpx.SyncByteStream):
    """A partly read body for the synchronous transport."""

    def __init__(self, read: bytes, rest: Iterator[bytes], stream: httpx.SyncByteStream) -> None:
        self._read, self._rest, self._stream = read, rest, stream

    def __iter__(self) -> Iterator[bytes]:
        yield self._read
        yield from self._rest

    def close(self) -> None:
        """Close the underlying stream."""
        self._stream.close()


class KeptSyncStream(httpx.SyncByteStream):
    """A kept body for the synchronous transport."""

    def __init__(self, stream: httpx.SyncByteStream, limit_bytes: int, whole: Callable[[bytes], object]) -> None:
        self._stream = stream
        self._collector = _Collector(limit_bytes, whole)

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            self._collector.add(chunk)
            yield chunk
        self._collector.end()

    def close(self) -> None:
        """Close the underlying stream."""
        self._stream.close()

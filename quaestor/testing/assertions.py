"""Assertions on whether an application's answers come from cache, by their field Cache-Status (RFC 9211)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

_WITHIN_S: Final = 5.0
_AGAIN_S: Final = 0.02


class Answer(Protocol):
    """Answer of a client: `httpx.Response`, or one like it."""

    @property
    def headers(self) -> Mapping[str, str]: ...


AnswerT = TypeVar("AnswerT", bound=Answer)
AnswerT_co = TypeVar("AnswerT_co", bound=Answer, covariant=True)


class Client(Protocol[AnswerT_co]):
    """Client of an application: Starlette's TestClient, `httpx.Client`."""

    @property
    def get(self) -> Callable[..., AnswerT_co]: ...


class AsyncClient(Protocol[AnswerT_co]):
    """Asynchronous client of an application: `httpx.AsyncClient`."""

    @property
    def get(self) -> Callable[..., Awaitable[AnswerT_co]]: ...


def assert_cached(client: Client[AnswerT], url: str, *, within_s: float = _WITHIN_S, **request: Any) -> AnswerT:
    """Ask for a URL until the answer comes from cache, and return that answer.

    request: further arguments of the client's get(), such as headers.

    Raises AssertionError with the last Cache-Status if no answer came from cache within so many seconds.
    """
    end_s = time.monotonic() + within_s
    while not _hit(answer := client.get(url, **request)):
        _require_time(url, answer, end_s, within_s)
        time.sleep(_AGAIN_S)
    return answer


async def assert_cached_async(
    client: AsyncClient[AnswerT], url: str, *, within_s: float = _WITHIN_S, **request: Any
) -> AnswerT:
    """Assert as assert_cached() does, with an asynchronous client."""
    end_s = time.monotonic() + within_s
    while not _hit(answer := await client.get(url, **request)):
        _require_time(url, answer, end_s, within_s)
        await asyncio.sleep(_AGAIN_S)
    return answer


def assert_not_cached(client: Client[AnswerT], url: str, **request: Any) -> AnswerT:
    """Ask for a URL once, and return the answer. Raises AssertionError if it comes from cache."""
    return _fresh(url, client.get(url, **request))


async def assert_not_cached_async(client: AsyncClient[AnswerT], url: str, **request: Any) -> AnswerT:
    """Assert as assert_not_cached() does, with an asynchronous client."""
    return _fresh(url, await client.get(url, **request))


def assert_invalidated_by(
    write: Callable[[], object],
    client: Client[AnswerT],
    url: str,
    *,
    within_s: float = _WITHIN_S,
    **request: Any,
) -> AnswerT:
    """Assert that a write ends the cached answer of a URL; returns the first answer after that.

    The URL is cached first, see assert_cached(). `write` is then called once. The URL is asked for until an answer comes from the
    handler, or from a newer entry: its ETag differs. With a Quaestor in the same process that is the first answer after
    `settled_sync()`; the assertion also works over HTTP, where the process is another one.

    Raises AssertionError with the last Cache-Status if the entry from before the write is still served after within_s seconds.
    """
    entity = _entity(assert_cached(client, url, within_s=within_s, **request))
    write()
    end_s = time.monotonic() + within_s
    while _hit(answer := client.get(url, **request)) and _entity(answer) == entity:
        _require_ended(url, answer, end_s, within_s)
        time.sleep(_AGAIN_S)
    return answer


async def assert_invalidated_by_async(
    write: Callable[[], Awaitable[object]],
    client: AsyncClient[AnswerT],
    url: str,
    *,
    within_s: float = _WITHIN_S,
    **request: Any,
) -> AnswerT:
    """Assert as assert_invalidated_by() does, with an asynchronous client and write."""
    entity = _entity(await assert_cached_async(client, url, within_s=within_s, **request))
    await write()
    end_s = time.monotonic() + within_s
    while _hit(answer := await client.get(url, **request)) and _entity(answer) == entity:
        _require_ended(url, answer, end_s, within_s)
        await asyncio.sleep(_AGAIN_S)
    return answer


def _status(answer: Answer) -> str | None:
    return answer.headers.get("cache-status")


def _hit(answer: Answer) -> bool:
    return any(entry.strip().startswith("Quaestor; hit") for entry in (_status(answer) or "").split(","))


def _entity(answer: Answer) -> str | None:
    return answer.headers.get("etag")


def _require_ended(url: str, answer: Answer, end_s: float, within_s: float) -> None:
    if time.monotonic() >= end_s:
        raise AssertionError(
            f"{url} is still answered from the entry before the write after {within_s:g} s: Cache-Status: {_status(answer)}"
        )


def _fresh(url: str, answer: AnswerT) -> AnswerT:
    if _hit(answer):
        raise AssertionError(f"{url} was answered from cache (Cache-Status: {_status(answer)})")
    return answer


def _require_time(url: str, answer: Answer, end_s: float, within_s: float) -> None:
    if time.monotonic() < end_s:
        return
    status = _status(answer)
    why = "the answer has no Cache-Status: Quaestor's middleware is missing or turned off"
    raise AssertionError(
        f"{url} was not answered from cache within {within_s:g} s: "
        + (why if status is None else f"Cache-Status: {status}")
    )

"""Lists of ids, resolved member by member through the copies of a client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from quaestor.errors import ConfigurationError

AT_ONCE = 16
"""Members that are requested at a time."""


async def resolve(
    client: httpx.AsyncClient,
    ids: Iterable[Any],
    member: Callable[[Any], str],
    *,
    at_once: int = AT_ONCE,
    **options: Any,
) -> list[httpx.Response]:
    """Return the members of a list, in its order, requested concurrently; from memory where the client's transport allows.

    ids: of the list (`representation=ids` of the REST front).
    member: returns the URL of an id.
    at_once: requests at a time.
    options: of each request, as for `client.get`.

    A deleted member is a 404. An exception of one request ends all. Raises ConfigurationError if at_once is below 1.
    """
    _checked(at_once)
    turns = asyncio.Semaphore(at_once)

    async def fetch(identifier: Any) -> httpx.Response:
        async with turns:
            return await client.get(member(identifier), **options)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(fetch(identifier)) for identifier in ids]
    except BaseExceptionGroup as failed:  # raised like by the synchronous twin and by a single request
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


def resolve_sync(
    client: httpx.Client, ids: Iterable[Any], member: Callable[[Any], str], *, at_once: int = AT_ONCE, **options: Any
) -> list[httpx.Response]:
    """Resolve a list with the synchronous client, in threads."""
    _checked(at_once)
    with ThreadPoolExecutor(at_once, thread_name_prefix="quaestor-resolve") as threads:
        return list(threads.map(lambda identifier: client.get(member(identifier), **options), ids))


def _checked(at_once: int) -> None:
    if isinstance(at_once, bool) or not isinstance(at_once, int) or at_once < 1:
        raise ConfigurationError(f"at_once must be a number of requests, 1 or more; not {at_once!r}")

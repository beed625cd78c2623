"""Requests to a place: targets of any kinds and number, in batches of one kind that one request may carry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from quaestor.cdn_adapters.answers import Accepted, Answer, Delivered, Rejected, Throttled
from quaestor.cdn_adapters.batching import BatchLimits
from quaestor.cdn_adapters.capabilities import KINDS, Capabilities
from quaestor.cdn_adapters.place import Place, Send, Target
from quaestor.errors import CdnError

SIDE_BY_SIDE: Final = 8
"""Requests under way at once at a place without rates: few enough for any self-hosted cache, each on a connection."""


def at_once(limits: BatchLimits | None) -> int:
    """Return the requests that may be under way at once at a place without rates. With a pause after each request, it is 1."""
    return 1 if limits is not None and limits.pause_ms else SIDE_BY_SIDE


def requests_of(capabilities: Capabilities, targets: Sequence[Target]) -> Iterator[tuple[Target, ...]]:
    """Yield the targets in batches that the place takes, in order within a kind."""
    for kind in KINDS:
        batch: list[Target] = []
        size = 0
        for target in targets:
            if target.by != kind:
                continue
            length = len(target.value.encode()) + 1
            if batch and (len(batch) >= capabilities.batch_of(kind) or size + length > capabilities.batch_bytes + 1):
                yield tuple(batch)
                batch, size = [], 0
            batch.append(target)
            size += length
        if batch:
            yield tuple(batch)


@asynccontextmanager
async def sending(
    place: Place, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep, *, most: int = SIDE_BY_SIDE
) -> AsyncIterator[Send]:
    """Open a connection that purges any targets, in as many requests as needed, and waits until accepted purges are completed.

    most: requests under way at once at a place without rates.
    """
    most = 1 if place.capabilities.rates else most
    room = asyncio.Semaphore(most)
    async with place.connect() as connection:

        async def send_batch(batch: Sequence[Target]) -> None:
            async with room:
                answer = await connection.send(batch)
                while isinstance(answer, Accepted):
                    await sleep(answer.ask_after_s)
                    answer = await connection.completed(answer.ticket)
                raise_refusal(place, answer)

        async def send(targets: Sequence[Target]) -> None:
            requests = requests_of(place.capabilities, targets)
            if most == 1:  # the first refusal ends the purge
                for batch in requests:
                    await send_batch(batch)
                return
            for outcome in await asyncio.gather(*map(send_batch, requests), return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome

        yield send


def raise_refusal(place: Place, answer: Answer) -> None:
    """Raise CdnError for an answer that is no success."""
    if isinstance(answer, Rejected):
        raise CdnError(f"{place.name} at {place.address} refused a purge: {answer.reason}", retryable=False)
    if isinstance(answer, Throttled):
        raise CdnError(f"{place.name} at {place.address}: {answer.reason}", retry_after_s=answer.retry_after_s)
    assert isinstance(answer, Delivered | Accepted)

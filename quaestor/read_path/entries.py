"""Answers, entries made of them, and what the dependency index is told of an entry. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from quaestor.cache_sketch.limits import CLOCK_GRACE_MS
from quaestor.cache_sketch.partitions import in_partition
from quaestor.model import CachedResponse, Dependent
from quaestor.ports import Registered
from quaestor.read_path import freshness, validation
from quaestor.read_path.decision import Event
from quaestor.read_path.partial_answers import Part
from quaestor.store.memory import Resident

COPY_SLACK_MS = CLOCK_GRACE_MS
"""How much longer than fresh_until an outside copy may live: Age is sent in whole seconds, and answers take time to arrive.
For clients with the Cache Sketch, whose lifetimes count from a moment that they are told, it is grace for clocks that differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A handler's answer.

    headers: raw pairs, names in lower case, in order.
    part: the body is this part of the whole; then status and fields are those of the whole.
    """

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes
    part: Part | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome of an admission.

    event: KEPT with the resident entry; otherwise the answer must not be kept.
    reasons: why not, as labels.
    detail: why not, as text for debugging.
    """

    event: Event
    resident: Resident | None = None
    reasons: tuple[str, ...] = ()
    detail: str = ""


def in_groups(answer: Answer, groups: Sequence[str]) -> Answer:
    """The answer with the cache groups of its route, as it would name them itself (RFC 9875); empty and unprintable names, and
    names that are not ASCII, do not exist."""
    named = [group for group in groups if group.isascii() and group.isprintable()]
    if not named:
        return answer
    escaped = (group.replace("\\", "\\\\").replace('"', '\\"') for group in named)
    field = ", ".join(f'"{group}"' for group in escaped).encode("ascii")
    return replace(answer, headers=[*answer.headers, (b"cache-groups", field)])


def guarded_entry(
    answer: Answer,
    registered: Registered,
    *,
    key: str,
    resource: str,
    now_ms: int,
    ttl_ms: int,
    window_ms: int,
    cost_ms: int = 0,
    valid_until_ms: int | None = None,
    copies_ms: int | None = None,
    partition: str = "",
    at_most_ms: int | None = None,
) -> CachedResponse | None:
    """An entry that registrations guard. None if the handler does not let it live for a moment.

    ttl_ms: the longest lifetime; the handler's own shortens it.
    window_ms: how long it may be used stale after that.
    cost_ms: how long it took to make it.
    valid_until_ms: when it is over whatever anybody says, for stale use too.
    copies_ms: how long copies outside may be used, never for longer than the entry; None: there are none, or the Cache Sketch
        is not told of them.
    partition: of the sketch.
    at_most_ms: the bound of a route on probation; None: its route has passed.
    """
    if at_most_ms is not None:
        ttl_ms = min(ttl_ms, at_most_ms)
    allowed_s = freshness.shared_lifetime_s(answer.headers, now_s=now_ms / 1000)
    if allowed_s is not None:
        ttl_ms = min(ttl_ms, allowed_s * 1000)
    if valid_until_ms is not None:
        ttl_ms = min(ttl_ms, valid_until_ms - now_ms)
        window_ms = min(window_ms, valid_until_ms - now_ms - ttl_ms)
    if ttl_ms <= 0:
        return None
    given = freshness.values(answer.headers, b"etag")
    etag = given[0] if len(given) == 1 and validation.valid_etag(given[0]) else validation.strong_etag(answer.body)
    return CachedResponse(
        key=key,
        status=answer.status,
        headers=tuple(answer.headers),
        body=answer.body,
        etag=etag,
        stored_at_ms=now_ms,
        fresh_until_ms=now_ms + ttl_ms,
        registrations=registered.ids,
        tags=registered.tags,
        resource=resource,
        stale_until_ms=now_ms + ttl_ms + window_ms if window_ms else 0,
        cost_ms=max(0, cost_ms),
        copies_until_ms=0 if copies_ms is None else now_ms + (copies_ms if 0 < copies_ms < ttl_ms else ttl_ms),
        partition=partition,
        provisional=ttl_ms == at_most_ms,
    )


def kept_until_ms(response: CachedResponse) -> int:
    """The end of an entry's use for anything, in ms."""
    return max(response.fresh_until_ms, response.stale_until_ms)


def sketch_name(response: CachedResponse) -> str:
    """The name of an entry in the Cache Sketch."""
    return in_partition(response.resource, response.partition)


def dependent(response: CachedResponse, urls: tuple[str, ...]) -> Dependent:
    """The record of an entry in the dependency index, with the URLs under which copies may be outside."""
    return Dependent(
        key=response.key,
        registrations=response.registrations,
        resource=sketch_name(response),
        urls=urls,
        tags=response.tags,
        copies_until_ms=kept_until_ms(response) + COPY_SLACK_MS,
    )

"""Answers, the entries made of them, and the records of entries in the dependency index. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from quaestor.cache_sketch.limits import CLOCK_GRACE_MS
from quaestor.cache_sketch.partitions import in_partition
from quaestor.clock import End
from quaestor.fast_init import fast_init
from quaestor.model import CachedResponse, Dependent
from quaestor.ports import Registered
from quaestor.read_path import freshness, validation
from quaestor.read_path.decision import Event
from quaestor.read_path.partial_answers import Part
from quaestor.store.memory import Resident

COPY_SLACK_MS = CLOCK_GRACE_MS
"""How much longer than fresh_until an outside copy may live: Age has whole seconds, and answers take time to arrive. For clients
with the Cache Sketch it is the grace for clocks that differ: their lifetimes count from a time in the answer."""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A handler's answer.

    headers: raw pairs, names in lower case, in order.
    part: the body is this part of the whole; status and fields then belong to the whole.
    """

    status: int
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes
    part: Part | None = None


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome of an admission.

    event: KEPT with the resident entry; otherwise the answer must not be kept.
    reasons: why it is not kept, as labels.
    detail: why it is not kept, as text for debugging.
    """

    event: Event
    resident: Resident | None = None
    reasons: tuple[str, ...] = ()
    detail: str = ""


def in_groups(answer: Answer, groups: Sequence[str]) -> Answer:
    """Return the answer with its route's cache groups as a field (RFC 9875). Names that are empty, unprintable or not ASCII are
    left out."""
    named = [group for group in groups if group.isascii() and group.isprintable()]
    if not named:
        return answer
    escaped = (group.replace("\\", "\\\\").replace('"', '\\"') for group in named)
    field = ", ".join(f'"{group}"' for group in escaped).encode("ascii")
    return replace(answer, headers=[*answer.headers, (b"cache-groups", field)])


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class EntryBounds:
    """Bounds of an entry's use, in ms.

    ttl_ms: the longest lifetime; the handler's own shortens it.
    window_ms: time of stale use after that.
    at_most_ms: the bound of a route on probation; None: its route has passed.
    valid_until_ms: the end of any use, stale use too; None: it has no end.
    copies_ms: longest use of copies outside, never longer than the entry's; None: there are none, or the Cache Sketch
        does not know them.
    """

    ttl_ms: int
    window_ms: int
    at_most_ms: int | None = None
    valid_until_ms: int | None = None
    copies_ms: int | None = None


def guarded_entry(
    answer: Answer,
    registered: Registered,
    bounds: EntryBounds,
    *,
    key: str,
    resource: str,
    now_ms: int,
    cost_ms: int = 0,
    partition: str = "",
) -> CachedResponse | None:
    """Return an entry that registrations guard. None if the handler gives it no lifetime at all.

    cost_ms: duration of the handler run.
    partition: of the sketch.
    """
    ttl_ms, window_ms, at_most_ms = bounds.ttl_ms, bounds.window_ms, bounds.at_most_ms
    copies_ms, valid_until_ms = bounds.copies_ms, bounds.valid_until_ms
    if registered.valid_until_ms is not None:
        valid_until_ms = min(registered.valid_until_ms, valid_until_ms or registered.valid_until_ms)
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
        ends=(End.PROBATION if ttl_ms == at_most_ms else End.NEITHER)
        | (End.NEITHER if registered.valid_until_ms is None else End.CLOCK),
    )


def kept_until_ms(response: CachedResponse) -> int:
    """Return the end of an entry's use for any purpose, in ms."""
    return max(response.fresh_until_ms, response.stale_until_ms)


def sketch_name(response: CachedResponse) -> str:
    """Return the name of an entry in the Cache Sketch."""
    return in_partition(response.resource, response.partition)


def dependent(response: CachedResponse, urls: tuple[str, ...]) -> Dependent:
    """Return the record of an entry in the dependency index, with the URLs under which copies may be outside."""
    return Dependent(
        key=response.key,
        registrations=response.registrations,
        resource=sketch_name(response),
        urls=urls,
        tags=response.tags,
        copies_until_ms=kept_until_ms(response) + COPY_SLACK_MS,
    )

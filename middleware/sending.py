"""Answers from an entry: whole, without a body for HEAD, in parts for range requests, or as 304 if the client has the answer."""

from __future__ import annotations

import secrets

from quaestor.middleware.context import ExchangeContext
from quaestor.middleware.headers import LIFETIME
from quaestor.middleware.interface import RawHeaders, Send
from quaestor.middleware.partial_answers import in_part
from quaestor.middleware.sending_watched import send_watched, watched
from quaestor.model import CachedResponse
from quaestor.read_path import ranges, validation
from quaestor.read_path.request import RequestFacts
from quaestor.read_path.shared_cache_rules import is_explicit
from quaestor.store.memory import Resident


async def send_entry(
    context: ExchangeContext,
    resident: Resident,
    *,
    how: bytes | None = None,
    stale: bool = False,
    received: bool = False,
    layer: str = "memory",
) -> bool:
    """Answer from an entry that is live at this moment. False: it died before anything was sent.

    how: the parameters of Cache-Status; None for a hit.
    stale: its lifetime is over, so no purged CDN may keep it.
    received, layer: see HeaderPolicy.stored.
    """
    read_path, outgoing, facts, target = context.parts.read_path, context.parts.outgoing, context.facts, context.target
    policy, response = context.plan.policy, resident.response
    by_itself = is_explicit(response)  # then its origin's fields go out unchanged
    # Caches outside may keep no answer to a body, and no stale answer that purges must find.
    leave = by_itself or not (facts.has_body or (stale and outgoing.purges))
    if leave and not by_itself and outgoing.purges and not policy.personal and target.url not in resident.urls:
        leave = await read_path.admission.announcement.register_url(resident, target.url)
        if not leave and not read_path.usability.servable(response):
            return False
    if leave and not by_itself and read_path.copies.over(resident):
        if not outgoing.leaves(policy):
            read_path.copies.leave_none(resident)
        else:
            leave = await read_path.copies.renew(resident, target.url)
            if not leave and not read_path.usability.servable(response):
                return False
            if not leave and not outgoing.leaves_to_all(policy):
                read_path.copies.leave_none_yet(resident)
                leave = True  # copies that are revalidated every time
    if context.reading is not None:
        context.reading.stored(response)
    now_ms = read_path.clock()
    if how is None:
        headers = outgoing.hit(resident, now_ms, policy)
    else:
        headers = outgoing.stored(resident, now_ms, how, policy, received=received, layer=layer)
    if not leave:
        headers = outgoing.without_leave(headers)
    elif not target.own and not by_itself:
        headers = outgoing.to_be_revalidated(headers)
    status, body = response.status, response.body
    if response.status == 200 and not facts.has_body and has_it(response, facts):
        status, body, headers = 304, b"", outgoing.not_modified(headers)
    elif context.is_head:
        body = b""
    elif response.status == 200 and facts.byte_range is not None:
        status, headers, body = in_parts(response, facts, headers)
    elif response.status == 206:
        status, headers, body = in_part(response, facts, headers)
    if status in (206, 416):
        headers = [field for field in headers if field[0] != LIFETIME]
    watch = leave and outgoing.purges and not by_itself and bool(body) and watched(response)
    if watch:
        resident.rendered = None  # so that the next request for it is watched as well
    # New messages and a new list: a middleware around this one may change them.
    await context.send({"type": "http.response.start", "status": status, "headers": list(headers)})
    if watch:
        await send_watched(context, response, body)
    else:
        await context.send({"type": "http.response.body", "body": body})
    return True


async def refuse(send: Send) -> None:
    """Answer `only-if-cached` with 504 where no stored answer can be sent (RFC 9111, section 5.2.1.7)."""
    headers = [
        (b"content-length", b"0"),
        (b"cache-control", b"no-store"),
        (b"cache-status", b"Quaestor; detail=absent"),
    ]
    await send({"type": "http.response.start", "status": 504, "headers": headers})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def has_it(response: CachedResponse, facts: RequestFacts) -> bool:
    """Whether the client's conditions show that it holds this very answer (RFC 9110, section 13.2.2)."""
    if facts.if_none_match is not None:
        return validation.none_match_fails(facts.if_none_match, response.etag)
    if facts.if_modified_since is not None:
        changed = next((value for name, value in response.headers if name == b"last-modified"), None)
        if changed is None and is_explicit(response):
            # A guarded entry can be newer than a copy of the same second, so only its Last-Modified counts.
            changed = next((value for name, value in response.headers if name == b"date"), None)
        return not validation.modified_since(facts.if_modified_since, changed)
    return False


def in_parts(response: CachedResponse, facts: RequestFacts, headers: RawHeaders) -> tuple[int, RawHeaders, bytes]:
    """Return status, fields and body for a GET with a Range field: 206, 416, or the whole (RFC 9110, section 14.2)."""
    whole = (response.status, headers, response.body)
    if (b"accept-ranges", b"none") in response.headers:
        return whole
    size = len(response.body)
    parts = ranges.spans(facts.byte_range, size)
    if parts is None or not ranges.if_range_holds(
        facts.if_range, response.headers, response.etag, stored_at_s=response.stored_at_ms / 1000
    ):
        return whole
    if not parts:
        kept = [(name, value) for name, value in headers if name not in _OF_THE_CONTENT]
        return 416, [*kept, (b"content-range", b"bytes */%d" % size), (b"content-length", b"0")], b""
    if len(parts) == 1:
        body = response.body[parts[0].first : parts[0].last + 1]
        kept = [(name, value) for name, value in headers if name != b"content-length"]
        kept.append((b"content-range", ranges.content_range(parts[0], size)))
    else:
        boundary = secrets.token_hex(16).encode()
        content_type = next((value for name, value in response.headers if name == b"content-type"), None)
        body = ranges.multipart(response.body, parts, content_type=content_type, boundary=boundary)
        kept = [(name, value) for name, value in headers if name not in (b"content-length", b"content-type")]
        kept.append((b"content-type", b"multipart/byteranges; boundary=" + boundary))
    return 206, [*kept, (b"content-length", b"%d" % len(body))], body


_OF_THE_CONTENT = frozenset(
    {
        b"content-length",
        b"content-type",
        b"content-encoding",
        b"content-language",
        b"content-location",
        b"etag",
        b"last-modified",
    }
)
"""Fields about the content, which a 416 does not carry."""

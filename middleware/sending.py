"""Sending an entry: whole, without its body to HEAD, or as 304 to whoever has it already."""

from __future__ import annotations

from middleware.headers import HeaderPolicy
from middleware.interface import Send
from quaestor.model import CachedResponse
from quaestor.read_path import validation
from quaestor.read_path.key import Target
from quaestor.read_path.policy import RoutePolicy
from quaestor.read_path.request import RequestFacts
from quaestor.read_path.service import ReadPath
from quaestor.store.memory import Resident


async def send_resident(
    read_path: ReadPath,
    outgoing: HeaderPolicy,
    resident: Resident,
    send: Send,
    *,
    target: Target,
    facts: RequestFacts,
    policy: RoutePolicy,
    head: bool,
    how: bytes | None = None,
) -> bool:
    """Answer from an entry that is live at this moment. False: it died before anything was sent.

    how: the parameters of Cache-Status; None for a hit.
    """
    response = resident.response
    leave = True
    if outgoing.purges and target.url not in resident.urls:
        leave = await read_path.allow(resident, target.url)
        if not leave and not read_path.alive(response):
            return False
    now_ms = read_path.clock()
    headers = outgoing.hit(resident, now_ms, policy) if how is None else outgoing.stored(resident, now_ms, how, policy)
    if not leave:
        headers = outgoing.without_leave(headers)
    status, body = response.status, response.body
    if response.status == 200 and has_it(response, facts):
        status, body, headers = 304, b"", outgoing.not_modified(headers)
    elif head:
        body = b""
    # Fresh messages and a fresh list: whoever wraps us may change them.
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})
    return True


def has_it(response: CachedResponse, facts: RequestFacts) -> bool:
    """Whether the client's conditions say that it holds this very answer (RFC 9110, section 13.2.2)."""
    if facts.if_none_match is not None:
        return validation.none_match_fails(facts.if_none_match, response.etag)
    if facts.if_modified_since is not None:
        changed = next((value for name, value in response.headers if name == b"last-modified"), None)
        return not validation.modified_since(facts.if_modified_since, changed)
    return False

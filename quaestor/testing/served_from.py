"""Part of the stack that answered, from the headers of a response, as any outside observer sees them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class ServedFrom(StrEnum):
    """Part of the stack that answered."""

    VARNISH = "varnish"
    """Varnish had it."""
    APP = "app"
    """The app's cache had it, or the answer of a request that was under way served this one too (`collapsed`)."""
    HANDLER = "handler"
    """The handler ran and asked the database."""


def served_from(headers: Mapping[str, str]) -> ServedFrom:
    """Part of the stack that answered.

    Each cache on the way adds a member to Cache-Status (RFC 9211), the cache nearest to the user last.

    headers: case-insensitive, as httpx gives them, or with lower-case names.
    """
    hits = set()
    for member in headers.get("cache-status", "").split(","):
        cache, *parameters = (part.strip().lower() for part in member.split(";"))
        if "hit" in parameters or "collapsed" in parameters:
            hits.add(cache)
    if "varnish" in hits:
        return ServedFrom.VARNISH
    return ServedFrom.APP if "quaestor" in hits else ServedFrom.HANDLER

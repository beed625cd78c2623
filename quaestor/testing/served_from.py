"""Part of the stack that answered, derived from the headers of a response, which any outside observer can see."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class ServedFrom(StrEnum):
    """Part of the stack that answered."""

    VARNISH = "varnish"
    """Varnish answered."""
    APP = "app"
    """The app's cache answered, or this request shared the answer of a request under way (`collapsed`)."""
    HANDLER = "handler"
    """The handler ran and asked the database."""


def served_from(headers: Mapping[str, str]) -> ServedFrom:
    """Part of the stack that answered.

    Each cache on the way adds a member to Cache-Status (RFC 9211), the cache nearest to the user last.

    headers: case-insensitive headers, as httpx gives them, or with lower-case names.
    """
    hits = set()
    for member in headers.get("cache-status", "").split(","):
        cache, *parameters = (part.strip().lower() for part in member.split(";"))
        if "hit" in parameters or "collapsed" in parameters:
            hits.add(cache)
    if "varnish" in hits:
        return ServedFrom.VARNISH
    return ServedFrom.APP if "quaestor" in hits else ServedFrom.HANDLER

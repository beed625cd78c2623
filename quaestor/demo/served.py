"""Who answered: told from the headers of a response, as any outside observer could."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class ServedFrom(StrEnum):
    VARNISH = "varnish"
    """Varnish had it."""
    APP = "app"
    """The app's cache had it."""
    HANDLER = "handler"
    """The handler ran and asked the database."""


def served_from(headers: Mapping[str, str]) -> ServedFrom:
    """Varnish names two transactions in X-Varnish on a hit; the app says `hit` in Cache-Status (RFC 9211).

    headers: case-insensitive, as httpx gives them.
    """
    if len(headers.get("x-varnish", "").split()) == 2:
        return ServedFrom.VARNISH
    for member in headers.get("cache-status", "").split(","):
        cache, *parameters = (part.strip() for part in member.split(";"))
        if cache.lower() == "quaestor" and "hit" in parameters:
            return ServedFrom.APP
    return ServedFrom.HANDLER

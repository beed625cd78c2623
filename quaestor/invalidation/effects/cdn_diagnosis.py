"""Facts about an application that decide the limits and bounds of its CDNs."""

from __future__ import annotations

from quaestor.cdn_ports import Facts
from quaestor.invalidation.registry.surrogate_tags import everything_tag, tag
from quaestor.settings import Settings


def facts_of(settings: Settings) -> Facts:
    """Return the facts that an application's settings contain."""
    return Facts(lives_ms=settings.lifetimes.ttl_max_ms, tags=(tag(""), everything_tag(settings.scope)))

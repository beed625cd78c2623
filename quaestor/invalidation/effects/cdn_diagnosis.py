"""Facts about an application by which the limits and bounds of its CDNs are judged."""

from __future__ import annotations

from quaestor.cdn_ports import Facts
from quaestor.invalidation.registry.surrogate_tags import everything_tag, tag
from quaestor.settings import Settings


def facts_of(settings: Settings) -> Facts:
    """The facts that an application's settings tell."""
    return Facts(lives_ms=settings.lifetimes.ttl_max_ms, tags=(tag(""), everything_tag(settings.scope)))

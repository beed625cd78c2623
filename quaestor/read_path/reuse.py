"""Reuse of a stored answer for a request: RFC 9111, sections 4, 4.2.4 and 5.2.1, and RFC 5861. Pure.

A guarded entry is as good as the origin's answer until a write kills it. Its lifetime limits its use, and the handler or its
route allows stale use. An *explicit* entry is used as in a shared cache, and the request's directives are honoured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from quaestor.fast_init import fast_init
from quaestor.model import CachedResponse
from quaestor.policy import RoutePolicy
from quaestor.read_path import shared_cache_rules
from quaestor.read_path.freshness import Headers, delta_s

Asked = Mapping[str, str | None]

MAX_WINDOW_MS = 365 * 86_400_000
_FOREVER_MS = 1 << 50


class Use(Enum):
    """How an entry may be used for a request."""

    FRESH = auto()
    STALE = auto()
    """As it is, because the client accepts stale answers."""
    STALE_WHILE_REVALIDATE = auto()
    """As it is, while a background refresh runs the handler."""
    VALIDATE = auto()
    """Only after the origin has confirmed it."""


@fast_init
@dataclass(frozen=True, slots=True)
class Windows:
    """The times for which an answer may be used after its lifetime.

    strict: never stale, even if the client accepts it.
    validate: never without the origin's confirmation.
    """

    while_revalidate_ms: int
    if_error_ms: int
    strict: bool = False
    validate: bool = False

    @property
    def longest_ms(self) -> int:
        """The longer of both times."""
        return max(self.while_revalidate_ms, self.if_error_ms)


def windows(headers: Headers, policy: RoutePolicy) -> Windows:
    """Return the stale times that the answer allows (RFC 5861, sections 3 and 4), else its route's; none if it must be
    revalidated.

    `s-maxage` alone forbids stale use (section 5.2.2.10), but not stale use that another directive expressly allows.
    """
    said = shared_cache_rules.governing(headers)
    if not said.named:
        return Windows(_window_ms(None, policy.stale_while_revalidate_ms), _window_ms(None, policy.stale_if_error_ms))
    validate = "no-cache" in said
    if validate or "must-revalidate" in said or "proxy-revalidate" in said:
        return Windows(0, 0, strict=True, validate=validate)
    return Windows(
        _window_ms(said.lifetime_s("stale-while-revalidate"), policy.stale_while_revalidate_ms),
        _window_ms(said.lifetime_s("stale-if-error"), policy.stale_if_error_ms),
        strict="s-maxage" in said,
    )


def use_guarded(response: CachedResponse, allowed: Windows, *, now_ms: int) -> Use:
    """Return the use of a live guarded entry. Request directives do not count (see `request.RequestFacts`)."""
    late_ms = now_ms - response.fresh_until_ms
    if late_ms < 0:
        return Use.FRESH
    return Use.STALE_WHILE_REVALIDATE if late_ms < allowed.while_revalidate_ms else Use.VALIDATE


def use_explicit(response: CachedResponse, allowed: Windows, directives: Asked, *, now_ms: int) -> Use:
    """Return the use of an explicit entry."""
    late_ms = now_ms - response.fresh_until_ms
    age_ms = max(0, now_ms - response.stored_at_ms)
    if allowed.validate or "no-cache" in directives:
        return Use.VALIDATE
    if (
        "max-age" in directives
        and age_ms > delta_s(directives["max-age"]) * 1000
        and not _accepts(directives, allowed, late_ms)
    ):
        return Use.VALIDATE
    if late_ms + delta_s(directives.get("min-fresh") or "0") * 1000 < 0:
        return Use.FRESH
    if late_ms < 0:
        return Use.VALIDATE
    if late_ms < allowed.while_revalidate_ms and "max-age" not in directives and "min-fresh" not in directives:
        return Use.STALE_WHILE_REVALIDATE
    return Use.STALE if _accepts(directives, allowed, late_ms) else Use.VALIDATE


def may_serve_on_error(response: CachedResponse, allowed: Windows, directives: Asked, *, now_ms: int) -> bool:
    """Whether an entry may be sent instead of an error (RFC 5861, section 4); the request may ask for that as well."""
    window_ms = allowed.if_error_ms
    if not allowed.strict and "stale-if-error" in directives:
        window_ms = max(window_ms, _window_ms(delta_s(directives["stale-if-error"]), 0))
    # Without a window even a fresh entry is refused: the client has asked for the origin's own answer.
    return not allowed.validate and window_ms > 0 and now_ms - response.fresh_until_ms < window_ms


def _accepts(directives: Asked, allowed: Windows, late_ms: int) -> bool:
    """Whether the client accepts an answer so late: max-stale (section 5.2.1.2)."""
    if allowed.strict or "max-stale" not in directives:
        return False
    argument = directives["max-stale"]
    return late_ms < (_FOREVER_MS if argument is None else delta_s(argument) * 1000)


def _window_ms(said_s: int | None, otherwise_ms: int) -> int:
    return min(MAX_WINDOW_MS, otherwise_ms if said_s is None else said_s * 1000)

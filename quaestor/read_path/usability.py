"""Judgement of a stored entry: whether and how it may be used now. Every judgement holds until the next await."""

from __future__ import annotations

from collections.abc import Sequence

from quaestor.clock import Clock
from quaestor.model import CachedResponse
from quaestor.policy import RoutePolicy
from quaestor.ports import QueryRegistry
from quaestor.read_path import reuse, shared_cache_rules
from quaestor.settings import Settings


class Usability:
    """Judge of entries by their registrations and lifetimes; one per read path. No I/O."""

    def __init__(self, registry: QueryRegistry, settings: Settings, clock: Clock) -> None:
        self.clock = clock
        self._registry = registry
        self._settings = settings

    def live(self, registrations: Sequence[str]) -> bool:
        """Whether entries with these registrations may be served now."""
        return self._registry.live(registrations, now_ms=self.clock())

    def renewals(self, registrations: Sequence[str]) -> int:
        """Return a number that grows when one of these registrations is renewed after a write."""
        return self._registry.renewals(registrations)

    def live_as_of(self, registrations: Sequence[str], moment_ms: int) -> bool:
        """Whether it is proved that no write before a moment has killed one of these registrations."""
        return self._registry.live(registrations, now_ms=moment_ms + self._settings.grid.staleness_bound_ms)

    def valid(self, response: CachedResponse, now_ms: int) -> bool:
        """Whether nothing has invalidated an entry and it is not too old for any use; its lifetime may be over."""
        return now_ms < max(response.fresh_until_ms, response.stale_until_ms) and (
            not response.registrations or self._registry.live(response.registrations, now_ms=now_ms)
        )

    def stands(self, response: CachedResponse) -> bool:
        """Whether nothing has ended an entry: a lagging grid, or a recheck under way, is no end."""
        now_ms, ids = self.clock(), response.registrations
        return now_ms < response.fresh_until_ms and (
            not ids
            or self._registry.live(ids, now_ms=now_ms)
            or self._registry.lagging(ids, now_ms=now_ms)
            or self._registry.held(ids)
        )

    def servable(self, response: CachedResponse) -> bool:
        """Whether an entry may be served as it is: valid, and within its lifetime."""
        now_ms = self.clock()
        return now_ms < response.fresh_until_ms and self.valid(response, now_ms)

    def trusted(self, response: CachedResponse) -> bool:
        """Whether an entry out of the shared store may be used at all: valid, and this process would know of its death."""
        known = response.stored_at_ms >= self._registry.known_since_ms
        if shared_cache_rules.is_explicit(response):
            # Another process may keep explicit entries; this one may use them only with the same setting.
            known = self._settings.lifetimes.explicit
        return known and self.valid(response, self.clock())

    def use(self, response: CachedResponse, policy: RoutePolicy, directives: reuse.Asked) -> reuse.Use:
        """Return how an entry may be used for a request with these directives."""
        now_ms = self.clock()
        if not self.valid(response, now_ms):
            return reuse.Use.VALIDATE
        allowed = reuse.windows(response.headers, policy)
        if shared_cache_rules.is_explicit(response):
            return reuse.use_explicit(response, allowed, directives, now_ms=now_ms)
        return reuse.use_guarded(response, allowed, now_ms=now_ms)

    def may_serve_on_error(self, response: CachedResponse, policy: RoutePolicy, directives: reuse.Asked) -> bool:
        """Whether an entry may be sent instead of an error."""
        now_ms = self.clock()
        allowed = reuse.windows(response.headers, policy)
        return self.valid(response, now_ms) and reuse.may_serve_on_error(response, allowed, directives, now_ms=now_ms)

"""Answers that followers receive, and the interface to the cache's own read path, by which they are read."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol

from quaestor.model import CachedResponse, Uncacheable
from quaestor.policy import Live

Scope = MutableMapping[str, Any]

UNAUTHORIZED = frozenset({401, 403})
SHARED_UNSTORED = frozenset({"refused", "died", "lagging"})
"""Reasons of answers that could not be stored at that moment, and that all clients with the same key may receive."""
_MOMENTARY = SHARED_UNSTORED | {
    "failed", "not-serving", "unsettled", "doorkeeper", "condition", Uncacheable.READ_FAILED.value,
}  # fmt: skip
"""Reasons of this moment, which need not hold for the next answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedAnswer:
    """One answer of a followed URL.

    etag: entity tag, the same as of a plain GET.
    entry: the stored entry; None: the answer was not stored.
    names: registrations and labels whose invalidation ends the entry.
    reasons: why the answer was not stored.
    """

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    etag: bytes
    entry: CachedResponse | None = None
    names: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def unauthorized(self) -> bool:
        """Whether the handler refuses the client."""
        return self.status in UNAUTHORIZED

    @property
    def momentary(self) -> bool:
        """Whether the next run of the handler may be stored: the reason is of this moment, or the handler failed."""
        return self.entry is None and (
            self.status >= 500 or (bool(self.reasons) and _MOMENTARY.issuperset(self.reasons))
        )

    @property
    def shared(self) -> bool:
        """Whether all followers with the same key may receive it."""
        return self.entry is not None or (bool(self.reasons) and SHARED_UNSTORED.issuperset(self.reasons))

    def content_type(self) -> str:
        """Media type without parameters, in lower case; empty if the answer has none."""
        value = next((value for name, value in self.headers if name.lower() == b"content-type"), b"")
        return value.partition(b";")[0].strip().lower().decode("latin-1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """Name of the answer that a request follows.

    key: equal for requests that share an answer; None: the cache keeps out, so no other request shares it.
    reason: why the cache keeps out.
    live: how the route is followed; None: it cannot be followed.
    """

    key: str | None
    reason: str = ""
    live: Live | None = None


class Reader(Protocol):
    """The cache's read path, as followers need it."""

    def named(self, scope: Scope) -> Named:
        """Name of the answer that a request follows now. Its credentials are judged anew at each call. No I/O."""

    async def read(self, scope: Scope, *, withdrawn: Callable[[], None]) -> FollowedAnswer:
        """Answer to a GET like this one, from the cache or by one run of the handler. Raises what the handler raises.

        withdrawn: called if nothing guards the answer any more although it was not invalidated.
        """

    def valid(self, answer: FollowedAnswer) -> bool:
        """Whether an entry still is the answer, as far as is known in this process. No I/O."""

    def lives_s(self, answer: FollowedAnswer) -> float:
        """Time until the lifetime of an entry is over, in seconds."""

    def stands(self, answer: FollowedAnswer) -> bool:
        """Whether nothing has ended an entry; its part of the grid may lag. No I/O."""

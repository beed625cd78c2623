"""A stale entry: the conditions for the handler, and the entry's fate after the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from quaestor.middleware.context import ExchangeContext
from quaestor.middleware.interface import RawHeaders
from quaestor.middleware.storable_fields import of_connection
from quaestor.model import CachedResponse
from quaestor.read_path import freshening, shared_cache_rules
from quaestor.store.memory import Resident

_ERRORS = frozenset({500, 502, 503, 504})
"""Status codes that `stale-if-error` covers (RFC 5861, section 4)."""


class Settled(Enum):
    """The fate of a stale entry, decided by the handler's answer."""

    CONFIRMED = auto()
    """The entry is still valid."""
    MISLED = auto()
    """A 304, but about another answer."""
    SERVED_ON_ERROR = auto()
    """The entry is sent instead of an error."""
    COMPLETED = auto()
    """The entry is the beginning of an answer, and the rest is coming."""
    HAD = auto()
    """Nothing is sent: the client has the handler's answer already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleEntry:
    """A stored answer that may be used once the handler has confirmed it, or instead of an error.

    instead_of_errors: whether it may be sent instead of an error at all.
    """

    context: ExchangeContext
    resident: Resident
    instead_of_errors: bool = True

    @property
    def response(self) -> CachedResponse:
        """The stored answer."""
        return self.resident.response

    def conditions(self) -> RawHeaders:
        """Return the fields that ask the handler whether the entry is still valid. None for a guarded entry: it died of a write
        or of age, and the handler makes a new answer."""
        return freshening.conditions(self.response.headers) if shared_cache_rules.is_explicit(self.response) else []

    def settled(self, status: int, fields: Sequence[tuple[bytes, bytes]]) -> Settled | None:
        """Return the entry's fate after the handler's answer; None: the answer replaces it. SERVED_ON_ERROR is only a
        possibility: see may_serve_on_error()."""
        if status == 304 and self.conditions():
            return Settled.CONFIRMED if freshening.confirms(self.response.headers, fields) else Settled.MISLED
        return Settled.SERVED_ON_ERROR if status in _ERRORS else None

    def freshened(self, fields: Sequence[tuple[bytes, bytes]]) -> RawHeaders:
        """Return its header fields, updated by the fields of a confirming 304."""
        return list(freshening.freshened(self.response.headers, fields, dropped=of_connection(fields)))

    def may_serve_on_error(self) -> bool:
        """Whether it may be sent now instead of an error."""
        context = self.context
        return self.instead_of_errors and context.parts.read_path.usability.may_serve_on_error(
            self.response, context.plan.policy, context.facts.directives
        )

    def forwarded(self, *, confirmed: bool) -> bytes:
        """Return the reason for the handler run as Cache-Status parameters (RFC 9211, section 2.2).

        confirmed: the handler answered with a 304.
        """
        late = self.context.parts.read_path.clock() >= self.response.fresh_until_ms
        return b"fwd=%s%s" % (b"stale" if late else b"request", b"; fwd-status=304" if confirmed else b"")

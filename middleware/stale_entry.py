"""An entry that must not be used unasked: what it asks the handler, and what becomes of it by the answer."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from middleware.headers import of_connection
from middleware.interface import RawHeaders
from quaestor.model import CachedResponse
from quaestor.policy import RoutePolicy
from quaestor.read_path import freshening, shared_cache_rules
from quaestor.read_path.request import RequestFacts
from quaestor.read_path.service import ReadPath
from quaestor.store.memory import Resident

_ERRORS = frozenset({500, 502, 503, 504})
"""RFC 5861, section 4."""


class Settled(Enum):
    CONFIRMED = auto()
    """It still holds."""
    MISLED = auto()
    """A 304, but about another answer."""
    SERVED_ON_ERROR = auto()
    """It is sent instead of an error."""


class StaleEntry:
    """spares: whether it may be sent instead of an error.
    settled: what has become of it; None: the handler's answer takes its place.
    """

    def __init__(
        self,
        resident: Resident,
        read_path: ReadPath,
        policy: RoutePolicy,
        facts: RequestFacts,
        *,
        spares: bool = True,
    ) -> None:
        self._spares = spares
        self.resident = resident
        self.settled: Settled | None = None
        self._read_path = read_path
        self._policy = policy
        self._asked = facts.directives
        self.conditions: RawHeaders = (
            freshening.conditions(self.response.headers) if shared_cache_rules.is_explicit(self.response) else []
        )
        """What the handler is asked: an entry that queries guard died of a write or of age, and is asked for anew."""

    @property
    def response(self) -> CachedResponse:
        return self.resident.response

    def settle(self, status: int, fields: Sequence[tuple[bytes, bytes]]) -> Settled | None:
        """What the handler's answer means for it. SPARED is only a possibility, and not noted."""
        if status == 304 and self.conditions:
            confirmed = freshening.confirms(self.response.headers, fields)
            self.settled = Settled.CONFIRMED if confirmed else Settled.MISLED
            return self.settled
        return Settled.SERVED_ON_ERROR if status in _ERRORS else None

    def freshened(self, fields: Sequence[tuple[bytes, bytes]]) -> RawHeaders:
        return list(freshening.freshened(self.response.headers, fields, dropped=of_connection(fields)))

    def rescues(self) -> bool:
        return self._spares and self._read_path.rescues(self.response, self._policy, self._asked)

    def forwarded(self) -> bytes:
        """Why the handler was asked, as Cache-Status says it (RFC 9211, section 2.2)."""
        late = self._read_path.clock() >= self.response.fresh_until_ms
        return b"fwd=%s%s" % (b"stale" if late else b"request", b"; fwd-status=304" if self.settled else b"")

"""Registered queries by registration id: for usage reports of processes that know only the id."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument

from quaestor.errors import EventLayerError
from quaestor.event_layer import offsets
from quaestor.event_layer.codec import decode_query_event, type_of
from quaestor.event_layer.redis_pipelines import RedisPipelines
from quaestor.invalidation.grid.resizing.messages import TakenOver, concerns_resizing
from quaestor.invalidation.grid.resizing.messages import decode as decode_resizing
from quaestor.model import Cancellation, Registration, Usage
from quaestor.statistics.counted_reads import read_counted

MOST_KNOWN: Final = 200_000
_LOOK_BACK_MS: Final = 300_000
_MOST_LOOKED_AT: Final = 20_000
_AT_ONCE: Final = 500
_LONGEST_TENANT: Final = 200


def understood(payload: bytes) -> Registration | Cancellation | Usage | None:
    """Return the message about reads in a query pipeline entry; None for another message. Raises EventLayerError."""
    return decode_query_event(payload) if _tells(payload) else None


def _tells(payload: bytes) -> bool:
    """Whether an entry is about reads, not about subscribed queries or resizing; an unknown entry counts as unreadable."""
    letter = type_of(payload)
    return letter is None or letter in b"rcu"


class RegisteredQueries:
    """Registered queries of one query pipeline, the newest MOST_KNOWN.

    A hint: reads of unknown ones are counted without a query.
    """

    def __init__(self) -> None:
        self._queries: OrderedDict[str, str] = OrderedDict()
        self._up_to = offsets.START

    def add(self, registration: Registration) -> None:
        """Remember the query of a registration; the oldest gives way."""
        self._queries[registration.id] = registration.query_id
        if len(self._queries) > MOST_KNOWN:
            self._queries.popitem(last=False)

    def query_of(self, registration_id: str) -> str | None:
        """Return the id of a registration's query; None if it is unknown."""
        return self._queries.get(registration_id)

    def reached(self, offset: str) -> None:
        """Note that entries up to this offset have been added."""
        self._up_to = offset

    def look_back(self, layer: RedisPipelines, stream: str, until: str) -> None:
        """Read the last minutes before `until` if another process read them. Bounded. Raises EventLayerError."""
        if until == offsets.START or self._up_to == until:
            return
        after = layer.offset_at(stream, max(offsets.appended_at_ms(until) - _LOOK_BACK_MS, 0))
        for _ in range(_MOST_LOOKED_AT // _AT_ONCE):
            chunk = read_counted(layer, stream, after, count=_AT_ONCE)
            for entry in chunk.entries:
                if entry.offset > until:
                    return
                after = entry.offset
                if (registration := registration_in(entry.payload)) is not None:
                    self.add(registration)
            if len(chunk.entries) < _AT_ONCE:
                return


def tenant_in(payload: bytes) -> str | None:
    """Return the tenant of a registration or of a usage report; None if the entry is neither."""
    try:
        tenant = RawBSONDocument(payload).get("tenant") if _tells(payload) else None
    except BSONError:
        return None
    return tenant if isinstance(tenant, str) and 0 < len(tenant) <= _LONGEST_TENANT else None


def registration_in(payload: bytes) -> Registration | None:
    """Return the registration that an entry makes, or takes over from an older grid."""
    try:
        if concerns_resizing(payload):
            message = decode_resizing(payload)
            return message.registration if isinstance(message, TakenOver) else None
        event = understood(payload)
    except EventLayerError:
        return None
    return event if isinstance(event, Registration) else None

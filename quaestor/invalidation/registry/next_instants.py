"""Next instants of reads whose query follows the clock: when the first record, as it is stored now, begins or ceases to match.

One ordered read for each comparison with the clock finds the records with the nearest times. An index on the field makes it
cheap. Writes after the read are judged by the cells (invalidation/matching/clock_watches.py).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import anyio.to_thread
import pymongo
from bson.codec_options import CodecOptions
from pymongo.errors import PyMongoError
from pymongo.read_preferences import ReadPreference

from quaestor.clock import Clock, ReadClock
from quaestor.errors import DatabaseError, MalformedQueryError, NotCacheableError, UnsupportedQueryError
from quaestor.event_layer.codec import BSON_OPTIONS
from quaestor.model import CapturedRead, Document, Uncacheable
from quaestor.observability.telemetry import Telemetry
from quaestor.planning.moments import ms_of
from quaestor.planning.timed_conditions import Compared, TimedCondition

_MOST_RECORDS: Final = 16
"""Records that one ordered read returns."""
_WITHIN_MS: Final = 2_000
_COARSE_MS: Final = 20
"""Difference between two clocks of one mongod: `$$NOW` may come from its coarse clock."""

Client = pymongo.MongoClient[dict[str, Any]]


class NextInstants:
    """Next instants of the reads of one app process. `of` runs on an event loop; the rest in threads."""

    def __init__(self, clock: Clock, telemetry: Telemetry) -> None:
        self._clock = clock
        self._telemetry = telemetry
        self._client: Client | None = None

    def connect(self, client: Client) -> None:
        """Read by this client from now on."""
        self._client = client

    async def of(self, read: CapturedRead, *, until_ms: int) -> CapturedRead:
        """Return the read with its query as an ordinary one, for the earliest time of the read, and with its next instant.

        until_ms: no later instant matters.

        Raises NotCacheableError if the instant is not known, or over.
        """
        query = read.query
        strange = query.collation is not None or query.text_index is not None or query.widened is not None
        # The clock of a secondary is not known.
        strange = strange or (read.clock is not None and read.clock.of_database and not read.primary)
        if self._client is None or strange or read.clock is None:
            raise NotCacheableError((Uncacheable.CLOCK,))
        try:
            timed = await anyio.to_thread.run_sync(self._timed, self._client, read, until_ms)
        except (PyMongoError, DatabaseError) as error:
            self._telemetry.failure("mongodb", "registry.instants_unread", error)
            raise NotCacheableError((Uncacheable.CLOCK,)) from error
        except (UnsupportedQueryError, MalformedQueryError) as error:
            raise NotCacheableError((Uncacheable.CLOCK,)) from error
        assert timed.clock is not None
        if 0 < timed.clock.until_ms <= max(timed.clock.to_ms, self._clock()):
            raise NotCacheableError((Uncacheable.CLOCK,))
        return timed

    def _timed(self, client: Client, read: CapturedRead, until_ms: int) -> CapturedRead:
        query, clock = read.query, read.clock
        assert query.clock is not None
        assert clock is not None
        condition = TimedCondition(query.clock)
        if clock.of_database:
            least_ms, most_ms = self._ahead_ms(client)
            condition = condition.seen_from(most_ms)
            clock = clock._replace(from_ms=clock.from_ms - (most_ms - least_ms) - _COARSE_MS)
        instants = [
            self._first(client, query.namespace, condition, compared, clock, until_ms)
            for compared in condition.compared
        ]
        first_ms = min((instant for instant in instants if instant is not None), default=0)
        at_ms = condition.at(clock.from_ms)
        if query.pipeline:
            leading = {**query.pipeline[0], "$match": at_ms}
            query = replace(query, pipeline=(leading, *query.pipeline[1:]), clock=condition.condition)
        else:
            query = replace(query, filter=at_ms, clock=condition.condition)
        return replace(read, query=query, clock=clock._replace(until_ms=first_ms))

    def _ahead_ms(self, client: Client) -> tuple[int, int]:
        """Return by how much the database's clock is ahead of ours, at least and at most."""
        before_ms = self._clock()
        there_ms = ms_of(client.admin.command("hello", read_preference=ReadPreference.PRIMARY)["localTime"])
        return there_ms - self._clock() - 1, there_ms - before_ms + 1

    def _first(
        self,
        client: Client,
        namespace: str,
        condition: TimedCondition,
        compared: Compared,
        clock: ReadClock,
        until_ms: int,
    ) -> int | None:
        """Return the first instant at which this comparison may change a record; None: not until `until_ms`.

        Raises UnsupportedQueryError if arrays hide it.
        """
        from_ms = clock.from_ms
        database, _, collection = namespace.partition(".")
        options: CodecOptions[Any] = BSON_OPTIONS
        records: list[Document] = list(
            client.get_database(database, read_preference=ReadPreference.PRIMARY)
            .get_collection(collection, codec_options=options)
            .find(condition.changing(compared, after_ms=from_ms, until_ms=until_ms))
            .sort(compared.path, pymongo.ASCENDING)
            .limit(_MOST_RECORDS)
            .max_time_ms(_WITHIN_MS)
        )
        changes = [condition.next_change(record, after_ms=from_ms, until_ms=until_ms) for record in records]
        if len(records) == _MOST_RECORDS:
            changes.append(_beyond(records[-1], compared, from_ms))
        return min((change for change in changes if change is not None), default=None)


def _beyond(last: Document, compared: Compared, from_ms: int) -> int:
    """Return the earliest instant of the records behind the last one that was read. Their times are not earlier than its time."""
    value: Any = last
    for name in compared.path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if not isinstance(value, datetime):
        raise UnsupportedQueryError(f"arrays in {compared.path}, in many records with a time near now")
    at_ms = compared.moment.first_at(ms_of(value))
    return at_ms if at_ms > from_ms else compared.moment.first_at(ms_of(value) + 1)

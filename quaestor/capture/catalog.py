"""Definitions of a database's namespaces: collections, views on them, time-series collections; and their text indexes.

MongoDB 6.0 and later report each change of a definition in the change stream. An answer that was read through a view therefore
also registers the view itself, and ends with the event. A read just after the event may still be resolved by the old definition.
Therefore definitions are also listed, twice within the staleness bound, and changes are reported twice, one poll apart. A
registration that was on its way at the first report is there at the second. While there are no reads, nothing is listed.
Older servers report nothing: there the listing alone notices a change. `text_indexes.py` describes text indexes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import anyio
import anyio.to_thread
from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from quaestor.capture.index_keys import IndexKeys, Keys
from quaestor.capture.listing_errors import listing_error
from quaestor.capture.recorder import Outcome
from quaestor.capture.text_indexes import TextIndexes, holds_text, searches
from quaestor.capture.view_stages import through_views
from quaestor.capture.views import Definition, Kind, base_of, resolve
from quaestor.clock import Clock, system_clock
from quaestor.errors import DatabaseError, QueryError
from quaestor.model import CapturedRead, Operation, Query, Reason, Uncacheable
from quaestor.planning.index_order import first_fields_that_differ
from quaestor.planning.plan_cache import plan_of
from quaestor.query import aggregation

POLL_MS = 1_000
"""Default pause between two listings of a database."""
_MAX_AGE_POLLS = 2
_DEFINITIONS_REPORTED: Final = 17
"""Wire version of MongoDB 6.0, whose change streams report views, options and text indexes (showExpandedEvents)."""
_CAPPED_DELETES_REPORTED: Final = 13
"""Wire version of MongoDB 5.0, the first to log the records that a capped collection drops. Older drops are invisible."""

Definitions = Mapping[str, Definition]
"""Definitions by namespace. Plain collections without anything special are left out."""

IndexChanges = Mapping[str, tuple[Keys, frozenset[str]]]

_SPECIAL = {
    "$or": [
        {"type": {"$ne": "collection"}},
        {"options.collation": {"$exists": True}},
        {"options.capped": True},
        {"options.changeStreamPreAndPostImages": {"$exists": True}},
    ]
}
_MAY_SEARCH = frozenset({"$text", "$and", "$or"})
"""Names under which `$text` may stand in a filter, see text_indexes.holds_text."""
_KINDS: Mapping[str, Kind] = {kind.value: kind for kind in Kind}
_PLAIN = Definition(kind=Kind.COLLECTION)


class Catalog:
    """Definitions of every database in use, at most a few polls old. Thread-safe.

    on_changed: receives the namespaces whose reads may have another meaning now: the changed ones, and the collections
        below changed views. Called in the polling thread, twice per change.
    on_indexes: receives the namespaces whose indexes changed, in the same way: their keys now, and the first fields of the
        indexes that came or went. No fields where change events report them.
    poll_ms: pause between two listings.
    """

    def __init__(
        self,
        client: MongoClient[dict[str, Any]],
        *,
        on_changed: Callable[[frozenset[str]], None] = lambda namespaces: None,
        on_indexes: Callable[[IndexChanges], None] = lambda changes: None,
        poll_ms: int = POLL_MS,
        clock: Clock = system_clock,
    ) -> None:
        self._client = client
        self._on_changed = on_changed
        self._on_indexes = on_indexes
        self._poll_ms = poll_ms
        self._clock = clock
        self._known: dict[str, tuple[int, Definitions]] = {}
        self._changed: set[str] = set()
        self._reported_once: frozenset[str] = frozenset()
        self._indexes_reported_once: IndexChanges = {}
        self._texts = TextIndexes(client)
        self._indexes = IndexKeys(client)
        self._wire_version = 0
        self._used = False
        self._interrupted = False
        self._lock = threading.RLock()

    def definition(self, namespace: str) -> Definition:
        """Return the last listed definition of a namespace; lists its database if that is too old. Blocking.

        Raises DatabaseError.
        """
        self._used = True
        self._listed(_database(namespace))
        return self._lookup(namespace) or _PLAIN

    async def resolve(self, reads: Sequence[CapturedRead]) -> tuple[tuple[CapturedRead, ...], tuple[str, ...]]:
        """Return the reads to register, and the reasons (values of Uncacheable) why they cannot be registered."""
        outcome = await self.examine(reads)
        return outcome.reads, tuple(dict.fromkeys(str(reason) for reason, _ in outcome.reasons))

    def through_views(self, query: Query) -> Query:
        """Return a resolved query with its stages on collections instead of views, see view_stages. No I/O."""
        return through_views(query, self._lookup)

    async def examine(self, reads: Sequence[CapturedRead]) -> Outcome:
        """Return the reads as reads of collections. Call it after they were answered.

        Views are rewritten onto the collections below them; default collations and definitions of text indexes are filled in.

        No I/O while the databases are polled, except for `$text`. Never raises DatabaseError: a failed look-up is a reason not
        to cache.
        """
        self._used = True
        fresh: set[str] = set()
        for database in _databases(reads):
            if not self._is_listed(database):
                try:
                    if await anyio.to_thread.run_sync(self._listed, database):
                        fresh.add(database)
                except DatabaseError as error:
                    return Outcome(reads=(), reasons=(Reason(Uncacheable.VIEW, str(error)),))
        if not fresh and all(map(self._ordinary, reads)):
            return Outcome(reads=tuple(reads), reasons=())
        outcome = resolve(reads, self._lookup, capped_deletes_reported=self._wire_version >= _CAPPED_DELETES_REPORTED)
        reasons = outcome.reasons + self._unproven(reads, fresh)
        resolved = list(outcome.reads)
        if not reasons:
            for position, read in enumerate(resolved):
                if searches(read.query):
                    resolved[position], unknown = await anyio.to_thread.run_sync(self._with_text_index, read)
                    reasons += unknown
                elif self._wire_version < _DEFINITIONS_REPORTED and _searches_within(read):
                    reasons += (Reason(Uncacheable.UNREADABLE, "$text inside a pipeline, on a server before 6.0"),)
                if _leaves_order_open(resolved[position]):
                    resolved[position] = await self._with_index_keys(resolved[position])
        return Outcome(reads=tuple(resolved), reasons=reasons)

    def _ordinary(self, read: CapturedRead) -> bool:
        """Whether a read needs no resolving: a find, a count or a distinct on a collection without options."""
        query = read.query
        return (
            not query.pipeline
            and query.collation is None
            and query.operation is not Operation.AGGREGATE
            and query.filter.keys().isdisjoint(_MAY_SEARCH)
            and self._lookup(query.namespace) is None
            and (self._indexes.known(query.namespace) == () or not _leaves_order_open(read))
        )

    def _with_text_index(self, read: CapturedRead) -> tuple[CapturedRead, tuple[Reason, ...]]:
        """Return the read with the text index that answered its `$text`, or why that is unknown. Blocking."""
        namespace = read.query.namespace
        try:
            if self._wire_version >= _DEFINITIONS_REPORTED:
                definition = self._texts.now(namespace)
            elif self._texts.follow(namespace):
                definition = self._texts.known(namespace)
            else:
                return read, (
                    Reason(Uncacheable.VIEW, f"the text index of {namespace} was not known when it was read"),
                )
        except DatabaseError as error:
            return read, (Reason(Uncacheable.VIEW, str(error)),)
        return replace(read, query=replace(read.query, text_index=definition)), ()

    async def _with_index_keys(self, read: CapturedRead) -> CapturedRead:
        """Return the read with the indexes that may have ordered its result. I/O for a namespace seen for the first time."""
        namespace = read.query.namespace
        keys = self._indexes.known(namespace)
        if keys is None:
            keys = await anyio.to_thread.run_sync(self._indexes.follow, namespace)
        return replace(read, query=replace(read.query, index_keys=keys)) if keys else read

    def _unproven(self, reads: Sequence[CapturedRead], fresh: set[str]) -> tuple[Reason, ...]:
        """Return reasons against views that are new here: their definition may have changed since the read."""
        return tuple(
            Reason(Uncacheable.VIEW, f"the definition of {read.query.namespace} was not known when it was read")
            for read in reads
            if _database(read.query.namespace) in fresh
            and (definition := self._lookup(read.query.namespace)) is not None
            and definition.kind is Kind.VIEW
        )

    def poll(self) -> None:
        """List every database in use again and report changes. Blocking.

        Raises DatabaseError if one could not be listed, after all others were listed.
        """
        failure: DatabaseError | None = None
        self._used = False  # before the listing: a read from now on may still use the older one
        for database in list(self._known):
            try:
                self._list(database)
            except DatabaseError as error:
                failure = error
        self._poll_indexes()
        otherwise = self._texts.poll()
        with self._lock:
            self._changed |= otherwise
            changed, self._changed = frozenset(self._changed), set()
            reporting, self._reported_once = changed | self._reported_once, changed
        if reporting:
            self._on_changed(reporting)
        if failure is not None:
            raise failure

    def _poll_indexes(self) -> None:
        events = self._wire_version >= _DEFINITIONS_REPORTED
        changed = {
            namespace: (after, frozenset() if events else first_fields_that_differ(before, after))
            for namespace, (before, after) in self._indexes.poll().items()
        }
        again, self._indexes_reported_once = self._indexes_reported_once, changed
        for changes in (again, changed):
            if changes:
                self._on_indexes(changes)

    async def run(
        self,
        on_error: Callable[[DatabaseError], None] = lambda error: None,
        on_polled: Callable[[], None] = lambda: None,
    ) -> None:
        """Poll until cancelled, where a poll could find anything. Report an unreachable database to on_error and try again.

        After any other exception the failed poll is repeated first when this is called again.

        on_polled: called after each pass that listed all databases.
        """
        while True:
            await anyio.sleep(self._poll_ms / 1000)
            if not (self._interrupted or self.is_poll_due):
                self.rest()
                on_polled()
                continue
            self._interrupted = True
            try:
                await anyio.to_thread.run_sync(self.poll)
            except DatabaseError as error:
                on_error(error)
            else:
                on_polled()
            self._interrupted = False

    def rest(self) -> None:
        """Forget the keys of indexes, instead of listing them while there are no reads. The next read lists them anew."""
        self._indexes.forget()

    @property
    def is_poll_due(self) -> bool:
        """Whether only a poll would notice a change: there were reads since the last one, or no events report it."""
        if not self._known:
            return False
        events = self._wire_version >= _DEFINITIONS_REPORTED
        return not events or self._used or bool(self._changed or self._reported_once or self._indexes_reported_once)

    def _lookup(self, namespace: str) -> Definition | None:
        _, definitions = self._known.get(_database(namespace), (0, {}))
        return definitions.get(namespace)

    def _is_listed(self, database: str) -> bool:
        listed_ms, _ = self._known.get(database, (None, {}))
        return listed_ms is not None and self._clock() - listed_ms <= self._poll_ms * _MAX_AGE_POLLS

    def _listed(self, database: str) -> bool:
        """List the database unless that was done lately. Returns whether its definitions are new here."""
        with self._lock:
            if self._is_listed(database):
                return False
            _, before = self._known.get(database, (0, None))
            return self._list(database) != before

    def _list(self, database: str) -> Definitions:
        at_ms = self._clock()
        codec: CodecOptions[dict[str, Any]] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO)
        try:
            listed = self._client.get_database(database, codec_options=codec).list_collections(filter=_SPECIAL)
            definitions = {f"{database}.{entry['name']}": _definition(database, entry) for entry in listed}
            self._wire_version = self._client.admin.command("hello")["maxWireVersion"]
        except PyMongoError as error:
            what = f"cannot list the collections of {database}, so views and collections look alike"
            raise listing_error(what, error, privilege="listCollections") from error
        with self._lock:
            if database in self._known:
                self._changed |= _changes(self._known[database][1], definitions)
            self._known[database] = (at_ms, definitions)
        return definitions


def _definition(database: str, entry: Mapping[str, Any]) -> Definition:
    options = entry.get("options", {})
    images = options.get("changeStreamPreAndPostImages", {})
    return Definition(
        kind=_KINDS.get(entry.get("type", "collection"), Kind.UNKNOWN),
        view_on=f"{database}.{options['viewOn']}" if "viewOn" in options else "",
        pipeline=tuple(options.get("pipeline", ())),
        collation=options.get("collation"),
        images=bool(images.get("enabled")),
        capped=bool(options.get("capped")),
    )


def _changes(before: Definitions, after: Definitions) -> set[str]:
    """Return the namespaces whose reads have another meaning: the changed ones, and the collections below, before and after."""
    changed = set()
    for namespace in before.keys() | after.keys():
        if _meaning(before.get(namespace)) != _meaning(after.get(namespace)):
            changed |= {namespace, base_of(namespace, before.get), base_of(namespace, after.get)}
    return changed


def _meaning(definition: Definition | None) -> tuple[Any, ...] | None:
    if definition is None:
        definition = _PLAIN
    # As text, because the order of keys counts ($sort) and dicts compare without it.
    return definition.kind, definition.view_on, repr(definition.pipeline), repr(definition.collation)


def _searches_within(read: CapturedRead) -> bool:
    """Whether a pipeline holds `$text` after its beginning, which means on another collection."""
    return any(
        name == "$match" and holds_text(condition) for name, condition in aggregation.stages(read.query.pipeline)
    )


def _leaves_order_open(read: CapturedRead) -> bool:
    try:
        return plan_of(read.query).index_order.is_open
    except QueryError:
        return False


def _database(namespace: str) -> str:
    return namespace.partition(".")[0]


def _databases(reads: Sequence[CapturedRead]) -> set[str]:
    names = {_database(read.query.namespace) for read in reads}
    for read in reads:
        if read.query.pipeline:
            foreign = aggregation.foreign_namespaces(read.query.pipeline, _database(read.query.namespace))
            names |= {_database(namespace) for namespace in foreign}
    return names

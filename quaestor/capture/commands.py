"""Interpretation of commands: a command document becomes a Query, or the reasons not to cache its result. Pure: no clock, no I/O.

https://www.mongodb.com/docs/manual/reference/command/
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quaestor.capture.clock_conditions import plain, timed, with_names, without_times
from quaestor.capture.clock_values import ClockValue
from quaestor.capture.constants import Constant, constants_of
from quaestor.capture.run_constants import QueryConstants, query_constants
from quaestor.capture.snapshot import NOW, Findings, UuidRepresentation, snapshot
from quaestor.errors import UnsupportedQueryError
from quaestor.model import Document, Operation, Query, Reason, SortSpec, Uncacheable
from quaestor.planning.plan import HINTED
from quaestor.query import aggregation

HARMLESS = frozenset(
    {
        "hello", "ismaster", "ping", "buildinfo", "endsessions", "startsession", "refreshsessions", "killsessions",
        "saslstart", "saslcontinue", "authenticate", "getnonce", "logout", "killcursors", "aborttransaction",
        "committransaction",
    }
)  # fmt: skip
"""Commands whose reply contains no data (lower case: mongod accepts several spellings)."""

WRITES = frozenset(
    {
        "insert", "update", "delete", "findandmodify", "bulkwrite", "create", "drop", "dropdatabase", "createindexes",
        "dropindexes", "deleteindexes", "renamecollection", "collmod", "converttocapped", "clonecollectionascapped",
        "mapreduce", "applyops", "compact", "reindex", "createuser", "updateuser", "dropuser", "createrole", "updaterole",
        "droprole", "shardcollection", "reshardcollection", "setfeaturecompatibilityversion", "fsync",
    }
)  # fmt: skip

_SYSTEM_DATABASES = frozenset({"admin", "local", "config"})
_ENVELOPE = frozenset(
    {
        "lsid", "$clusterTime", "$db", "$readPreference", "readConcern", "txnNumber", "autocommit", "startTransaction",
        "apiVersion", "apiStrict", "apiDeprecationErrors", "comment", "maxTimeMS", "collation", "hint",
    }
)  # fmt: skip
"""Options of every read command. _common() evaluates the ones that change its result."""

_GOVERNING = frozenset({"autocommit", "readConcern", "hint"})
_BY_INDEX = ("min", "max", "returnKey", "showRecordId")
_ENDLESS = ("tailable", "awaitData", "oplogReplay", "allowPartialResults")
_HOLDING_CONSTANTS = ("filter", "pipeline", "let", "projection", "distinct_key")
_FIRST_BATCH = 101
"""Records of a first batch without a declared size."""
_RARE = frozenset({*_BY_INDEX, *_ENDLESS})
"""Options that most commands do not have: tested all at once."""

_OPTIONS: Mapping[str, frozenset[str]] = {
    "find": _ENVELOPE
    | {
        "find", "filter", "sort", "skip", "limit", "projection", "let", "batchSize", "singleBatch", "allowDiskUse",
        "noCursorTimeout", "min", "max", "returnKey", "showRecordId", "tailable", "awaitData", "allowPartialResults",
        "oplogReplay",
    },
    "count": _ENVELOPE | {"count", "query", "limit", "skip", "fields"},
    "distinct": _ENVELOPE | {"distinct", "key", "query"},
    "aggregate": _ENVELOPE
    | {"aggregate", "pipeline", "cursor", "let", "allowDiskUse", "bypassDocumentValidation", "explain"},
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Understood:
    """A command's read.

    query: None if it reads nothing that matters, or nothing that could be cached (then `reasons` gives the cause).
    reasons: non-empty if a response that used this must not be cached.
    instants: every point in time in the query, in ms since the epoch.
    clock_values: every value in it that may follow the clock.
    constants: its leaves, which may hold parts of the present time.
    in_run: its constants, for comparison with another run.
    keeps_records: the reply's documents are records with their whole `_id`, each perhaps with changed fields.
    primary_preference: the command may only be answered by a primary.
    description: "find on db.collection", for messages.
    declared_ms: what the clock showed for each declared time in it.
    """

    query: Query | None = None
    reasons: tuple[Reason, ...] = ()
    instants: tuple[int, ...] = ()
    clock_values: tuple[ClockValue, ...] = ()
    constants: tuple[Constant, ...] = ()
    in_run: QueryConstants | None = None
    keeps_records: bool = False
    primary_preference: bool = True
    description: str = ""
    declared_ms: tuple[int, ...] = ()


_NOTHING = Understood()


def unknown_uuids() -> int | None:
    """Return None: this caller does not know how the client encodes native UUIDs."""
    return None


def understand(
    name: str, command: Mapping[str, Any], database: str, uuid_representation: UuidRepresentation = unknown_uuids
) -> Understood:
    """Return the read of a command as a driver's listener receives it. Keeps no reference into `command`. O(size).

    name: of the command, in any spelling that mongod accepts.
    uuid_representation: called only if the command holds a native UUID.

    Every command that is not known to be harmless becomes UNREADABLE: uncertain means fresh.
    """
    kind = name.lower()
    read = _READS.get(kind)
    if read is not None:
        return read(command, database, uuid_representation)
    if kind in HARMLESS:
        return _NOTHING
    if kind in WRITES:
        return _refused(Uncacheable.WROTE, name)
    return _refused(Uncacheable.UNREADABLE, f"command {name}")


def _is_natural(hint: Any) -> bool:
    """Whether a hint asks for the records in stored order, so that no index leaves any out."""
    return isinstance(hint, Mapping) and list(hint) == ["$natural"]


def _refused(reason: Uncacheable, detail: str) -> Understood:
    return Understood(reasons=(Reason(reason, detail),), description=detail)


class _Reader:
    """Reader of one command's fields, which collects reasons, instants and grounds for widening on the way."""

    __slots__ = ("collection", "command", "database", "findings", "kind", "namespace", "uuids", "widened")

    def __init__(self, kind: str, command: Mapping[str, Any], database: str, uuids: UuidRepresentation) -> None:
        self.kind = kind
        self.command = command
        self.database = database
        self.collection = command[kind]
        self.namespace = f"{database}.{self.collection}"
        self.findings = Findings()
        self.uuids = uuids
        self.widened: str | None = None
        self._common()

    def refuse(self, reason: Uncacheable, detail: str) -> None:
        self.findings.reasons.append(Reason(reason, detail))

    def widen(self, reason: str) -> None:
        self.widened = self.widened or reason

    def copy(self, value: Any) -> Any:
        return snapshot(value, self.findings, self.uuids)

    def document(self, name: str) -> dict[str, Any] | None:
        """Return a sub-document, copied; None if absent or empty."""
        if name not in self.command:
            return None
        value = self.command[name]
        return snapshot(value, self.findings, self.uuids) if value else None

    def number(self, name: str) -> int:
        return abs(int(self.command[name] or 0)) if name in self.command else 0

    def _common(self) -> None:
        command = self.command
        if not isinstance(self.collection, str):
            self.refuse(Uncacheable.UNREADABLE, f"{self.kind} on a whole database")
        elif self.database in _SYSTEM_DATABASES or self.collection.startswith("system."):
            self.refuse(Uncacheable.UNREADABLE, f"{self.namespace} has no change stream")
        if not _GOVERNING.isdisjoint(command):
            if command.get("autocommit") is False:
                self.refuse(Uncacheable.TRANSACTION, f"{self.kind} on {self.namespace} in a transaction")
            concern = command.get("readConcern")
            if concern and (concern.get("level") == "snapshot" or "atClusterTime" in concern):
                self.refuse(Uncacheable.SNAPSHOT, f"{self.kind} on {self.namespace} reads a snapshot")
            if command.get("hint") and not _is_natural(command["hint"]):
                self.widen(HINTED)
        for option in command.keys() - _OPTIONS[self.kind]:
            self.refuse(Uncacheable.UNREADABLE, f"option {option} of {self.kind}")

    def understood(self, operation: Operation, *, keeps_records: bool = False, **fields: Any) -> Understood:
        """Return the result. If a part could not be copied faithfully, only the dependency on the collection is kept."""
        findings = self.findings
        looked_at = {name: fields.get(name) for name in _HOLDING_CONSTANTS}
        command, clock = self.command, None
        if findings.declared or Reason(*NOW) in findings.reasons:
            clock = self._clock(fields)
            looked_at = {name: without_times(value) for name, value in looked_at.items()}
            command = with_names(command) if findings.declared else command
            fields = {name: plain(value) for name, value in fields.items()}
        if findings.opaque is not None:
            fields, clock = {}, None
            keeps_records = False
            self.widen(findings.opaque)
        query = Query(
            namespace=self.namespace,
            operation=operation,
            collation=self.document("collation"),
            widened=self.widened,
            clock=clock,
            **({"filter": {}} | fields),
        )
        preference = self.command.get("$readPreference")
        return Understood(
            query=query,
            reasons=tuple(findings.reasons),
            instants=findings.instants(),
            clock_values=tuple(dict.fromkeys(findings.clock_values)),
            constants=constants_of(self.namespace, **looked_at),
            in_run=query_constants(command, self.database),
            keeps_records=keeps_records,
            primary_preference=preference is None or preference.get("mode") == "primary",
            description=f"{self.kind} on {self.namespace}",
            declared_ms=tuple(time.read_ms for time in findings.declared),
        )

    def _clock(self, fields: Mapping[str, Any]) -> Document | None:
        """Return the condition with moments, and drop the reasons against its times; None, with a reason, if there is none."""
        findings = self.findings
        try:
            if findings.opaque is not None or "collation" in self.command or "let" in self.command:
                raise UnsupportedQueryError("the clock beside a collation, let or a value of the client's own codec")
            clock = timed(fields, declared=bool(findings.declared))
        except UnsupportedQueryError as unplanned:
            self.refuse(Uncacheable.CLOCK, unplanned.reason)
            return None
        findings.reasons = [reason for reason in findings.reasons if reason != NOW]
        return clock


def _find(command: Mapping[str, Any], database: str, uuids: UuidRepresentation) -> Understood:
    reader = _Reader("find", command, database, uuids)
    if not _RARE.isdisjoint(command):
        for bound in _BY_INDEX:
            if command.get(bound):
                reader.widen(f"{bound}: the result depends on an index or a storage position")
        for endless in _ENDLESS:
            if command.get(endless):
                reader.refuse(Uncacheable.UNREADABLE, f"a find with {endless} has no result that stays")
    projection = reader.document("projection")
    return reader.understood(
        Operation.FIND,
        filter=reader.document("filter") or {},
        sort=_sort(reader),
        skip=reader.number("skip"),
        limit=_most(reader),
        projection=projection,
        let=reader.document("let"),
        keeps_records=not command.get("returnKey") and aggregation.whole_id(projection),
    )


def _most(reader: _Reader) -> int:
    """Return the number of records at which a find ends: its only batch limits it too."""
    limit = reader.number("limit")
    if not reader.command.get("singleBatch"):
        return limit
    batch = reader.number("batchSize") or _FIRST_BATCH
    return min(limit, batch) if limit else batch


def _sort(reader: _Reader) -> SortSpec:
    return tuple((reader.document("sort") or {}).items())


def _count(command: Mapping[str, Any], database: str, uuids: UuidRepresentation) -> Understood:
    reader = _Reader("count", command, database, uuids)
    condition = reader.document("query") or {}
    if not condition:
        reader.widen("estimated_document_count: the collection's own counter")
    return reader.understood(
        Operation.COUNT, filter=condition, skip=reader.number("skip"), limit=reader.number("limit")
    )


def _distinct(command: Mapping[str, Any], database: str, uuids: UuidRepresentation) -> Understood:
    reader = _Reader("distinct", command, database, uuids)
    return reader.understood(
        Operation.DISTINCT, filter=reader.document("query") or {}, distinct_key=str(command["key"])
    )


def _aggregate(command: Mapping[str, Any], database: str, uuids: UuidRepresentation) -> Understood:
    reader = _Reader("aggregate", command, database, uuids)
    if command.get("explain"):
        reader.refuse(Uncacheable.UNREADABLE, "explain")
    pipeline: Sequence[Mapping[str, Any]] = reader.copy(command.get("pipeline") or [])
    let = reader.document("let")
    for reason in aggregation.refusals(pipeline):
        reader.refuse(*reason)
    count = aggregation.as_count(pipeline)
    if count is not None:
        return reader.understood(Operation.COUNT, filter=count.filter, skip=count.skip, limit=count.limit, let=let)
    find = aggregation.as_find(pipeline)
    if find is not None:
        return reader.understood(
            Operation.FIND,
            filter=find.filter,
            sort=tuple(find.sort.items()),
            skip=find.skip,
            limit=find.limit,
            projection=find.projection,
            let=let,
            keeps_records=aggregation.whole_id(find.projection),
        )
    rows = aggregation.as_rows(pipeline)
    return reader.understood(Operation.AGGREGATE, pipeline=tuple(pipeline), let=let, keeps_records=rows is not None)


_READS: Mapping[str, Callable[[Mapping[str, Any], str, UuidRepresentation], Understood]] = {
    "find": _find,
    "count": _count,
    "distinct": _distinct,
    "aggregate": _aggregate,
}
READING = frozenset({*_READS, "getMore"})
"""Commands that bring data to the application."""

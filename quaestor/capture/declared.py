"""Declared reads: queries that an origin, for example one behind the proxy, reports instead of running them on a captured client.

A declaration is a JSON array (MongoDB Extended JSON) of objects:

    {"collection": "flights", "filter": {"origin": "JFK"}, "sort": {"scheduled": 1}, "limit": 20}

    | field | meaning |
    |---|---|
    | collection | required; with its database before a dot, or with "database" beside it |
    | database | of the collection, if it is not the default |
    | filter | as in find; {} if absent |
    | sort | as in find: an object, or fields like "scheduled,-_id" |
    | skip, limit, projection, collation, let | as in find |
    | pipeline | instead of filter to projection: as in aggregate |
    | count | true: only the number of matches is used |
    | distinct | a field name: only its distinct values are used |
    | operationTime | a timestamp: of the reply, as drivers report it |
    | secondary | true: read on a secondary; then operationTime is required, because nothing else dates the data |

or, for a dependency that is no query, of a tag to invalidate by: `{"tag": "prices"}`.

A declared query is treated like a captured command, so it has exactly the same meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bson import json_util
from bson.errors import BSONError
from bson.timestamp import Timestamp

from quaestor.capture.commands import Understood, understand
from quaestor.capture.declared_command import command_of, flag, shown
from quaestor.capture.recorder import ReadInProgress, Recorder
from quaestor.cluster_time import version_of
from quaestor.errors import MalformedQueryError
from quaestor.model import CapturedRead, Version
from quaestor.planning.plan import plan_query
from quaestor.tags import valid_tag

MAX_BYTES = 32 * 1024
"""Longest text of a declaration."""
MAX_QUERIES = 64
"""Most queries and tags in one declaration."""
MAX_DEPTH = 40
"""Deepest nesting of arrays and objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredRead:
    """One query of a declaration.

    understood: the read of the same query as a command.
    read_at: the reply's operationTime, if it was declared.
    primary: it was read on the primary.
    """

    understood: Understood
    read_at: Version | None = None
    primary: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The reads and tags that an answer depends on. At least one of the two is not empty."""

    reads: tuple[DeclaredRead, ...]
    tags: tuple[str, ...] = ()


def parse(text: bytes | str, *, database: str | None = None) -> Declaration:
    """Read a declaration from its text.

    database: of collections that are named without one.

    Raises MalformedQueryError, with the query and the fault, for a text that is no declaration and for a query that mongod
    refuses. Also beyond MAX_BYTES, MAX_QUERIES or MAX_DEPTH. O(size).
    """
    if len(text) > MAX_BYTES:
        raise MalformedQueryError(f"a declaration has at most {MAX_BYTES} bytes, not {len(text)}")
    try:
        given = json_util.loads(text.decode() if isinstance(text, bytes) else text)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError, BSONError) as error:
        raise MalformedQueryError(f"a declaration is an array in (extended) JSON: {_brief(error)}") from error
    return read(given, database=database)


def read(given: Any, *, database: str | None = None) -> Declaration:
    """Read a declaration that was decoded already. Raises MalformedQueryError as parse() does."""
    if not isinstance(given, list) or not given:
        raise MalformedQueryError("a declaration is an array with at least one query")
    if len(given) > MAX_QUERIES:
        raise MalformedQueryError(f"a declaration has at most {MAX_QUERIES} queries, not {len(given)}")
    if _deeper_than(given, MAX_DEPTH):
        raise MalformedQueryError(f"a declaration is nested at most {MAX_DEPTH} levels deep")
    reads: list[DeclaredRead] = []
    tags: list[str] = []
    for position, item in enumerate(given):
        try:
            if isinstance(item, dict) and item.keys() == {"tag"}:
                tags.append(_tag(item["tag"]))
            else:
                reads.append(_declared(item, database))
        except MalformedQueryError as error:
            raise MalformedQueryError(f"query {position}: {error}") from error
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, BSONError) as error:
            raise MalformedQueryError(f"query {position} cannot be read: {_brief(error)}") from error
    return Declaration(reads=tuple(reads), tags=tuple(dict.fromkeys(tags)))


def record(
    recorder: Recorder,
    declaration: Declaration,
    *,
    since: Version,
    duration_ms: float,
    controls: Sequence[CapturedRead] = (),
) -> None:
    """Add a declaration to the recording of the answer that depends on it.

    since: the watermark taken before the declaring origin was called: all writes up to it were visible to the reads.
    duration_ms: how long the origin took to answer.
    controls: the reads by which its tags and its URL are invalidated (see `quaestor.tags`).
    """
    for declared in declaration.reads:
        for reason in declared.understood.reasons:
            recorder.refuse(*reason)
        if declared.understood.query is not None:
            _record(recorder, declared, since, duration_ms)
    for control in controls:
        _record(recorder, DeclaredRead(understood=Understood(query=control.query)), since, duration_ms)


def _record(recorder: Recorder, declared: DeclaredRead, since: Version, duration_ms: float) -> None:
    request = object()
    recorder.begin(
        request,
        ReadInProgress(understood=declared.understood, operation_id=None, primary=declared.primary, ids=None),
    )
    recorder.replied(
        request,
        read_at=declared.read_at or since,
        ids=None,
        cursor=None,
        cursor_id=0,
        duration_ms=duration_ms,
    )


def _tag(given: Any) -> str:
    if not isinstance(given, str) or (reason := valid_tag(given)) is not None:
        raise MalformedQueryError(f"{shown(given)} is no tag: {reason if isinstance(given, str) else 'it is no text'}")
    return given


def _declared(item: Any, default: str | None) -> DeclaredRead:
    name, command, database = command_of(item, default)
    understood = understand(name, command, database)
    if understood.query is not None:
        plan_query(understood.query)
    at = item.get("operationTime")
    if at is not None and not isinstance(at, Timestamp):
        raise MalformedQueryError('operationTime is {"$timestamp": {"t": seconds, "i": number}}')
    secondary = flag(item, "secondary")
    if secondary and at is None:
        raise MalformedQueryError("a read on a secondary needs its operationTime")
    return DeclaredRead(understood=understood, read_at=None if at is None else version_of(at), primary=not secondary)


def _deeper_than(value: Any, levels: int) -> bool:
    """Whether a value is nested too deeply. Breadth first, because depth-first recursion might overflow the stack."""
    layer = [value]
    for _ in range(levels):
        layer = [
            inner
            for outer in layer
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not layer:
            return False
    return True


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]

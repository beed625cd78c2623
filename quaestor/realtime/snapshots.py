"""Snapshots of MongoDB at an exactly known version, from which a subscribed query begins or begins anew.

All collections of a query are read at one cluster time, at least as new as the writes that the stage has seen. Each write is
therefore either contained in the snapshot or newer. Images can be applied to the snapshot, each exactly once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pymongo
from bson.codec_options import CodecOptions
from pymongo.errors import OperationFailure, PyMongoError
from pymongo.read_preferences import ReadPreference

from quaestor.cluster_time import timestamp_of, version_of
from quaestor.errors import DatabaseError, UnsupportedQueryError
from quaestor.event_layer.codec import BSON_OPTIONS
from quaestor.model import Operation, Query, Version

_BATCH: Final = 1_000
_KNOWN_FOR_S: Final = 1.0
_MOST_KNOWN: Final = 10_000
_TRANSIENT: Final = frozenset({50, 91, 112, 133, 189, 202, 216, 239, 246, 262, 10107, 11600, 11602, 13435, 13436})
"""MaxTimeMSExpired, shutdowns, elections, snapshots that are too old or not there yet: the same read may succeed later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Records that some queries find, all at one version.

    version: what was read contains every write up to it and none after.
    own: of the first query.
    foreign: of the others, by namespace.
    """

    version: Version
    own: list[Any]
    foreign: dict[str, list[Any]]


class Snapshots(Protocol):
    """Source of snapshots for a stage. Called from several threads."""

    def lacking_images(
        self, namespaces: Sequence[str], *, at_least: Version, anew: bool = False, collated: bool = False
    ) -> tuple[str, ...]:
        """Collections that do not record the images before and after each write, as of `at_least` or later.

        anew: ignore a finding of a moment ago.
        collated: the query has a collation, so collections may have one too.

        Raises UnsupportedQueryError if one of them cannot be followed, DatabaseError if the database does not answer.
        """

    def read(self, queries: Sequence[Query], *, at_least: Version, recent: Version = 0) -> Snapshot:
        """Read what the queries find, all at one version: `recent`, if that is at least `at_least`; 0: the newest there is.

        Raises the same errors.
        """


class MongoSnapshots:
    """Snapshots of a MongoDB replica set.

    client: stays its owner's.
    max_records: a query that finds more is refused.
    timeout_ms: of each read.
    """

    def __init__(
        self, client: pymongo.MongoClient[Any], *, max_records: int = 100_000, timeout_ms: int = 30_000
    ) -> None:
        self._client = client
        self._max_records = max_records
        self._timeout_ms = timeout_ms
        self._known: dict[str, tuple[float, Mapping[str, Any]]] = {}

    def lacking_images(
        self, namespaces: Sequence[str], *, at_least: Version, anew: bool = False, collated: bool = False
    ) -> tuple[str, ...]:
        """See Snapshots."""
        if anew:
            for namespace in namespaces:
                self._known.pop(namespace, None)
        options = {namespace: self._options(namespace, at_least) for namespace in namespaces}
        for namespace, known in options.items():
            if not collated and known.get("collation", {}).get("locale", "simple") != "simple":
                raise UnsupportedQueryError(
                    f"{namespace} has a collation: strings compare by rules of a language; give the query this collation"
                )
        return tuple(
            namespace
            for namespace, known in options.items()
            if not known.get("changeStreamPreAndPostImages", {}).get("enabled")
        )

    def read(self, queries: Sequence[Query], *, at_least: Version, recent: Version = 0) -> Snapshot:
        """See Snapshots."""
        try:
            version = max(at_least, recent or self._newest())
            record_lists = [self._find(query, version) for query in queries]
        except PyMongoError as error:
            raise _translated(error, queries[0].namespace) from error
        foreign = {query.namespace: records for query, records in zip(queries[1:], record_lists[1:], strict=True)}
        return Snapshot(version=version, own=record_lists[0], foreign=foreign)

    def _newest(self) -> Version:
        reply = self._client.admin.command("ping")
        if "operationTime" not in reply:
            raise DatabaseError("subscribed queries need a replica set; start mongod with --replSet", retryable=False)
        return version_of(reply["operationTime"])

    def _options(self, namespace: str, at_least: Version) -> Mapping[str, Any]:
        """Options are read again after a second, or if the collection may have changed since. Refusals are not remembered."""
        known = self._known.get(namespace)
        if known is not None and known[0] > time.time() - _KNOWN_FOR_S and known[0] >= (at_least >> 32) + 2:
            return known[1]
        asked_s = time.time()
        options = self._options_now(namespace)
        if len(self._known) > _MOST_KNOWN:
            self._known.clear()
        self._known[namespace] = asked_s, options
        return options

    def _options_now(self, namespace: str) -> Mapping[str, Any]:
        database, _, name = namespace.partition(".")
        try:
            collections = list(self._client[database].list_collections(filter={"name": name}))
        except PyMongoError as error:
            raise _translated(error, namespace) from error
        if not collections:
            return {}
        options: Mapping[str, Any] = collections[0].get("options", {})
        kind = collections[0].get("type", "collection")
        if kind != "collection":
            raise UnsupportedQueryError(f"{namespace} is a {kind}: its writes do not appear in change streams")
        if options.get("capped"):
            raise UnsupportedQueryError(f"{namespace} is capped: records leave it without a write")
        return options

    def _find(self, query: Query, version: Version) -> list[Any]:
        database, _, name = query.namespace.partition(".")
        command: dict[str, Any]
        if query.operation is Operation.DISTINCT:
            command = {"distinct": name, "key": query.distinct_key, "query": query.filter}
        elif query.operation is Operation.AGGREGATE:
            command = {"aggregate": name, "pipeline": list(query.pipeline), "cursor": {"batchSize": _BATCH}}
        else:
            command = {"find": name, "filter": query.filter, "batchSize": _BATCH, "limit": self._limit(query)}
            if query.sort:
                command["sort"] = dict(query.sort)
            if query.projection:
                command["projection"] = query.projection
        concern = {"level": "snapshot", "atClusterTime": timestamp_of(version)}
        command |= {"readConcern": concern, "maxTimeMS": self._timeout_ms}
        command |= {} if query.collation is None else {"collation": query.collation}
        command |= {} if query.let is None else {"let": query.let}
        options: CodecOptions[Any] = BSON_OPTIONS
        if query.operation is Operation.DISTINCT:
            reply = self._client[database].command(
                command, read_preference=ReadPreference.PRIMARY, codec_options=options
            )
            return list(reply["values"])
        cursor = self._client[database].cursor_command(
            command, read_preference=ReadPreference.PRIMARY, codec_options=options
        )
        records: list[Any] = []
        with cursor:
            for record in cursor:
                records.append(record)
                if len(records) > self._max_records:
                    raise UnsupportedQueryError(
                        f"more than {self._max_records} records would have to be kept; narrow the filter or set a limit"
                    )
        return records

    def _limit(self, query: Query) -> int:
        return min(query.limit, self._max_records + 1) if query.limit else self._max_records + 1


def _translated(error: PyMongoError, namespace: str) -> DatabaseError:
    refused = isinstance(error, OperationFailure) and error.code not in _TRANSIENT
    return DatabaseError(f"{namespace} could not be read: {error}", retryable=not refused)

"""Repetition of a captured query by a client of our own: the result's digest, and its time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

import pymongo
from pymongo.errors import PyMongoError

from quaestor.capture.clients import WatchClient
from quaestor.capture.result_digests import ResultDigest
from quaestor.cluster_time import version_of
from quaestor.errors import DatabaseError
from quaestor.model import Operation, Query, Version

_ONE_BATCH: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reread:
    """One repetition of a query.

    digest: see CapturedRead; None: the result is too large.
    read_at: see CapturedRead.
    duration_ms: how long it took, including the network.
    """

    digest: bytes | None
    read_at: Version
    duration_ms: float


class Rereader:
    """Reader on the primary, where handlers read too. Blocking; used from several threads.

    client: closed by its owner.
    timeout_ms: of each reading.
    """

    def __init__(self, client: WatchClient, *, timeout_ms: int) -> None:
        self._client = client
        self._timeout_ms = timeout_ms

    def read(self, query: Query) -> Reread:
        """Run a query to its end. Raises DatabaseError."""
        begun_s = time.perf_counter()
        database, _, collection = query.namespace.partition(".")
        digest = ResultDigest(query)
        try:
            with pymongo.timeout(self._timeout_ms / 1000):
                # A command uses the driver's default options unless it receives the client's.
                reply = self._client[database].command(
                    _command(query, collection), codec_options=self._client.codec_options
                )
                digest.add(reply)
                if cursor_id := reply.get("cursor", {}).get("id"):
                    self._client[database].command({"killCursors": collection, "cursors": [cursor_id]})
        except PyMongoError as error:
            raise DatabaseError(f"a query on {query.namespace} could not be run again: {error}") from error
        if "operationTime" not in reply:
            raise DatabaseError(f"a reply from {query.namespace} has no operationTime", retryable=False)
        return Reread(
            digest=None if cursor_id else digest.value(),
            read_at=version_of(reply["operationTime"]),
            duration_ms=(time.perf_counter() - begun_s) * 1000,
        )


def _command(query: Query, collection: str) -> dict[str, Any]:
    command: dict[str, Any]
    match query.operation:
        case Operation.AGGREGATE:
            cursor = {"batchSize": _ONE_BATCH}
            command = {"aggregate": collection, "pipeline": list(query.pipeline), "cursor": cursor}
        case Operation.FIND:
            command = {"find": collection, "filter": query.filter, "batchSize": _ONE_BATCH}
            command |= {"projection": query.projection} if query.projection else {}
            command |= {"sort": dict(query.sort)} if query.sort else {}
        case Operation.COUNT:
            command = {"count": collection, "query": query.filter}
        case Operation.DISTINCT:
            command = {"distinct": collection, "key": query.distinct_key, "query": query.filter}
    for name in ("skip", "limit", "collation", "let"):
        if value := getattr(query, name):
            command[name] = value
    return command

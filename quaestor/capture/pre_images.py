"""Pre- and post-images of the collections that answers depend on, enabled where the user may (setting `pre_images`).

Without them MongoDB's change streams lack the earlier state of a record, and more is invalidated than has changed. Enabling them
changes no record and no result. From then on the server keeps images of each write, which costs room and time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import anyio.to_thread
import pymongo
from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from quaestor.capture.catalog import Catalog
from quaestor.capture.views import Kind
from quaestor.clock import Clock
from quaestor.errors import DatabaseError
from quaestor.model import CapturedRead, Query
from quaestor.observability.telemetry import Telemetry
from quaestor.query import aggregation

_PATIENCE_S: Final = 10.0
_LOOK_AGAIN_MS: Final = 600_000
"""A collection may be dropped and created again, without images."""
_TRY_AGAIN_MS: Final = 60_000
_MOST_COLLECTIONS: Final = 10_000
_MOST_NAMED: Final = 64
_NAMESPACE_NOT_FOUND: Final = 26


class PreImages:
    """Images of the wanted collections, enabled in the background. No request waits for it, or fails by it.

    ignored: a namespace that needs no images.
    """

    def __init__(self, telemetry: Telemetry, clock: Clock, *, ignored: str) -> None:
        self._telemetry = telemetry
        self._clock = clock
        self._ignored = ignored
        self._settled: dict[str, int] = {}
        self._waiting: set[str] = set()
        self._refused: dict[str, str] = {}
        self._reported = False
        self._lock = threading.Lock()
        self._woken = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def refused(self) -> Mapping[str, str]:
        """Reasons why images could not be enabled, by namespace; of the first few."""
        with self._lock:
            return dict(list(self._refused.items())[:_MOST_NAMED])

    def want(self, namespaces: Iterable[str]) -> None:
        """Have the images of these collections enabled. No I/O; from any thread."""
        now_ms = self._clock()
        new = {name for name in namespaces if self._settled.get(name, 0) <= now_ms and name != self._ignored}
        if not new or self._loop is None:
            return
        with self._lock:
            self._waiting |= new
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._woken.set)

    async def run(self, client: MongoClient[dict[str, Any]], catalog: Catalog) -> None:
        """Enable wanted images until cancelled."""
        self._loop = asyncio.get_running_loop()
        try:
            while True:
                await self._woken.wait()
                self._woken.clear()
                with self._lock:
                    waiting, self._waiting = self._waiting, set()
                await anyio.to_thread.run_sync(self._turn_on, client, catalog, waiting)
        finally:
            self._loop = None

    def _turn_on(self, client: MongoClient[dict[str, Any]], catalog: Catalog, namespaces: set[str]) -> None:
        for namespace in sorted(namespaces):
            try:
                with pymongo.timeout(_PATIENCE_S):
                    there = self._turn_on_one(client, catalog, namespace)
            except (PyMongoError, DatabaseError) as error:
                self._refuse(namespace, error)
            else:
                self._settle(namespace, _LOOK_AGAIN_MS if there else _TRY_AGAIN_MS)

    def _turn_on_one(self, client: MongoClient[dict[str, Any]], catalog: Catalog, namespace: str) -> bool:
        """Enable the images of one collection; return whether it exists. Raises PyMongoError, DatabaseError."""
        definition = catalog.definition(namespace)
        if definition.images or definition.kind is not Kind.COLLECTION:
            return True
        database, _, collection = namespace.partition(".")
        try:
            client[database].command("collMod", collection, changeStreamPreAndPostImages={"enabled": True})
        except OperationFailure as error:
            if error.code == _NAMESPACE_NOT_FOUND:
                return False
            raise
        self._telemetry.event("pre_images.enabled", namespace=namespace)
        return True

    def _settle(self, namespace: str, for_ms: int) -> None:
        with self._lock:
            if len(self._settled) >= _MOST_COLLECTIONS:
                self._settled.clear()
            self._settled[namespace] = self._clock() + for_ms
            if self._refused.pop(namespace, None) is not None and not self._refused:
                self._reported = False

    def _refuse(self, namespace: str, error: PyMongoError | DatabaseError) -> None:
        """Note a refusal: one log entry for any number of collections, and each by name in the status."""
        why = str(error).partition(", full error")[0]
        self._settle(namespace, _TRY_AGAIN_MS)
        with self._lock:
            if len(self._refused) < _MOST_COLLECTIONS:
                self._refused[namespace] = why
            reported, self._reported = self._reported, True
        if not reported:
            self._telemetry.failure("mongodb", "pre_images.refused", why, namespace=namespace)


class ImagesResolver:
    """Resolver of namespaces that also enables the images of the collections about to be registered."""

    def __init__(self, catalog: Catalog, images: PreImages) -> None:
        self._catalog = catalog
        self._images = images

    async def resolve(self, reads: Sequence[CapturedRead]) -> tuple[tuple[CapturedRead, ...], tuple[str, ...]]:
        """See Catalog.resolve."""
        resolved, reasons = await self._catalog.resolve(reads)
        self._images.want(name for read in resolved for name in _namespaces(read))
        return resolved, reasons

    def through_views(self, query: Query) -> Query:
        """See Catalog.through_views."""
        return self._catalog.through_views(query)


def _namespaces(read: CapturedRead) -> Iterator[str]:
    query = read.query
    yield query.namespace
    if query.pipeline:
        yield from aggregation.foreign_namespaces(query.pipeline, query.namespace.partition(".")[0])

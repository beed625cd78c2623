"""Record cache: single records in this process's memory, each guarded by a registration; lists are assembled from them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Protocol

import bson

from quaestor.errors import DependencyError, NotCacheableError
from quaestor.model import CachedResponse, CapturedRead, Operation, Query, Version
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import QueryRegistry, Registered
from quaestor.read_path.entries import COPY_SLACK_MS
from quaestor.read_path.service import ReadPath
from quaestor.rest import strict_json
from quaestor.rest.etags import record_etag
from quaestor.rest.identifiers import equals
from quaestor.rest.records import decode
from quaestor.settings import Settings


class Engine(Protocol):
    """Parts of a Quaestor that lists kept as ids need."""

    @property
    def read_path(self) -> ReadPath:
        """Its read path."""

    @property
    def registry(self) -> QueryRegistry:
        """Its registry."""

    @property
    def settings(self) -> Settings:
        """Its settings."""

    @property
    def telemetry(self) -> Telemetry:
        """Its telemetry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One record as it was read.

    key: its `_id`, encoded.
    json: its form in lists.

    registrations: it is valid while they live; () for a record that is only valid for the request that read it.
    """

    raw: bytes
    key: bytes
    json: bytes
    registrations: tuple[str, ...] = ()
    fresh_until_ms: int = 0


def part_of(raw: bytes) -> Part:
    """Return a record as a part of lists."""
    document = decode(raw)
    return Part(raw=raw, key=bson.encode({"": document["_id"]}), json=strict_json.dumps(document))


def ids_digest(keys: Iterable[bytes]) -> bytes:
    """Return a digest of encoded ids, in order: each is a BSON document, which contains its own length."""
    digest = blake2b(digest_size=16)
    for key in keys:
        digest.update(key)
    return digest.digest()


class RecordCache:
    """Record cache of one database. Use from one event loop."""

    def __init__(self, engine: Engine, database: str) -> None:
        self._engine = engine
        self._database = database

    def name(self, collection: str, key: Any) -> str:
        """Return the name of one record in the store.

        key: its `_id` as the database returned it.
        """
        digest = blake2b(bson.encode({"": key}), digest_size=16).hexdigest()
        return f"record:{self._database}.{collection}:{digest}"

    def get(self, name: str, now_ms: int) -> Part | None:
        """Return the record if it may be used at this moment. No I/O."""
        resident = self._engine.read_path.lookup.servable(name, now_ms)
        return None if resident is None or not isinstance(resident.rendered, Part) else resident.rendered

    async def keep(
        self, collection: str, raws: Mapping[str, bytes], *, read: CapturedRead, since: Version
    ) -> dict[str, Part]:
        """Keep these records as the read found them. Returns all of them; unguarded records have no registrations.

        A record that is there already with the same bytes keeps its registration: it is live, so nothing has changed it.
        """
        now_ms = self._engine.read_path.clock()
        parts: dict[str, Part] = {}
        new: list[str] = []
        for name, raw in raws.items():
            known = self.get(name, now_ms)
            if known is not None and known.raw == raw:
                parts[name] = known
            else:
                parts[name] = part_of(raw)
                new.append(name)
        guards = await asyncio.gather(
            *(self.guard(self._read_of(collection, raws[name], read), since=since) for name in new)
        )
        for name, guard in zip(new, guards, strict=True):
            if guard is not None:
                parts[name] = self._hold(name, parts[name], guard)
        return parts

    async def guard(self, read: CapturedRead, *, since: Version) -> Registered | None:
        """Register one read; None if it cannot be guarded: then its records must not be kept."""
        expires_at_ms = self._engine.read_path.clock() + self._engine.settings.lifetimes.ttl_max_ms + 2 * COPY_SLACK_MS
        try:
            return await self._engine.registry.register([read], since=since, expires_at_ms=expires_at_ms)
        except (NotCacheableError, DependencyError):
            return None

    def _read_of(self, collection: str, raw: bytes, read: CapturedRead) -> CapturedRead:
        key = decode(raw)["_id"]
        query = Query(namespace=f"{self._database}.{collection}", operation=Operation.FIND, filter={"_id": equals(key)})
        return replace(read, query=query, ids=(key,), last=None)

    def _hold(self, name: str, part: Part, guard: Registered) -> Part:
        part = replace(part, registrations=guard.ids, fresh_until_ms=self.fresh_until_ms())
        resident = self._engine.read_path.admission.publication.keep_in_memory(
            entry(name, part.json, record_etag(part.raw), guard.ids, part.fresh_until_ms, self._engine, beside=part.raw)
        )
        if resident is not None:
            resident.rendered = part
        return part

    def release(self, registrations: Sequence[str]) -> None:
        """Release registrations that no longer guard any kept record."""
        self._engine.registry.lease(registrations, until_ms=0)

    def fresh_until_ms(self) -> int:
        """Return the time until which a record registered just now may be used."""
        return self._engine.read_path.clock() + self._engine.settings.lifetimes.ttl_max_ms


def entry(
    name: str,
    body: bytes,
    etag: str,
    registrations: Sequence[str],
    fresh_until_ms: int,
    engine: Engine,
    beside: bytes = b"",
) -> CachedResponse:
    """Return an entry of the store's memory, under a name that no URL has.

    beside: further bytes, for the budget.
    """
    return CachedResponse(
        key=name,
        status=200,
        headers=((b"", beside),) if beside else (),
        body=body,
        etag=etag.encode(),
        stored_at_ms=engine.read_path.clock(),
        fresh_until_ms=fresh_until_ms,
        registrations=tuple(registrations),
        tags=(),
        resource="",
    )

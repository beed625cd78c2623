"""Assembled lists: ids with separate records. A change of one member reads one record again, instead of every list.

A list's registration is its query showing only `_id` and the sort fields. The registration dies when a record comes, goes or
changes places. Each member's registration is `{_id: ...}`. Every record of an answer was true at the moment it was sent:
- Every registration, the list's and all members', is checked again after the last await before the answer.
- A list that is read takes its records from that same read, so none is older than the list.
- A record that is read again is checked against the query, including the record's own rules, and against its place. If it no
  longer belongs there, the list is read again, even if its own notification has not arrived yet.
- A request that waited for another request's read is answered from the registrations that live then, not from that read.
- The registry forgets dead registrations after a while. A list without requests for that long is assembled again, from records
  that the store has guarded all the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from quaestor.capture import ConstantsOfRun, Outcome, not_recording
from quaestor.capture.seen_constants import AskedText
from quaestor.errors import UncertainMatchError
from quaestor.invalidation.registry.validity import TOMBSTONE_MS
from quaestor.model import CapturedRead, Query, SortSpec, Uncacheable
from quaestor.query import CompiledQuery
from quaestor.rest.etags import list_etag
from quaestor.rest.record_cache import Engine, Part, RecordCache, entry, ids_digest, part_of
from quaestor.rest.records import decode, shown

TRUST_MS: Final = TOMBSTONE_MS // 2
"""How long after its last check an assembly's registrations alone may prove it valid."""
_ROUNDS: Final = 3
Fetch = Callable[[], Awaitable[list[bytes]]]
FetchSome = Callable[[list[Any]], Awaitable[list[bytes]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A requested list.

    name: in the store, equal for equal queries.
    query: in the form for the database.
    predicate: the whole filter, rules included.

    place: a function of a record, equal for two records at the same place.
    asked: the request's query string: times in it are the request's own, not the clock's.
    fetch: reads the list, raw and in order.
    fetch_some: reads the records with these ids, in any order.
    """

    name: str
    collection: str
    query: Query
    sort: SortSpec
    predicate: CompiledQuery
    place: Callable[[Mapping[str, Any]], Any]
    asked: str
    fetch: Fetch
    fetch_some: FetchSome


@dataclass(slots=True, kw_only=True)
class Assembly:
    """An assembled list.

    ids: a digest of its members' ids.

    checked_ms: when all of its registrations were last found live.
    registrations: () if the assembly is for one answer only.
    """

    body: bytes
    etag: str
    ids: bytes
    count: int
    registrations: tuple[str, ...]
    fresh_until_ms: int
    checked_ms: int


@dataclass(slots=True, kw_only=True)
class _Ids:
    """The kept form of a list: its members by id, by name in the store, and by place.

    parts: the members when they were last checked.
    """

    ids: tuple[Any, ...]
    names: tuple[str, ...]
    places: tuple[Any, ...]
    registrations: tuple[str, ...]
    fresh_until_ms: int
    parts: tuple[Part, ...]
    assembly: Assembly | None = None


class AssembledLists:
    """Assembled lists of one database. Use from one event loop."""

    def __init__(self, engine: Engine, database: str) -> None:
        self._engine = engine
        self._records = RecordCache(engine, database)
        self._building: dict[str, asyncio.Task[Assembly]] = {}

    def ready(self, wanted: Wanted) -> Assembly | None:
        """Return the list if memory can answer now. No I/O; send it before the next await."""
        read_path = self._engine.read_path
        now_ms = read_path.clock()
        resident = read_path.lookup.servable(wanted.name, now_ms)
        known = None if resident is None else resident.rendered
        if not isinstance(known, _Ids):
            return None
        assembly = known.assembly
        if assembly is not None and now_ms - assembly.checked_ms < TRUST_MS and self._live(assembly, now_ms):
            assembly.checked_ms = now_ms
            return assembly
        parts = [self._records.get(name, now_ms) for name in known.names]
        present = [part for part in parts if part is not None]
        if len(present) < len(parts) or not self._belong(wanted, known, present):
            return None
        return self._keep(wanted, known, present)

    async def answer(self, wanted: Wanted) -> Assembly:
        """Return the list, read if necessary. One reader at a time asks the database; the others wait and look again."""
        for _ in range(_ROUNDS):
            assembly = self.ready(wanted)
            if assembly is not None:
                return assembly
            task = self._building.get(wanted.name)
            if task is None:
                return await asyncio.shield(self._start(wanted))
            await asyncio.wait({task})
        return await self._build(wanted)

    def _start(self, wanted: Wanted) -> asyncio.Task[Assembly]:
        """Start a separate task, so that a client that leaves does not cancel the others' answer."""
        task = asyncio.create_task(self._build(wanted))
        self._building[wanted.name] = task

        def done(ended: asyncio.Task[Assembly]) -> None:
            self._building.pop(wanted.name, None)
            if not ended.cancelled():
                ended.exception()  # marks it as seen; waiting requests receive it from the task

        task.add_done_callback(done)
        return task

    async def _build(self, wanted: Wanted) -> Assembly:
        resident = self._engine.read_path.lookup.servable(wanted.name, self._engine.read_path.clock())
        if resident is not None and isinstance(resident.rendered, _Ids):
            assembly = await self._refresh(wanted, resident.rendered)
            if assembly is not None:
                return assembly
            self._engine.read_path.lookup.drop(wanted.name)
            self._records.release(resident.rendered.registrations)
        return await self._read(wanted)

    async def _refresh(self, wanted: Wanted, known: _Ids) -> Assembly | None:
        """Read the missing members; None if the list itself has to be read."""
        now_ms = self._engine.read_path.clock()
        parts = {name: self._records.get(name, now_ms) for name in known.names}
        missing = [key for key, name in zip(known.ids, known.names, strict=True) if parts[name] is None]
        if len(missing) * 2 > len(known.ids) + 1:
            return None
        if missing:
            since = self._engine.registry.watermark()
            raws, outcome = await self._recorded(wanted.fetch_some(missing), wanted.collection, asked=None)
            read = _only_read(outcome)
            if read is None or len(raws) < len(missing):
                return None
            named = {self._records.name(wanted.collection, decode(raw)["_id"]): raw for raw in raws}
            parts |= await self._records.keep(wanted.collection, named, read=read, since=since)
        present = [part for part in parts.values() if part is not None]
        if len(present) < len(known.names) or not self._belong(wanted, known, present):
            return None
        # Records read just now are valid like a query's answer; older ones must still be alive.
        now_ms = self._engine.read_path.clock()
        old = [i for part in present for i in part.registrations]
        if not self._engine.registry.live([*known.registrations, *old], now_ms=now_ms):
            return None
        return self._keep(wanted, known, present)

    async def _read(self, wanted: Wanted) -> Assembly:
        """Read the list with its records, and keep the parts that can be guarded."""
        since = self._engine.registry.watermark()
        raws, outcome = await self._recorded(wanted.fetch(), wanted.collection, asked=wanted.asked)
        answer = _assembly([part_of(raw) for raw in raws])
        read = _only_read(outcome)
        if read is None or not self._engine.read_path.serving(self._engine.read_path.clock()):
            return answer
        documents = [decode(raw) for raw in raws]
        ids = tuple(document["_id"] for document in documents)
        names = tuple(self._records.name(wanted.collection, key) for key in ids)
        guard, parts = await asyncio.gather(
            self._records.guard(replace(read, query=replace(read.query, projection=shown(wanted.sort))), since=since),
            self._records.keep(wanted.collection, dict(zip(names, raws, strict=True)), read=read, since=since),
        )
        if guard is None:
            return answer
        if guard.widened or len(parts) < len(names):
            self._records.release(guard.ids)
            return answer
        members = tuple(parts[name] for name in names)
        known = _Ids(
            ids=ids,
            names=names,
            places=tuple(map(wanted.place, documents)),
            registrations=guard.ids,
            fresh_until_ms=_earliest(
                _earliest(self._records.fresh_until_ms(), outcome.valid_until_ms), guard.valid_until_ms
            ),
            parts=members,
        )
        self._keep(wanted, known, members)
        return answer

    async def _recorded(
        self, read: Awaitable[list[bytes]], collection: str, *, asked: str | None
    ) -> tuple[list[bytes], Outcome]:
        """Read in a separate recording: these reads do not belong to the recording of the request.

        collection: of the list.
        asked: see Wanted; None: the query only has ids from the database, which follow no clock.
        """
        read_path = self._engine.read_path
        begun_ms = read_path.clock()
        with not_recording(), read_path.run_capture.recording() as recorder:
            raws = await read
            constants = ConstantsOfRun(
                read_path.run_capture.seen_constants, ("list", collection), AskedText(asked or "")
            )
            outcome = recorder.outcome(
                read_path.clock(),
                started_ms=begun_ms,
                asked=asked or "",
                constants=None if asked is None else constants,
            )
        if asked is None:
            others = tuple(reason for reason in outcome.reasons if reason.reason is not Uncacheable.CLOCK)
            outcome = replace(outcome, reasons=others, valid_until_ms=None)
        return raws, outcome

    def _belong(self, wanted: Wanted, known: _Ids, parts: Sequence[Part]) -> bool:
        """Whether every record is still a member, at its former place."""
        try:
            for part, before, place in zip(parts, known.parts, known.places, strict=True):
                if part is before:
                    continue
                document = decode(part.raw)
                if not wanted.predicate.matches(document) or wanted.place(document) != place:
                    return False
        except UncertainMatchError:
            return False
        return True

    def _keep(self, wanted: Wanted, known: _Ids, parts: Sequence[Part]) -> Assembly:
        """Assemble the list, for this request and later ones."""
        assembly = _assembly(parts)
        assembly.registrations = (*known.registrations, *(i for part in parts for i in part.registrations))
        assembly.fresh_until_ms = min([known.fresh_until_ms, *(part.fresh_until_ms for part in parts)])
        assembly.checked_ms = self._engine.read_path.clock()
        reusable = all(part.registrations for part in parts) and self._live(assembly, assembly.checked_ms)
        known = replace(known, parts=tuple(parts), assembly=assembly if reusable else None)
        if len(assembly.body) <= self._engine.settings.store.max_body_bytes:
            resident = self._engine.read_path.admission.publication.keep_in_memory(
                entry(
                    wanted.name, assembly.body, assembly.etag, known.registrations, known.fresh_until_ms, self._engine
                )
            )
            if resident is not None:
                resident.rendered = known
        return assembly

    def _live(self, assembly: Assembly, now_ms: int) -> bool:
        return now_ms < assembly.fresh_until_ms and self._engine.registry.live(assembly.registrations, now_ms=now_ms)


def _assembly(parts: Sequence[Part]) -> Assembly:
    return Assembly(
        body=b"[" + b",".join(part.json for part in parts) + b"]",
        etag=list_etag("objects", (part.raw for part in parts)),
        ids=ids_digest(part.key for part in parts),
        count=len(parts),
        registrations=(),
        fresh_until_ms=0,
        checked_ms=0,
    )


def _earliest(until_ms: int, valid_until_ms: int | None) -> int:
    return until_ms if valid_until_ms is None else min(until_ms, valid_until_ms)


def _only_read(outcome: Outcome) -> CapturedRead | None:
    """Return the only command that was run, if its read can be guarded."""
    return (
        outcome.reads[0]
        if len(outcome.reads) == 1 and not outcome.reasons and outcome.reads[0].ids is not None
        else None
    )

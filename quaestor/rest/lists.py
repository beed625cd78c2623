"""Lists as answers: whole, from the database or a maintained result, for the middleware to keep; as ids; or assembled from
records kept here."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

import bson
from starlette.requests import Request
from starlette.responses import Response

from quaestor.capture import uncacheable
from quaestor.errors import QueryError
from quaestor.event_layer.partitioning import query_hash
from quaestor.model import Operation, Query
from quaestor.planning.plan import plan_query
from quaestor.policy import REPRESENTATION, Representation
from quaestor.query import sort_key_function
from quaestor.rest import strict_json
from quaestor.rest.answers import readable
from quaestor.rest.assembled import AssembledLists, Wanted
from quaestor.rest.database import Connection
from quaestor.rest.etags import list_etag
from quaestor.rest.limits import Limits
from quaestor.rest.list_parameters import ListQuery, parse_list
from quaestor.rest.maintained import MaintainedLists, MaintainingEngine
from quaestor.rest.problems import Problem, not_found
from quaestor.rest.record_cache import ids_digest
from quaestor.rest.records import Records, decode
from quaestor.rest.representations import Representations

_PREPARED: Final = 1_024
"""Prepared queries that are remembered."""
_MOST_MEMBERS: Final = 500
"""Longer lists are only kept as ids if the application demands it: each new member is a registration."""
_LONGEST: Final = 2_048
_LARGEST_AUDIENCE: Final = 64
"""Longer query strings and lists of names are prepared anew each time, so that strangers cannot fill memory with them."""
_Prepared = tuple[ListQuery, Wanted | None]


class Lists:
    """Lists of one router.

    engine: None: only the middleware keeps lists, whole.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        limits: Limits,
        engine: MaintainingEngine | None,
        representation: Representation,
    ) -> None:
        self._connection = connection
        self._limits = limits
        self._engine = engine
        self._representation = representation
        self._assembled = None if engine is None else AssembledLists(engine, connection.name)
        self._representations = Representations()
        self._maintained = None if engine is None or not engine.settings.grid.enabled else MaintainedLists(engine)
        self._names: OrderedDict[str, str] = OrderedDict()
        if engine is not None:
            engine.read_path.lookup.served_to.append(self._served)
        self._prepared: OrderedDict[tuple[Any, ...], _Prepared] = OrderedDict()

    async def answer(self, request: Request, collection: str, records: Records) -> Response:
        """Answer a request for a list. Raises Problem."""
        kept = request.scope.get(REPRESENTATION, self._representation)
        query, wanted = self._prepare(request, collection, records, kept)
        if query.representation is Representation.IDS:
            return await self._ids(request, collection, records, query)
        automatic = kept is Representation.AUTO
        if wanted is None or not self._serving(wanted):
            return await self._whole(request, collection, records, query, wanted)
        chosen = self._chosen(wanted) if automatic else kept
        if chosen is Representation.IDS:
            return await self._put_together(request, wanted, observe=automatic)
        return await self._whole(
            request, collection, records, query, wanted, maintained=chosen is Representation.MAINTAINED
        )

    async def _whole(
        self,
        request: Request,
        collection: str,
        records: Records,
        query: ListQuery,
        wanted: Wanted | None,
        *,
        maintained: bool = False,
    ) -> Response:
        kept_raws = None
        if maintained and wanted is not None and self._maintained is not None:
            kept_raws = await self._maintained.records(wanted.name, wanted.query)
            self._maintained.engine.telemetry.requests.list_made(maintained=kept_raws is not None)
        raws = await self._fetch(collection, records, query) if kept_raws is None else kept_raws.raws
        changes = 1 if kept_raws is None else kept_raws.changes
        self._require_small(raws)
        documents = [decode(raw) for raw in raws]
        etag = list_etag("objects", raws)
        if wanted is not None:
            keys = [bson.encode({"": document["_id"]}) for document in documents]
            self._observe(wanted, ids_digest(keys), len(keys), etag, size=sum(map(len, raws)), changes=changes)
        return readable(request, b"[" + b",".join(map(strict_json.dumps, documents)) + b"]", etag)

    async def _ids(self, request: Request, collection: str, records: Records, query: ListQuery) -> Response:
        matching = await records.many(
            collection, query.filter.document, sort=query.sort, skip=query.skip, limit=query.limit,
            most_bytes=self._limits.response_bytes, ids=True,
        )  # fmt: skip
        if not matching:
            await _require_known(collection, records)
        self._require_small([record.raw for record in matching])
        ids = [decode(record.raw)["_id"] for record in matching]
        return readable(request, strict_json.dumps(ids), list_etag("ids", (bson.encode({"": key}) for key in ids)))

    async def _put_together(self, request: Request, wanted: Wanted, *, observe: bool) -> Response:
        assert self._assembled is not None
        assert self._engine is not None
        ready = self._assembled.ready(wanted)
        assembly = ready or await self._assembled.answer(wanted)
        if observe and (ready is None or self._representations.changed(wanted.name, assembly.etag)):
            self._observe(
                wanted,
                assembly.ids,
                assembly.count,
                assembly.etag,
                size=len(assembly.body),
                member_hit=ready is not None,
            )
        response = readable(request, assembly.body, assembly.etag)
        # Kept here only: caches outside must revalidate it with its tag.
        response.headers["cache-control"] = "no-cache"
        self._engine.telemetry.requests.list_assembled(ready=ready is not None)
        response.headers["cache-status"] = "QuaestorRecords; " + ("hit" if ready else "fwd=miss")
        return response

    def _serving(self, wanted: Wanted) -> bool:
        if self._engine is None:
            return False
        read_path, now_ms = self._engine.read_path, self._engine.read_path.clock()
        return read_path.serving(now_ms) and not read_path.lookup.lagging(wanted.name, now_ms)

    def _chosen(self, wanted: Wanted) -> Representation:
        """Return the choice of the cost rule; a changed choice is logged with its reasons."""
        assert self._engine is not None
        now_ms, before = self._engine.read_path.clock(), self._representations.present(wanted.name)
        maintainable = self._maintained is not None and self._maintained.takes(wanted.name)
        chosen = self._representations.choose(wanted.name, now_ms=now_ms, maintainable=maintainable)
        if before not in (None, chosen):
            why = self._representations.explained(wanted.name, now_ms=now_ms)
            self._engine.telemetry.event("rest.representation_changed", list=wanted.name, before=before, **why)
            if self._maintained is not None:
                self._maintained.leave(wanted.name)
        return chosen

    def _observe(
        self,
        wanted: Wanted,
        ids: bytes,
        length: int,
        etag: str,
        *,
        size: int = 0,
        member_hit: bool | None = None,
        changes: int = 1,
    ) -> None:
        assert self._engine is not None
        self._representations.observe(
            wanted.name, ids=ids, length=length, etag=etag, now_ms=self._engine.read_path.clock(), size=size,
            member_hit=member_hit, changes=changes,
        )  # fmt: skip

    def _served(self, served: Sequence[tuple[tuple[str, ...], int]]) -> None:
        """Count the middleware's hits from memory, once a second."""
        assert self._engine is not None
        now_ms = self._engine.read_path.clock()
        for registrations, times in served:
            for name in {self._names.get(registration.rpartition("#")[2]) for registration in registrations} - {None}:
                assert name is not None
                self._representations.read(name, now_ms=now_ms, times=times)
                if self._maintained is not None:
                    self._maintained.used(name)
        if self._maintained is not None:
            self._maintained.keep_house()

    async def _fetch(self, collection: str, records: Records, query: ListQuery) -> list[bytes]:
        matching = await records.many(
            collection, query.filter.document, sort=query.sort, skip=query.skip, limit=query.limit,
            most_bytes=self._limits.response_bytes,
        )  # fmt: skip
        if not matching:
            await _require_known(collection, records)
        return [bytes(record.raw) for record in matching]

    def _require_small(self, raws: Sequence[bytes]) -> None:
        if sum(map(len, raws)) > self._limits.response_bytes:
            raise Problem(400, "list-too-large", "The records are too large for one list: ask with a smaller limit.")

    # Preparing

    def _prepare(self, request: Request, collection: str, records: Records, kept: Representation) -> _Prepared:
        """Return the query, parsed, checked and compiled, and Wanted if the list can be assembled. Bounded, least used first
        out."""
        key = (collection, request.scope["query_string"], records.rights.audience, kept)
        prepared = self._prepared.get(key)
        if prepared is None:
            query = parse_list(request, self._limits)
            text = request.scope["query_string"].decode("latin-1")
            prepared = (query, self._wanted(collection, records, query, kept, text))
            if len(request.scope["query_string"]) <= _LONGEST and len(records.rights.audience) <= _LARGEST_AUDIENCE:
                self._prepared[key] = prepared
            if len(self._prepared) > _PREPARED:
                self._prepared.popitem(last=False)
        else:
            self._prepared.move_to_end(key)
        return prepared

    def _wanted(
        self, collection: str, records: Records, query: ListQuery, kept: Representation, text: str
    ) -> Wanted | None:
        """Return the list to assemble; None for lists that are to be kept whole, or cannot be assembled."""
        if self._engine is None or Representation.OBJECTS in (kept, query.representation) or query.filter.ordered:
            return None
        if kept is Representation.AUTO and query.limit > _MOST_MEMBERS:
            return None
        bounded = Query(
            namespace=f"{self._connection.name}.{collection}",
            operation=Operation.FIND,
            filter=records.rights.guarded(query.filter.document, "read"),
            sort=query.sort,
            skip=query.skip,
            limit=query.limit,
        )
        try:
            plan = plan_query(bounded)
        except QueryError:
            return None
        if plan.match != "exact" or plan.predicate is None:
            return None

        async def fetch() -> list[bytes]:
            raws = await self._fetch(collection, records, query)
            self._require_small(raws)
            return raws

        async def fetch_some(ids: list[Any]) -> list[bytes]:
            return await records.some(collection, ids, most_bytes=self._limits.response_bytes)

        name = f"list:{plan.query_id}"
        self._names[f"{query_hash(plan.query_id):016x}"] = name
        if len(self._names) > _PREPARED:
            self._names.popitem(last=False)
        return Wanted(
            name=name,
            collection=collection,
            query=bounded,
            sort=query.sort,
            predicate=plan.predicate,
            place=sort_key_function(query.sort),
            asked=text,
            fetch=fetch,
            fetch_some=fetch_some,
        )


async def _require_known(collection: str, records: Records) -> None:
    """Answer 404 for an unknown collection, unlike an empty list. Uncached: no event reports a new empty collection."""
    if not await records.exists(collection):
        uncacheable("an unknown collection")
        raise not_found()

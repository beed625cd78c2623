"""Lists as answers: whole from the database, for the middleware to keep; as ids; or put together from records kept here."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

import bson
from starlette.requests import Request
from starlette.responses import Response

from quaestor.capture import uncacheable
from quaestor.errors import QueryError
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
from quaestor.rest.problems import Problem, not_found
from quaestor.rest.record_cache import Engine, ids_digest
from quaestor.rest.records import Records, decode
from quaestor.rest.representations import Representations

_PREPARED: Final = 1_024
"""Queries that are remembered ready to be run."""
_MOST_MEMBERS: Final = 500
"""Longer lists are only kept as ids if the application says so: each new member is a registration."""
_LONGEST: Final = 2_048
_LARGEST_AUDIENCE: Final = 64
"""Query strings and lists of names beyond this are worked out anew each time: nobody can fill the memory with them."""
_Prepared = tuple[ListQuery, Wanted | None]


class Lists:
    """Lists of one router.

    engine: None: lists are only ever kept whole, by the middleware.
    """

    def __init__(
        self, connection: Connection, *, limits: Limits, engine: Engine | None, representation: Representation
    ) -> None:
        self._connection = connection
        self._limits = limits
        self._engine = engine
        self._representation = representation
        self._assembled = None if engine is None else AssembledLists(engine, connection.name)
        self._representations = Representations()
        self._prepared: OrderedDict[tuple[Any, ...], _Prepared] = OrderedDict()

    async def answer(self, request: Request, collection: str, records: Records) -> Response:
        """Answer a request for a list. Raises Problem."""
        kept = request.scope.get(REPRESENTATION, self._representation)
        query, wanted = self._prepare(request, collection, records, kept)
        if query.representation is Representation.IDS:
            return await self._ids(request, collection, records, query)
        automatic = kept is Representation.AUTO
        if wanted is not None and self._serving(wanted) and (not automatic or self._cheaper_as_ids(wanted)):
            return await self._put_together(request, wanted, observe=automatic)
        return await self._whole(request, collection, records, query, wanted)

    async def _whole(
        self, request: Request, collection: str, records: Records, query: ListQuery, wanted: Wanted | None
    ) -> Response:
        raws = await self._fetch(collection, records, query)
        documents = [decode(raw) for raw in raws]
        etag = list_etag("objects", raws)
        if wanted is not None:
            keys = [bson.encode({"": document["_id"]}) for document in documents]
            self._observe(wanted, ids_digest(keys), len(keys), etag)
        return readable(request, b"[" + b",".join(map(strict_json.dumps, documents)) + b"]", etag)

    async def _ids(self, request: Request, collection: str, records: Records, query: ListQuery) -> Response:
        found = await records.many(
            collection, query.filter.document, sort=query.sort, skip=query.skip, limit=query.limit,
            most_bytes=self._limits.response_bytes, ids=True,
        )  # fmt: skip
        if not found:
            await _require_known(collection, records)
        self._require_bounded(found)
        ids = [decode(record.raw)["_id"] for record in found]
        return readable(request, strict_json.dumps(ids), list_etag("ids", (bson.encode({"": key}) for key in ids)))

    async def _put_together(self, request: Request, wanted: Wanted, *, observe: bool) -> Response:
        assert self._assembled is not None
        assert self._engine is not None
        ready = self._assembled.ready(wanted)
        found = ready or await self._assembled.answer(wanted)
        if ready is None and observe:
            self._observe(wanted, found.ids, found.count, found.etag)
        response = readable(request, found.body, found.etag)
        # Kept here and not by anybody else: outside it is asked for again with its tag.
        response.headers["cache-control"] = "no-cache"
        self._engine.telemetry.requests.list_assembled(ready=ready is not None)
        response.headers["cache-status"] = "QuaestorRecords; " + ("hit" if ready else "fwd=miss")
        return response

    def _serving(self, wanted: Wanted) -> bool:
        if self._engine is None:
            return False
        read_path, now_ms = self._engine.read_path, self._engine.read_path.clock()
        return read_path.serving(now_ms) and not read_path.lookup.lagging(wanted.name, now_ms)

    def _cheaper_as_ids(self, wanted: Wanted) -> bool:
        assert self._engine is not None
        now_ms = self._engine.read_path.clock()
        return self._representations.choose(wanted.name, now_ms=now_ms) is Representation.IDS

    def _observe(self, wanted: Wanted, ids: bytes, length: int, etag: str) -> None:
        assert self._engine is not None
        now_ms = self._engine.read_path.clock()
        self._representations.observe(wanted.name, ids=ids, length=length, etag=etag, now_ms=now_ms)

    async def _fetch(self, collection: str, records: Records, query: ListQuery) -> list[bytes]:
        found = await records.many(
            collection, query.filter.document, sort=query.sort, skip=query.skip, limit=query.limit,
            most_bytes=self._limits.response_bytes,
        )  # fmt: skip
        if not found:
            await _require_known(collection, records)
        self._require_bounded(found)
        return [bytes(record.raw) for record in found]

    def _require_bounded(self, found: Sequence[Any]) -> None:
        if sum(len(record.raw) for record in found) > self._limits.response_bytes:
            raise Problem(400, "list-too-large", "The records are too large for one list: ask with a smaller limit.")

    # Preparing

    def _prepare(self, request: Request, collection: str, records: Records, kept: Representation) -> _Prepared:
        """Parsed, checked and compiled; the second part only if the list can be put together. Bounded, by least use."""
        key = (collection, request.scope["query_string"], records.rights.audience, kept)
        found = self._prepared.get(key)
        if found is None:
            query = parse_list(request, self._limits)
            text = request.scope["query_string"].decode("latin-1")
            found = (query, self._wanted(collection, records, query, kept, text))
            if len(request.scope["query_string"]) <= _LONGEST and len(records.rights.audience) <= _LARGEST_AUDIENCE:
                self._prepared[key] = found
            if len(self._prepared) > _PREPARED:
                self._prepared.popitem(last=False)
        else:
            self._prepared.move_to_end(key)
        return found

    def _wanted(
        self, collection: str, records: Records, query: ListQuery, kept: Representation, text: str
    ) -> Wanted | None:
        """None for lists that are to be kept whole, or cannot be kept otherwise."""
        if self._engine is None or Representation.OBJECTS in (kept, query.representation) or query.filter.ordered:
            return None
        if kept is Representation.AUTO and query.limit > _MOST_MEMBERS:
            return None
        asked = Query(
            namespace=f"{self._connection.name}.{collection}",
            operation=Operation.FIND,
            filter=records.rights.guarded(query.filter.document, "read"),
            sort=query.sort,
            skip=query.skip,
            limit=query.limit,
        )
        try:
            plan = plan_query(asked)
        except QueryError:
            return None
        if plan.match != "exact" or plan.predicate is None:
            return None

        async def fetch() -> list[bytes]:
            return await self._fetch(collection, records, query)

        async def fetch_some(ids: list[Any]) -> list[bytes]:
            return await records.some(collection, ids, most_bytes=self._limits.response_bytes)

        return Wanted(
            name=f"list:{plan.query_id}",
            collection=collection,
            sort=query.sort,
            predicate=plan.predicate,
            place=sort_key_function(query.sort),
            asked=text,
            fetch=fetch,
            fetch_some=fetch_some,
        )


async def _require_known(collection: str, records: Records) -> None:
    """An empty list and a collection that does not exist are two answers; nothing tells of a new empty collection."""
    if not await records.exists(collection):
        uncacheable("an unknown collection")
        raise not_found()

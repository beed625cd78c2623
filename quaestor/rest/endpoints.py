"""Endpoints of the router, one method for each operation: check the request, call the database, answer."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote

from bson import ObjectId
from bson.errors import BSONError
from pymongo.errors import PyMongoError
from starlette.requests import Request
from starlette.responses import Response

from quaestor.capture import uncacheable
from quaestor.middleware.asked_scope import unrecorded
from quaestor.observability.telemetry import Telemetry
from quaestor.rest import bodies, strict_json
from quaestor.rest.access import ANONYMOUS, Access, Action, addressable
from quaestor.rest.answers import readable
from quaestor.rest.database import Connection, problem_of
from quaestor.rest.etags import Preconditions
from quaestor.rest.identifiers import BadIdError, format_id, parse_id
from quaestor.rest.limits import Limits
from quaestor.rest.lists import Lists
from quaestor.rest.malformed_rules import MalformedRules
from quaestor.rest.patches import mentions, merged, require_blind, require_near, require_update
from quaestor.rest.problems import Problem, not_found
from quaestor.rest.records import Records, Stored, decode
from quaestor.rest.sharing import WhoAsks, agrees

Operation = Callable[[Request, str, Records], Awaitable[Response]]


class Endpoints:
    """Endpoints of one router.

    who_asks: returns the principal of a request; None: every request is anonymous.

    No method raises because of a client's input or an unreachable database: the answer is a problem document then.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        access: Access,
        limits: Limits,
        who_asks: WhoAsks | None,
        lists: Lists,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._telemetry = telemetry
        self._lists = lists
        self._connection = connection
        self._access = access
        self._limits = limits
        self._who_asks = who_asks
        self._malformed = MalformedRules(telemetry, access.record_acl)

    async def answer(self, request: Request, collection: str | None, operation: Operation) -> Response:
        """Answer a request by this operation.

        collection: None: the one in the path.
        """
        try:
            response = await self._run(request, collection, operation)
        except Problem as problem:
            response = self._refused(problem)
        except (PyMongoError, BSONError, OverflowError) as error:
            known = problem_of(error, wrote=request.method not in ("GET", "HEAD"))
            if known is None:
                raise
            response = self._refused(known)
        if self._who_asks is not None:
            # The answer is for one principal. A cache that does not distinguish principals (see `sharing`) must not share it.
            own = response.headers.get("cache-control")
            response.headers["cache-control"] = "private" if own is None else f"private, {own}"
        return response

    def _refused(self, problem: Problem) -> Response:
        if self._telemetry is not None:
            self._telemetry.requests.rest_problems.labels(problem.name).inc()
        return problem.response()

    async def _run(self, request: Request, collection: str | None, operation: Operation) -> Response:
        name = request.path_params["collection"] if collection is None else collection
        principal = ANONYMOUS
        if self._who_asks is not None:
            # The fields that it reads are in the key, because the cache has called it too.
            asking = self._who_asks(Request(unrecorded(request.scope), request.receive))
            principal = await asking if inspect.isawaitable(asking) else asking
            if not agrees(request.scope, principal):
                uncacheable("the principal is only known behind the cache")
        if not addressable(name):
            raise not_found()
        return await operation(request, name, Records(self._connection, self._access, principal, self._malformed))

    # Reading

    async def list(self, request: Request, collection: str, records: Records) -> Response:
        """GET of a collection: the records or ids that match a filter."""
        records.rights.require(collection, Action.READ)
        return await self._lists.answer(request, collection, records)

    async def get(self, request: Request, collection: str, records: Records) -> Response:
        """GET of one record."""
        records.rights.require(collection, Action.READ)
        stored = await records.get(collection, _key(request))
        return readable(request, strict_json.dumps(decode(stored.raw)), stored.etag)

    # Writing

    async def insert(self, request: Request, collection: str, records: Records) -> Response:
        """POST to a collection: a new record."""
        records.rights.require(collection, Action.INSERT)
        bodies.media_type(request, bodies.RECORD_TYPES)
        text, document = await bodies.read_object(request, self._limits)
        bodies.require_record(text, document, self._access.record_acl)
        key = document.pop("_id") if "_id" in document else ObjectId()
        stored = await records.insert(collection, {"_id": key, **document})
        location = f"{quote(request.scope['path'].rstrip('/'))}/{format_id(key)}"
        return self._written(stored, 201, stored.shown, {"location": location})

    async def put(self, request: Request, collection: str, records: Records) -> Response:
        """PUT of a record: create or replace it."""
        records.rights.require(collection, Action.INSERT, Action.UPDATE)
        key = _key(request)
        bodies.media_type(request, bodies.RECORD_TYPES)
        preconditions = Preconditions.of(request, self._limits)
        text, document = await bodies.read_object(request, self._limits)
        bodies.require_record(text, document, self._access.record_acl)
        _require_same_id(text, document, key)
        document.pop("_id", None)
        stored = await records.put(collection, key, document, preconditions=preconditions)
        if not stored.created:
            return self._written(stored, 204, False, {})
        base = request.scope["path"].removesuffix(request.path_params["id"])
        return self._written(stored, 201, stored.shown, {"location": f"{quote(base)}{format_id(key)}"})

    async def patch(self, request: Request, collection: str, records: Records) -> Response:
        """PATCH of a record: change it."""
        records.rights.require(collection, Action.UPDATE)
        key = _key(request)
        kind = bodies.media_type(request, bodies.PATCH_TYPES)
        preconditions = Preconditions.of(request, self._limits)
        text, patch = await bodies.read_object(request, self._limits)
        if kind == bodies.UPDATE:
            require_update(text, patch)
            bodies.require_bson(patch)
        else:
            bodies.require_names(text, patch)
            _require_same_id(text, patch, key)

        def make(before: bytes, shown: bool) -> Mapping[str, Any]:
            stored = decode(before)
            if kind == bodies.UPDATE:
                if not shown:
                    require_blind(patch)
                require_near(text, patch, stored)
                return patch
            document = {**merged(stored, patch), "_id": stored["_id"]}
            bodies.require_rules(document, self._access.record_acl)
            bodies.require_bson(document)
            return document

        rules = self._access.record_acl
        stored = await records.change(
            collection, key, make, preconditions=preconditions,
            mentions_rules=rules is not None and (mentions(patch, rules) if kind == bodies.UPDATE else rules in patch),
        )  # fmt: skip
        minimal = "return=minimal" in request.headers.get("prefer", "").replace(" ", "")
        return self._written(stored, 200, stored.shown and not minimal, {})

    async def delete(self, request: Request, collection: str, records: Records) -> Response:
        """DELETE of a record."""
        records.rights.require(collection, Action.DELETE)
        preconditions = Preconditions.of(request, self._limits)
        await records.delete(collection, _key(request), preconditions=preconditions)
        return Response(status_code=204)

    def _written(self, stored: Stored, status: int, show: bool, headers: dict[str, str]) -> Response:
        if stored.shown:
            headers["etag"] = stored.etag
        if not show:
            return Response(status_code=201 if status == 201 else 204, headers=headers)
        body = strict_json.dumps(decode(stored.raw))
        return Response(body, status_code=status, media_type=bodies.JSON, headers=headers)


def _key(request: Request) -> Any:
    try:
        return parse_id(request.path_params["id"])
    except BadIdError as error:
        raise Problem(400, "id-malformed", str(error), parameter="id") from error


def _require_same_id(text: str, document: Mapping[str, Any], key: Any) -> None:
    if "_id" in document and format_id(document["_id"]) != format_id(key):
        raise bodies.unacceptable(text, "`_id` is not the one in the path, and cannot be changed", ("_id",))

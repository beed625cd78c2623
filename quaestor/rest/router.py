"""Router for the records of a database, as in Orestes: `app.include_router(QuaestorRouter(db, access=...))`.

Reads run inside the request, so the middleware captures, caches and invalidates them like those of any other handler.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from quaestor.errors import ConfigurationError
from quaestor.policy import Representation
from quaestor.rest import bodies, schema
from quaestor.rest.access import Access, addressable
from quaestor.rest.database import Connection
from quaestor.rest.endpoints import Endpoints, Operation
from quaestor.rest.limits import Limits
from quaestor.rest.lists import Lists
from quaestor.rest.maintained import MaintainingEngine
from quaestor.rest.problems import Problem
from quaestor.rest.sharing import WhoAsks, declaration

Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]


class DescribedOperation(NamedTuple):
    """One operation of the API, with its answers as OpenAPI describes them.

    verb: begins the operation id.
    answer: response object of the status.
    failing: statuses of failures.
    nothing: description of the answer 204; None: there is none.
    """

    verb: str
    method: str
    operation: Operation
    status: int
    answer: dict[str, Any]
    failing: tuple[int, ...]
    nothing: str | None = None


class QuaestorRouter(APIRouter):
    """Router for the records of one database, mountable on any FastAPI application.

    db: a pymongo AsyncDatabase, or a Database (called in threads), of a client with `quaestor.capture` among its
        listeners.
    prefix: path of all routes.
    access: the access rules; by default they permit nothing, see Access.public_read().
    limits: bounds of one request.
    principal: returns the principal of a request, from the request's own fields, without additions of middleware behind the
        cache; None: every request is anonymous. The function must verify the fields that it reads. Its HTTPException becomes the
        answer. Answers are cached for each principal; if it is a coroutine function they are not cached.
    principal_reads: all request fields that decide the principal, such as ["authorization"]; None: no client keeps answers.
    quaestor: the application's Quaestor; with it, lists may be kept as ids, or maintained.
    representation: "ids": all lists that can be; "maintained": whole, and followed so that no write causes a query;
        "objects": neither; "auto": the cheapest form for each list.
    schemas: JSON schemas by collection, which then have documented routes of their own. Schemas describe; to enforce them,
        give the collection a validator.
    name: prefix of the operation ids; required if several routers are mounted.

    Raises ConfigurationError for contradicting arguments.
    """

    def __init__(
        self,
        db: Any,
        *,
        prefix: str = "/db",
        access: Access | None = None,
        limits: Limits | None = None,
        principal: WhoAsks | None = None,
        principal_reads: Sequence[str] | None = None,
        quaestor: MaintainingEngine | None = None,
        schemas: Mapping[str, Mapping[str, Any]] | None = None,
        representation: Representation | str = Representation.AUTO,
        name: str = "db",
    ) -> None:
        limits = limits or Limits()
        super().__init__(prefix=prefix, tags=["records"])
        self._limits = limits
        if representation not in set(Representation):
            raise ConfigurationError(f"representation={representation!r} is none of {', '.join(Representation)}")
        representation = Representation(representation)
        if representation in (Representation.IDS, Representation.MAINTAINED) and quaestor is None:
            raise ConfigurationError(
                f"representation={representation.value!r} needs the application's Quaestor: "
                "QuaestorRouter(..., quaestor=...)"
            )
        self._shared = declaration(principal, representation, principal_reads)
        self._name = name
        connection = Connection(db, time_ms=limits.time_ms)
        lists = Lists(connection, limits=limits, engine=quaestor, representation=representation)
        self._endpoints = Endpoints(
            connection,
            access=access or Access(),
            limits=limits,
            who_asks=principal,
            lists=lists,
            telemetry=None if quaestor is None else quaestor.telemetry,
        )
        for collection, described in (schemas or {}).items():
            if not addressable(collection) or "{" in collection or "}" in collection:
                raise ConfigurationError(f"schemas: {collection!r} is not the name of a collection")
            self._add(collection, described)
        self._add(None, schema.RECORD)
        self._refuse("/{collection}/{id:path}", ("GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"))
        self._refuse("/{collection}", ("GET", "HEAD", "POST", "OPTIONS"))

    def _add(self, collection: str | None, record: Mapping[str, Any]) -> None:
        """Add the routes of one collection, or of any."""
        does, limits = self._endpoints, self._limits
        many = "/{collection}" if collection is None else f"/{collection}"
        record_path = f"{many}/{{id:path}}"
        in_many = schema.path_parameters() if collection else schema.path_parameters("collection")
        in_one = [*in_many, *schema.path_parameters("id")]
        changing = schema.condition_parameters("If-Match", "If-None-Match")
        writing = (400, 403, 404, 409, 412, 413, 415, 422, 428, 503)
        new = schema.record_answer("Made.", record, location=True)
        self._route(
            collection,
            many,
            DescribedOperation("list", "GET", does.list, 200, schema.list_answer(record), (304, 400, 404, 503)),
            parameters=in_many + schema.list_parameters(limits),
        )
        self._route(
            collection,
            many,
            DescribedOperation("insert", "POST", does.insert, 201, new, (400, 403, 404, 409, 413, 415, 422, 503)),
            parameters=in_many,
            requestBody=schema.request_body(bodies.RECORD_TYPES, record),
        )
        self._route(
            collection,
            record_path,
            DescribedOperation(
                "get", "GET", does.get, 200, schema.record_answer("The record.", record), (304, 400, 404, 503)
            ),
            parameters=in_one,
        )
        self._route(
            collection,
            record_path,
            DescribedOperation("put", "PUT", does.put, 201, new, writing, "Replaced."),
            parameters=in_one + changing,
            requestBody=schema.request_body(bodies.RECORD_TYPES, record),
        )
        self._route(
            collection,
            record_path,
            DescribedOperation(
                "patch",
                "PATCH",
                does.patch,
                200,
                schema.record_answer("The record after the change.", record),
                writing,
                "Changed.",
            ),
            parameters=in_one + changing,
            requestBody=schema.request_body(bodies.PATCH_TYPES, record),
        )
        self._route(
            collection,
            record_path,
            DescribedOperation(
                "delete", "DELETE", does.delete, 204, {"description": "Gone."}, (400, 403, 404, 412, 428, 503)
            ),
            parameters=in_one + changing[:1],
        )

    def _route(
        self,
        collection: str | None,
        path: str,
        described: DescribedOperation,
        **extra: Any,
    ) -> None:
        verb, method, status = described.verb, described.method, described.status
        what = f"{collection or 'collection'}" if verb in ("list", "insert") else f"{collection or 'collection'}_record"
        answers: dict[int | str, dict[str, Any]] = {status: described.answer, **schema.failures(described.failing)}
        if described.nothing:
            answers[204] = {"description": described.nothing}
        endpoint = self._endpoint(collection, described.operation)
        self.add_api_route(
            path,
            endpoint,
            methods=[method],
            operation_id=f"{self._name}_{verb}_{_identifier(what)}",
            summary=f"{verb} {what.replace('_', ' ')}",
            status_code=status,
            response_class=Response,
            response_model=None,
            responses=answers,
            openapi_extra=extra,
        )
        if method == "GET":
            self.add_api_route(
                path, endpoint, methods=["HEAD"], include_in_schema=False, response_class=Response, response_model=None
            )

    def _endpoint(self, collection: str | None, operation: Operation) -> Endpoint:
        endpoints = self._endpoints

        async def endpoint(request: Request) -> Response:
            return await endpoints.answer(request, collection, operation)

        return self._shared(endpoint)

    def _refuse(self, path: str, allowed: tuple[str, ...]) -> None:
        """Answer all other methods with 405 and the allowed ones; OPTIONS receives the same with 204."""
        self.routes.append(Route(self.prefix + path, _NotAllowed(allowed), include_in_schema=False))


class _NotAllowed:
    def __init__(self, allowed: tuple[str, ...]) -> None:
        self._headers = {"allow": ", ".join(allowed)}
        if "PATCH" in allowed:
            self._headers["accept-patch"] = ", ".join(bodies.PATCH_TYPES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "OPTIONS":
            response = Response(status_code=204, headers=self._headers)
        else:
            detail = f"{scope['method']} is not possible here."
            response = Problem(405, "method-not-allowed", detail, headers=self._headers).response()
        await response(scope, receive, send)


def _identifier(text: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in text)

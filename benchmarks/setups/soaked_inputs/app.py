"""The app under test: one page for each input that decides answers besides the database. One process a worker, served by uvicorn.

Every page shows enough to tell whom it is for and which states of which records it was made of. `create_bare_app` is the same
without a cache.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated, Any

import pymongo
from fastapi import Cookie, Depends, FastAPI, Header, HTTPException, Request
from pymongo import AsyncMongoClient, UpdateOne
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.database import AsyncDatabase
from starlette.responses import PlainTextResponse

from benchmarks.setups.soaked_inputs.clock_forms import FLOORED, RELATIVE
from benchmarks.setups.soaked_inputs.mutations import mutated
from quaestor import Quaestor, cached, cookie, header, per_user, public
from quaestor.middleware import QuaestorMiddleware
from quaestor.middleware.interface import App, Receive, Scope, Send
from quaestor.rest import Access, QuaestorRouter

DATABASE = "SOAK_DATABASE"
MUTATION = "SOAK_MUTATION"
STAFF = "Bearer staff"
FORMS: list[tuple[str, Callable[[datetime], Any]]] = [*RELATIVE.items(), *FLOORED.items()]
"""Values that handlers compute from the clock; the later ones, from the first floored one on, stay for a while."""
SHOWN = {"_id": 0, "key": 1}
Notes = Callable[..., Awaitable[Any]]


def create_app() -> App:
    """Settings come from the environment; MONGO_URL and SOAK_DATABASE say where the records are."""
    quaestor = mutated(os.environ.get(MUTATION, ""))
    app = _pages(quaestor)
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor, metrics_path="/metrics")
    return outer(app)


def create_bare_app() -> App:
    return outer(_pages(None))


def outer(app: App) -> App:
    """A middleware around the cache that determines a request's organisation, and puts it into the scope."""

    async def around(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/outer":
            org = next((value for name, value in scope["headers"] if name == b"x-outer"), b"")
            scope = {**scope, "org": org.decode()}
        await app(scope, receive, send)

    return around


class Guard:
    """An authentication middleware between the cache and the pages below /guarded."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        guarded = scope["type"] == "http" and scope["path"].startswith("/guarded/")
        if guarded and (b"authorization", STAFF.encode()) not in scope["headers"]:
            return await PlainTextResponse("no", status_code=401)(scope, receive, send)
        return await self._app(scope, receive, send)


def check(request: Request) -> None:
    """The dependency that refuses strangers."""
    if request.headers.get("authorization") != STAFF:
        raise HTTPException(401)


def _pages(quaestor: Quaestor | None) -> FastAPI:
    listeners: list[Any] = [] if quaestor is None else [quaestor.capture]
    url, name = os.environ["MONGO_URL"], os.environ[DATABASE]
    made: dict[str, Any] = {}

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        """Makes the clients, as FastAPI recommends: the cache has started before there is one."""
        client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url, event_listeners=listeners)
        unseen: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url)
        made["database"], made["unseen"] = client[name], unseen[name]
        for prefix, options in (("/open", {}), ("/staff", {"dependencies": [Depends(check)]}), ("/guarded", {})):
            router = QuaestorRouter(client[name], access=Access.public_read(), name=prefix[1:])
            app.include_router(router, prefix=prefix, **options)  # type: ignore[arg-type]
        yield
        if (lazy := made.pop("lazy", None)) is not None:
            lazy.close()
        await client.close()
        await unseen.close()

    app = FastAPI(lifespan=lifespan, openapi_url=None)
    app.add_middleware(Guard)

    async def notes(org: str, client: str = "database") -> dict[str, Any]:
        cursor = made[client].notes.find({"org": org}).sort("_id", 1)
        return {"org": org, "notes": [[note["key"], note["org"], note["n"]] for note in await cursor.to_list()]}

    @app.get("/health")
    async def health() -> int:
        return os.getpid()

    _by_request(app, notes)
    _by_client(app, notes, made, url, listeners)
    _by_clock(app, made)
    _by_order(app, made)
    _writing(app, made)
    return app


def _by_request(app: FastAPI, notes: Notes) -> None:
    @app.get("/query")
    async def by_query(org: str = "") -> Any:
        return await notes(org)

    @app.get("/header/{name}")
    async def by_header(name: str, request: Request) -> Any:
        return await notes(request.headers.get(name, ""))

    @app.get("/parameter")
    async def by_parameter(x_org_id: Annotated[str, Header()] = "") -> Any:
        return await notes(x_org_id)

    @app.get("/copied")
    async def by_a_copy(request: Request) -> Any:
        return await notes(dict(request.headers).get("x-org-id", ""))

    @app.get("/theme")
    @cached(scope=public())
    async def by_a_declared_cookie(theme: Annotated[str, Cookie()] = "") -> Any:
        return await notes(theme)

    @app.get("/session")
    @cached(scope=per_user(by=cookie("session")))
    async def by_session(request: Request) -> Any:
        return await notes(request.cookies.get("session", ""))

    @app.get("/cookie")
    async def by_any_cookie(request: Request) -> Any:
        return await notes(request.cookies.get("session", ""))

    @app.get("/token")
    @cached(scope=per_user(by=header("authorization")))
    async def by_token(request: Request) -> Any:
        return await notes(request.headers.get("authorization", ""))

    @app.get("/authorization")
    async def by_authorization(request: Request) -> Any:
        return await notes(request.headers.get("authorization", ""))

    @app.get("/address")
    async def by_address(request: Request) -> Any:
        return await notes("" if request.client is None else request.client.host)

    @app.get("/outer")
    async def by_scope(request: Request) -> Any:
        return await notes(request.scope["org"])


def _by_client(app: FastAPI, notes: Notes, made: dict[str, Any], url: str, listeners: list[Any]) -> None:
    @app.get("/uncaptured")
    async def of_an_uncaptured_client(org: str = "") -> Any:
        return await notes(org, "unseen")

    @app.get("/lazy")
    def of_a_client_made_at_first_use(org: str = "") -> Any:
        if "lazy" not in made:
            made["lazy"] = pymongo.MongoClient(url, event_listeners=listeners)
        cursor = made["lazy"][made["database"].name].notes.find({"org": org}).sort("_id", 1)
        return {"org": org, "notes": [[note["key"], note["org"], note["n"]] for note in cursor]}


def _by_clock(app: FastAPI, made: dict[str, Any]) -> None:
    @app.get("/clock/{form}")
    async def by_clock(form: int) -> Any:
        """The first record that is not over: the value decides which."""
        value = FORMS[form][1](datetime.now(UTC))
        moments = await made["database"].moments.find({f"f{form}": {"$gte": value}}).sort("_id", 1).limit(1).to_list()
        shown = {"value": str(value)} if form >= len(RELATIVE) else {}
        return shown | {"moments": [[moment["_id"], moment["n"]] for moment in moments]}


def _by_order(app: FastAPI, made: dict[str, Any]) -> None:
    def shown(records: list[dict[str, Any]]) -> Any:
        return [[record["key"], record["n"]] for record in records]

    @app.get("/any/{pool}")
    async def any_one(pool: str) -> Any:
        record = await made["database"].pools.find_one({"pool": pool, "x": {"$gt": 0}})
        return shown([record] if record else [])

    @app.get("/some/{pool}")
    async def some(pool: str) -> Any:
        return shown(await made["database"].pools.find({"pool": pool, "x": {"$gt": 0}}).limit(3).to_list())

    @app.get("/tied/{pool}")
    async def tied(pool: str) -> Any:
        cursor = made["database"].pools.find({"pool": pool, "x": {"$gt": 0}}).sort("tie", 1).limit(3)
        return shown(await cursor.to_list())

    @app.get("/batch/{pool}")
    async def batch(pool: str, n: int) -> Any:
        """Return `n` records in a single batch; the filter is the same for every `n`."""
        command = {"find": "pools", "filter": {"pool": pool, "x": {"$gt": 0}}, "batchSize": n, "singleBatch": True}
        return shown((await made["database"].command(command))["cursor"]["firstBatch"])

    @app.get("/ranked/{how}/{kind}")
    async def ranked(how: str, kind: str) -> Any:
        """Keys alone, in the order of an index whose second field nobody names."""
        records, group = made["database"].ranked, {"_id": "$kind", "keys": {"$push": "$key"}}
        match how:
            case "limited":
                records_found = await records.find({"kind": kind}, SHOWN).limit(2).to_list()
            case "pushed":
                groups = await (await records.aggregate([{"$match": {"kind": kind}}, {"$group": group}])).to_list()
                return groups[0]["keys"] if groups else []
            case "tied":
                records_found = await records.find({"kind": kind}, SHOWN).sort("kind", 1).to_list()
            case _:
                records_found = await records.find({"kind": kind}, SHOWN).to_list()
        return [record["key"] for record in records_found]


def _writing(app: FastAPI, made: dict[str, Any]) -> None:
    @app.post("/write")
    async def write(request: Request) -> str:
        """One record is given these fields, or deleted; in one of several ways."""
        write = await request.json()
        await performed(made["database"], write["collection"], write["_id"], write["fields"], write["how"])
        return "written"


async def performed(
    database: AsyncDatabase[dict[str, Any]], collection: str, key: Any, fields: Mapping[str, Any] | None, how: str
) -> None:
    """Give one record these fields, or delete it."""
    records, this = database[collection], {"_id": key}
    if fields is None:
        await records.delete_one(this)
    elif how == "find-and-modify":
        await records.find_one_and_update(this, {"$set": fields}, upsert=True)
    elif how == "bulk":
        await records.bulk_write([UpdateOne(this, {"$set": fields}, upsert=True)])
    elif how == "transaction":

        async def updated(session: AsyncClientSession) -> None:
            await records.update_one(this, {"$set": fields}, upsert=True, session=session)

        async with database.client.start_session() as session:
            # tried again, as MongoDB asks: an index that comes or goes keeps a transaction's lock for longer than it waits
            await session.with_transaction(updated)
    else:
        await records.update_one(this, {"$set": fields}, upsert=True)

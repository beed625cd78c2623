"""Clients may be made wherever and whenever: watching begins with the first one that carries the capture."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import beanie
import pytest
from fastapi import FastAPI
from pymongo import AsyncMongoClient, MongoClient

from quaestor import Quaestor, cached
from quaestor.capture import Capture
from quaestor.capture.clients import watch_client
from quaestor.errors import ConfigurationError
from quaestor.middleware import QuaestorMiddleware
from quaestor.model import CapturedRead, Operation, Query
from quaestor.runtime.parts import build_parts
from quaestor.settings import Settings
from quaestor.testing import servers
from tests.end_to_end.test_distributed import grid
from tests.inputs.flights import Async, Flight, Sync, alive, becomes_exact, get, is_hit, numbers, page, written
from tests.support import PATIENT, eventually

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("connects", [True, False], ids=["pinged", "unused"])
async def test_a_client_made_in_the_lifespan_after_the_start_is_watched(
    mongo_url: str, prefix: str, connects: bool
) -> None:
    """FastAPI's recommended pattern: the app's own lifespan runs inside the middleware's."""
    quaestor, made = Quaestor(**PATIENT), list[Async]()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncMongoClient[dict[str, Any]](mongo_url, event_listeners=[quaestor.capture]) as client:
            made.append(client)
            if connects:
                await client.admin.command("ping")
            yield

    app = FastAPI(lifespan=lifespan)
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    page(app, lambda origin: numbers(made[0], prefix, origin))
    with written(mongo_url, prefix) as other:
        async with alive(app) as http:
            await becomes_exact(http, other, prefix)


async def test_a_client_made_in_the_lifespan_before_the_start_is_watched(mongo_url: str, prefix: str) -> None:
    """By something around the middleware: a server's own set-up, or an app that mounts this one."""
    quaestor, inner, made = Quaestor(**PATIENT), FastAPI(), list[Async]()
    page(inner, lambda origin: numbers(made[0], prefix, origin))
    behind = QuaestorMiddleware(inner, quaestor=quaestor)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async with AsyncExitStack() as stack:
            if scope["type"] == "lifespan":
                client: Async = AsyncMongoClient(mongo_url, event_listeners=[quaestor.capture])
                made.append(await stack.enter_async_context(client))
            await behind(scope, receive, send)

    with written(mongo_url, prefix) as other:
        async with alive(app) as http:
            await becomes_exact(http, other, prefix)


async def test_a_client_made_at_first_use_is_watched(mongo_url: str, prefix: str) -> None:
    """Until then answers are not cached, and say why."""
    quaestor, app, made = Quaestor(**PATIENT), FastAPI(), list[Async]()

    async def read(origin: str) -> list[int]:
        if not made:
            made.append(AsyncMongoClient(mongo_url, event_listeners=[quaestor.capture]))
        return await numbers(made[0], prefix, origin)

    page(app, read)
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    with written(mongo_url, prefix) as other:
        async with alive(app) as http:
            first = await get(http, "/JFK")
            assert first.json() == [0]
            assert "not-serving" in first.headers["cache-status"]
            await becomes_exact(http, other, prefix)
        await made[0].close()


async def test_beanie_initialised_in_the_lifespan_is_exact(mongo_url: str, prefix: str) -> None:
    """Beanie's recommended pattern."""
    quaestor = Quaestor(**PATIENT)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncMongoClient[dict[str, Any]](mongo_url, event_listeners=[quaestor.capture]) as client:
            await beanie.init_beanie(client[prefix], document_models=[Flight])
            yield

    app = FastAPI(lifespan=lifespan)

    @app.get("/{origin}")
    async def flights(origin: str) -> list[int]:
        return [flight.n for flight in await Flight.find(Flight.origin == origin).to_list()]

    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    with written(mongo_url, prefix) as other:
        async with alive(app) as http:
            await becomes_exact(http, other, prefix)


async def test_a_synchronous_client_made_in_a_thread_is_watched(mongo_url: str, prefix: str) -> None:
    """Handlers that are no coroutines run in a pool of threads; the client's monitors run in threads of their own."""
    quaestor, app, made = Quaestor(**PATIENT), FastAPI(), list[Sync]()

    @app.get("/{origin}")
    def flights(origin: str) -> list[int]:
        if not made:
            made.append(MongoClient(mongo_url, event_listeners=[quaestor.capture]))
        return [flight["n"] for flight in made[0][prefix].flights.find({"origin": origin})]

    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    with written(mongo_url, prefix) as other:
        async with alive(app) as http:
            await becomes_exact(http, other, prefix)
        made[0].close()


async def test_a_client_made_in_the_lifespan_is_watched_on_the_grid_too(
    mongo_url: str, redis_url: str, prefix: str
) -> None:
    """The grid watches the writes; this process needs the database for what namespaces mean, and for manual invalidation."""
    quaestor = Quaestor(redis_url=redis_url, deployment=prefix, **PATIENT)
    made = list[Async]()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncMongoClient[dict[str, Any]](mongo_url, event_listeners=[quaestor.capture]) as client:
            made.append(client)
            yield

    app = FastAPI(lifespan=lifespan)
    page(app, lambda origin: numbers(made[0], f"{prefix}a", origin))
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    with written(mongo_url, f"{prefix}a") as other, grid(mongo_url, redis_url, prefix):
        async with alive(app) as http:
            await becomes_exact(http, other, f"{prefix}a")
            await quaestor.invalidate(collections=[f"{prefix}a.flights"])

            async def gone() -> bool:
                return not await is_hit(http, "/EWR")

            await eventually(gone)


async def test_nothing_is_registered_before_it_is_known_what_namespaces_mean() -> None:
    """A view would be taken for a collection that nobody writes to. A grid that others feed may be serving already."""
    parts = build_parts(Settings(), clock=lambda: 0)
    read = CapturedRead(query=Query(namespace="d.c", operation=Operation.FIND, filter={}), read_at=1, ids=())
    assert await parts.resolver.resolve([read]) == ((), ("not-serving",))
    assert await parts.resolver.resolve([]) == ((), ())


async def test_on_a_grid_that_serves_nothing_is_stored_before_the_database_is_known(
    mongo_url: str, redis_url: str, prefix: str
) -> None:
    """A view may be a declared dependency too."""
    quaestor = Quaestor(redis_url=redis_url, deployment=prefix, **PATIENT)
    app, client, runs = FastAPI(), list[Async](), list[int]()

    @app.get("/declared")
    @cached(depends_on=[(f"{prefix}a.flights", {"origin": "JFK"})])
    async def declared() -> int:
        runs.append(1)
        return len(runs)

    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    with written(mongo_url, f"{prefix}a") as other, grid(mongo_url, redis_url, prefix):
        async with alive(app) as http:
            await eventually(lambda: quaestor.registry.caught_up(now_ms=quaestor.read_path.clock()))
            for _ in range(3):
                assert "not-serving" in (await get(http, "/declared")).headers["cache-status"]
            assert len(runs) == 3
            client.append(AsyncMongoClient(mongo_url, event_listeners=[quaestor.capture]))
            await eventually(lambda: is_hit(http, "/declared"))
            before = len(runs)
            other[f"{prefix}a"].flights.update_one({"_id": 1}, {"$set": {"n": 1}})

            async def anew() -> bool:
                return bool((await get(http, "/declared")).json() > before)

            await eventually(anew)
        await client[0].close()


async def test_the_first_client_decides_the_watched_cluster_and_others_are_not_cached(
    mongo_url: str, prefix: str, tmp_path: Path
) -> None:
    """A client of another cluster stops nothing: it is reported, and answers with reads from there are not kept."""
    quaestor, app, events, made = Quaestor(debug_header=True, **PATIENT), FastAPI(), list[str](), list[Async]()
    quaestor.on_failure(lambda failure: events.append(failure.name))
    near: Async = AsyncMongoClient(mongo_url, event_listeners=[quaestor.capture])

    @app.get("/far")
    async def far() -> list[int]:
        if not made:
            made.append(AsyncMongoClient(other_url, event_listeners=[quaestor.capture]))
        return await numbers(made[0], prefix, "JFK")

    page(app, lambda origin: numbers(near, prefix, origin))
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    server = servers.mongod_server(tmp_path)
    server.start()
    other_url = server.url
    try:
        with written(mongo_url, prefix) as other, written(other_url, prefix) as far_away:
            async with alive(app) as http:
                await becomes_exact(http, other, prefix)
                for n in (5, 6):
                    far_away[prefix].flights.update_one({"_id": 1}, {"$set": {"n": n}})
                    answer = await get(http, "/far")
                    assert answer.json() == [n]
                    assert "in another cluster than the one watched" in answer.headers["x-quaestor-explain"]
                await eventually(lambda: "quaestor.another_cluster" in events)
                assert "quaestor.not_watching" not in events
                assert await is_hit(http, "/EWR")
            await made[0].close()
    finally:
        await near.close()
        server.stop()


def test_a_stranger_is_distrusted_before_its_servers_have_said_anything() -> None:
    """A mongos never says what it belongs to."""
    capture, heard = Capture(), list[bool]()
    with MongoClient[Any]("mongodb://a.invalid/", connect=False, event_listeners=[capture]):
        capture.clients.follow(lambda: heard.append(True))
        capture.clients.heartbeat()
        assert heard == [True]
        with MongoClient[Any]("mongodb://d.invalid:7/", connect=False, event_listeners=[capture]):
            capture.clients.heartbeat()
            assert heard == [True, True]
        assert capture._topology.is_in_another_cluster(("d.invalid", 7))
        assert not capture._topology.is_in_another_cluster(("a.invalid", 27017))
        capture.clients.heartbeat()
        assert heard == [True, True], "nobody has appeared since"


async def test_an_app_without_any_captured_client_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report comes soon, but not at the start, when the client may still be made."""
    monkeypatch.setattr("quaestor.runtime.watching._LOOK_EVERY_S", 0.01)
    quaestor, events = Quaestor(), list[str]()
    quaestor.on_failure(lambda failure: events.append(failure.error))
    await quaestor.start()
    assert events == []
    await eventually(lambda: bool(events))
    await quaestor.stop()
    assert len(events) == 1
    assert "event_listeners=[quaestor.capture]" in events[0]


def test_a_pymongo_that_lists_no_clients_is_reported_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(MongoClient, "_clients")
    with pytest.raises(ConfigurationError, match=r"pass mongo_url="):
        watch_client(Capture(), Settings())

"""Clients without the capture are noticed: what they read makes an answer uncacheable, and says why."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from pymongo import AsyncMongoClient, MongoClient

from quaestor import Quaestor, cached
from quaestor.capture import Capture, recording
from quaestor.capture.clients import watch_client
from quaestor.middleware import QuaestorMiddleware
from quaestor.model import Uncacheable
from quaestor.settings import Settings
from tests.inputs.flights import Async, alive, becomes_exact, get, is_hit, numbers, page, written
from tests.support import PATIENT, eventually

pytestmark = pytest.mark.anyio


async def test_the_declaration_of_a_route_stands_in_for_reads_of_uncaptured_clients(
    mongo_url: str, prefix: str
) -> None:
    """Somebody has said on what the answer depends, so nobody needs to see it."""
    quaestor, app = Quaestor(**PATIENT), FastAPI()
    captured: Async = AsyncMongoClient(mongo_url, event_listeners=[quaestor.capture])
    bare: Async = AsyncMongoClient(mongo_url)

    @app.get("/declared")
    @cached(depends_on=[(f"{prefix}.flights", {"origin": "JFK"})])
    async def declared() -> list[int]:
        return await numbers(bare, prefix, "JFK")

    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    with written(mongo_url, prefix) as other:
        async with alive(app) as http:
            await eventually(lambda: is_hit(http, "/declared"))
            other[prefix].flights.update_one({"_id": 1}, {"$set": {"n": 1}})

            async def shown() -> bool:
                return bool((await get(http, "/declared")).json() == [1])

            await eventually(shown)
    await captured.close()
    await bare.close()


@pytest.mark.parametrize("beside", [True, False], ids=["beside a captured one", "alone"])
async def test_a_read_by_a_client_without_capture_makes_the_answer_uncacheable(
    mongo_url: str, prefix: str, beside: bool
) -> None:
    """A read without a registration is reported in the answer, which no cache keeps,
    so the next request shows the next write.
    """
    quaestor, app = Quaestor(debug_header=True, **PATIENT), FastAPI()
    captured: Async = AsyncMongoClient(mongo_url, event_listeners=[quaestor.capture])
    bare: Async = AsyncMongoClient(mongo_url)

    @app.get("/both")
    async def both() -> list[int]:
        if beside:
            await captured[prefix].flights.find_one({"_id": 2})
        return await numbers(bare, prefix, "JFK")

    page(app, lambda origin: numbers(captured, prefix, origin))
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    with written(mongo_url, prefix) as other:
        async with alive(app) as http:
            await becomes_exact(http, other, prefix)
            for n in (2, 3):
                other[prefix].flights.update_one({"_id": 1}, {"$set": {"n": n}})
                answer = await get(http, "/both")
                assert answer.json() == [n]
                assert "; hit" not in answer.headers["cache-status"]
                explanation = answer.headers["x-quaestor-explain"]
                assert "uncaptured" in explanation
                assert f"find on {prefix}.flights by a client without capture" in explanation
                assert answer.headers["cache-control"] == ("no-store" if beside else "no-cache")
    await captured.close()
    await bare.close()


def test_a_synchronous_client_without_capture_is_noticed_and_harmless_commands_are_not(
    mongo_url: str, prefix: str
) -> None:
    capture = Capture()
    with MongoClient[Any](mongo_url) as bare, MongoClient[Any](mongo_url, event_listeners=[capture]) as client:
        with recording() as recorder:
            bare.admin.command("ping")
            client[prefix].c.find_one()
            assert recorder.outcome(0).reasons == ()
            bare[prefix].c.insert_one({})
            wrote, (reason, detail) = recorder.outcome(0).reasons
            assert wrote.reason is Uncacheable.WROTE
            assert reason is Uncacheable.UNCAPTURED
            assert detail == f"insert on {prefix}.c by a client without capture"
        client.drop_database(prefix)


def test_several_quaestors_listen_to_their_own_clients(mongo_url: str, prefix: str) -> None:
    """Another one's client watches another database, perhaps; a client that carries both captures is counted once by each."""
    first, second = Capture(), Capture()
    with (
        MongoClient[Any](mongo_url, event_listeners=[first]) as ours,
        MongoClient[Any](mongo_url, event_listeners=[second]) as theirs,
        MongoClient[Any](mongo_url, event_listeners=[second, first]) as shared,
    ):
        for client, reads, reasons in ((ours, 1, []), (shared, 1, []), (theirs, 0, ["uncaptured", "no-reads"])):
            with recording(capture=first) as recorder:
                client[prefix].c.find_one()
                outcome = recorder.outcome(0)
                assert len(outcome.reads) == reads
                assert sorted(reason for reason, _ in outcome.reasons) == sorted(reasons)


def test_our_own_clients_are_not_taken_for_uncaptured_ones(mongo_url: str, prefix: str) -> None:
    capture = Capture()
    with (
        MongoClient[Any](mongo_url, event_listeners=[capture]) as client,
        watch_client(capture, Settings()) as own,
        recording() as recorder,
    ):
        client[prefix].c.find_one()
        own[prefix].c.find_one()
        assert recorder.outcome(0).reasons == ()

"""Any GET, live, against the bare handlers: a hundred random shapes are followed while random writes come."""

from __future__ import annotations

import asyncio
import os
import random
import time
from dataclasses import dataclass, field
from typing import Any

import httpx
import pymongo
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from quaestor import Quaestor, QuaestorMiddleware
from tests.end_to_end.scripted_origin import serving
from tests.live.shapes import Shape, record, shape, write
from tests.live.streamed import following
from tests.support import eventually

pytestmark = pytest.mark.anyio

SHAPES, WRITES, KEYS = 100, 40, 40
SEED = 493_810
BOUND_S = 2.0
"""Staleness bound: the default setting."""


@dataclass(slots=True)
class State:
    """The answers of the bare handlers between two writes, in values of parts.

    begun_s: when the write that made it began.
    """

    values: list[list[Any]]
    begun_s: float
    ended_s: float = float("inf")


@dataclass(slots=True)
class Seen:
    """The bodies that one follower was pushed, with the time of each."""

    bodies: list[tuple[float, str]] = field(default_factory=list)
    ended: str = ""


def app_of(shapes: list[Shape], quaestor: Quaestor, items: Any) -> Starlette:
    async def page(request: Request) -> Response:
        one = shapes[int(request.path_params["number"])]

        def work() -> list[Any]:
            return [read(items) for read in one.parts]

        return Response(one.body(await run_in_threadpool(work)), media_type=one.form)

    app = Starlette(routes=[Route("/{number:int}", page)])
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor, live=True)
    return app


async def follow(client: httpx.AsyncClient, number: int, seen: Seen) -> None:
    async with following(client, f"/{number}") as stream:
        while (event := await stream.event()) is not None:
            if event.name == "end":
                seen.ended = event.data
                return
            seen.bodies.append((time.monotonic(), event.data))


@pytest.mark.parametrize("fresh", [False, pytest.param(True, marks=pytest.mark.slow)])
async def test_each_pushed_body_is_the_bare_handlers_within_the_bound_and_the_last_one_is_final(
    mongo_url: str, prefix: str, fresh: bool
) -> None:
    """The bodies that each follower is pushed are answers of the bare handler, not older than the bound."""
    seed = int(os.environ.get("QUAESTOR_ORACLE_SEED") or (random.SystemRandom().randrange(10**6) if fresh else SEED))
    print(f"QUAESTOR_ORACLE_SEED={seed}")
    rng = random.Random(seed)
    quaestor = Quaestor(mongo_url=mongo_url, deployment=prefix, verification=False)
    with (
        pymongo.MongoClient[Any](mongo_url) as bare,
        pymongo.MongoClient[Any](mongo_url, event_listeners=[quaestor.capture]) as captured,
    ):
        database = bare[prefix]
        database.items.insert_many([record(rng, key) for key in range(KEYS)])
        database.others.insert_many([{"_id": key, "level": 0} for key in range(6)])
        shapes = [shape(rng) for _ in range(SHAPES)]

        def answers() -> list[list[Any]]:
            return [one.values(one.body([read(database.items) for read in one.parts])) for one in shapes]

        states = [State(await asyncio.to_thread(answers), time.monotonic())]
        limits = httpx.Limits(max_connections=SHAPES + 10)
        async with (
            serving(uvicorn.Config(app_of(shapes, quaestor, captured[prefix].items), ws="none")) as url,
            httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as client,
        ):
            seen = [Seen() for _ in shapes]
            followers = [asyncio.create_task(follow(client, number, one)) for number, one in enumerate(seen)]
            await eventually(lambda: all(one.bodies or one.ended for one in seen), within_s=60)
            for _ in range(WRITES):
                begun_s = time.monotonic()
                await asyncio.to_thread(write, rng, database, KEYS)
                states[-1].ended_s = time.monotonic()
                states.append(State(await asyncio.to_thread(answers), begun_s))
            final = states[-1].values

            def settled() -> bool:
                answered = zip(shapes, seen, final, strict=True)
                return all(one.values(got.bodies[-1][1]) == last for one, got, last in answered)

            try:
                await eventually(settled, within_s=20)
            finally:
                for task in followers:
                    task.cancel()
                await asyncio.wait(followers)
        database.client.drop_database(prefix)
    pushed = 0
    for number, (one, got) in enumerate(zip(shapes, seen, strict=True)):
        assert not got.ended, f"shape {number} of seed {seed}: {got.ended}"
        for at_s, body in got.bodies:
            for position, value in enumerate(one.values(body)):
                overlapping = [state for state in states if state.begun_s <= at_s and state.ended_s >= at_s - BOUND_S]
                assert value in [state.values[number][position] for state in overlapping], (seed, number, position)
        pushed += len(got.bodies)
    print(f"seed {seed}: {pushed} bodies pushed")
    assert pushed > 2 * SHAPES

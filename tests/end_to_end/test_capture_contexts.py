"""Reads are attributed to their handler: every kind of handler, its tasks and threads, and nothing of other requests."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest
from fastapi import BackgroundTasks, FastAPI
from pymongo import AsyncMongoClient
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from quaestor.capture import Capture, Outcome, Recorder, current, not_recording, recording
from quaestor.model import Uncacheable
from tests.end_to_end.captured import (
    ROWS,
    Client,
    async_client,
    capture,
    client,
    now_ms,
    only_read,
    outcome_of,
    reasons,
)

__all__ = ["async_client", "capture", "client"]


def test_nothing_is_recorded_outside_a_recording(client: Client, prefix: str) -> None:
    with recording() as recorder:
        client[prefix].c.find_one()
    client[prefix].c.insert_one({})
    assert current() is None
    assert len(only_read(recorder.outcome(now_ms())).ids or ()) == 1


def test_a_recording_inside_another_makes_the_outer_one_uncacheable(client: Client, prefix: str) -> None:
    with recording() as outer:
        with recording() as inner:
            client[prefix].c.find_one()
        assert current() is outer
    only_read(inner.outcome(now_ms()))
    assert reasons(outer.outcome(now_ms())) == {Uncacheable.UNREADABLE}


@pytest.mark.anyio
async def test_async_reads_task_groups_and_threads(
    client: Client, async_client: AsyncMongoClient[dict[str, Any]], prefix: str
) -> None:
    """Every read that a handler starts is captured, wherever it runs; reads of concurrent handlers are kept apart."""
    await async_client[prefix].c.find_one()  # the client's background tasks exist before the requests

    async def handler(base: int) -> Outcome:
        with recording() as recorder:
            async with anyio.create_task_group() as group:
                group.start_soon(async_client[prefix].c.find_one, {"_id": base})
                group.start_soon(anyio.to_thread.run_sync, client[prefix].c.find_one, {"_id": base + 1})
                group.start_soon(async_client[prefix].c.find({"_id": {"$gte": base + 10}}, batch_size=50).to_list)
            return recorder.outcome(now_ms())

    outcomes: dict[int, Outcome] = {}

    async def run(base: int) -> None:
        outcomes[base] = await handler(base)

    async with anyio.create_task_group() as group:
        for base in range(0, 60, 20):
            group.start_soon(run, base)

    for base, outcome in outcomes.items():
        assert outcome.reasons == ()
        seen = sorted(list(read.ids or ()) for read in outcome.reads)
        assert seen == [[base], [base + 1], list(range(base + 10, ROWS))]


@pytest.mark.anyio
async def test_first_use_of_an_async_client_in_a_request_is_not_kept_alive(mongo_url: str, prefix: str) -> None:
    """The client's background tasks inherit the request's context; they must not find its recorder afterwards."""
    async with AsyncMongoClient[dict[str, Any]](mongo_url, event_listeners=[Capture()]) as client:
        seen: list[Recorder | None] = []
        later = anyio.Event()

        async def outliving() -> None:
            await later.wait()
            await client[prefix].c.find_one()
            seen.append(current())

        async with anyio.create_task_group() as group:
            with recording() as recorder:
                await client[prefix].c.find_one()
                group.start_soon(outliving)
            later.set()
        assert seen == [None]
        only_read(recorder.outcome(now_ms()))


class RecordingMiddleware:
    """The smallest middleware that records: what the real one does around a miss."""

    def __init__(self, app: ASGIApp, outcomes: dict[str, Outcome]) -> None:
        self.app = app
        self.outcomes = outcomes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        with recording() as recorder:

            async def noting(message: Any) -> None:
                if message["type"] == "http.response.body" and not message.get("more_body"):
                    self.outcomes[scope["path"]] = recorder.outcome(now_ms())
                await send(message)

            await self.app(scope, receive, noting)


@pytest.mark.anyio
async def test_fastapi_handlers_of_every_kind(
    client: Client, async_client: AsyncMongoClient[dict[str, Any]], prefix: str
) -> None:
    outcomes: dict[str, Outcome] = {}
    app = FastAPI(middleware=[Middleware(RecordingMiddleware, outcomes=outcomes)])

    @app.get("/async")
    async def in_loop() -> Any:
        return await async_client[prefix].c.find({"n": 1}).to_list()

    @app.get("/def")
    def in_thread() -> Any:
        return client[prefix].c.find({"n": 1}).to_list()

    @app.get("/background")
    def with_background(tasks: BackgroundTasks) -> Any:
        tasks.add_task(client[prefix].c.insert_one, {"_id": "after the response"})
        return client[prefix].c.find({"n": 1}).to_list()

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as http:
        for path in ("/async", "/def", "/background"):
            assert len((await http.get(path)).json()) == 25
            assert len(only_read(outcomes[path]).ids or ()) == 25


def test_a_read_in_a_thread_that_carries_no_context_makes_the_requests_uncacheable(client: Client, prefix: str) -> None:
    """Such a read may belong to any of the requests, because `loop.run_in_executor` does not pass the context on."""

    def handler(elsewhere: Callable[[], object]) -> Callable[[], object]:
        def run() -> None:
            client[prefix].c.find_one()
            with ThreadPoolExecutor(1) as pool:
                pool.submit(elsewhere).result()

        return run

    def in_background_work() -> None:
        with not_recording():
            client[prefix].c.find_one()

    assert reasons(outcome_of(handler(client[prefix].c.find_one))) == {Uncacheable.UNREADABLE}
    assert reasons(outcome_of(handler(client[prefix].c.find({}).to_list))) == {Uncacheable.UNREADABLE}
    assert reasons(outcome_of(handler(lambda: client[prefix].c.insert_one({})))) == set()
    assert reasons(outcome_of(handler(in_background_work))) == set()
    assert reasons(outcome_of(handler(functools.partial(copy_context().run, client[prefix].c.find_one)))) == {
        Uncacheable.UNREADABLE
    }


@pytest.mark.anyio
async def test_reads_in_threads_of_the_event_loop_are_kept_apart(client: Client, prefix: str) -> None:
    """asyncio.to_thread passes the context on, run_in_executor does not; anyio's workers for other requests do no harm."""
    read = client[prefix].c.find_one
    with recording() as recorder:
        await asyncio.to_thread(read)
        assert only_read(recorder.outcome(now_ms()))
        elsewhere = anyio.Event()

        async def other_request() -> None:
            await elsewhere.wait()
            await anyio.to_thread.run_sync(read)

        with not_recording():
            other = asyncio.ensure_future(other_request())
        elsewhere.set()
        await other
        assert only_read(recorder.outcome(now_ms()))
        await asyncio.get_running_loop().run_in_executor(None, read)
        assert reasons(recorder.outcome(now_ms())) == {Uncacheable.UNREADABLE}

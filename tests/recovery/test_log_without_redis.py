"""The log of an app whose Redis is away: each failure is one line, however often it recurs."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import structlog
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from quaestor import Quaestor, QuaestorMiddleware
from quaestor.observability import event_log
from quaestor.testing.servers import HOST, Server, free_port
from tests.support import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

WITHIN_S = 120
OFTEN = {"election.event_layer_failed": 20, "registry.read_failed": 20, "store.not_accounted": 3}
"""Failures that the log has to hold back. Hits are accounted every two seconds, so three failures take some seconds."""


@pytest.fixture(autouse=True)
def unhurried_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure counts as over after silence, which a machine that stands still causes too."""
    monkeypatch.setattr(event_log, "_OVER_S", 600.0)
    monkeypatch.setattr(event_log, "_AGAIN_S", 600.0)


class App:
    """One app process. failures: their number by event since Redis is away."""

    def __init__(self, quaestor: Quaestor, client: httpx.AsyncClient) -> None:
        self.quaestor = quaestor
        self.failures: Counter[str] = Counter()
        quaestor.on_failure(lambda failure: self.failures.update([failure.name]))
        self._client = client

    def serving(self) -> bool:
        return self.quaestor.read_path.serving(self.quaestor.read_path.clock())

    async def fails_often(self) -> bool:
        """Send a request, and return whether each part has failed often enough."""
        answer = await self._client.get("/")
        assert (answer.status_code, answer.text) == (200, "0")
        return all(self.failures[name] >= number for name, number in OFTEN.items())


@asynccontextmanager
async def running(mongo_url: str, redis_url: str, deployment: str) -> AsyncIterator[App]:
    quaestor = Quaestor(redis_url=redis_url, deployment=deployment, verification=False)
    site = FastAPI()
    site.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    transport = httpx.ASGITransport(app=site)
    async with (
        AsyncMongoClient[dict[str, Any]](mongo_url, event_listeners=[quaestor.capture]) as mongo,
        httpx.AsyncClient(transport=transport, base_url="http://shop.test") as client,
    ):

        @site.get("/")
        async def count() -> int:
            return await mongo[deployment].items.count_documents({})

        app = App(quaestor, client)
        await quaestor.start()
        try:
            yield app
        finally:
            await quaestor.stop()


def lines(logs: list[Any], part: Callable[[Any], Any]) -> Counter[Any]:
    """Number of warnings by a part of the line."""
    return Counter(part(line) for line in logs if line["log_level"] == "warning")


async def test_a_redis_that_is_away_is_one_line_for_each_event(mongo_url: str, prefix: str) -> None:
    """Redis never answers. Each event has one line, though its part fails 20 times and more."""
    with structlog.testing.capture_logs() as logs:
        async with running(mongo_url, f"redis://{HOST}:{free_port()}", prefix) as app:
            await eventually(app.fails_often, within_s=WITHIN_S)
            shown = lines(logs, lambda line: line["event"])
    assert OFTEN.keys() <= shown.keys()
    assert set(shown.values()) == {1}, shown


async def test_a_redis_that_dies_is_one_line_for_each_event_and_cause(
    mongo_url: str, prefix: str, valkey: Server
) -> None:
    """First Redis closes the connections, then it refuses new ones: an event has a line for each of these causes."""
    with structlog.testing.capture_logs() as logs:
        async with running(mongo_url, valkey.url, prefix) as app:
            await eventually(app.serving, within_s=WITHIN_S)
            before = len(logs)
            app.failures.clear()
            valkey.kill()
            await eventually(app.fails_often, within_s=WITHIN_S)
            shown = lines(logs[before:], lambda line: (line["event"], line["error"]))
    assert OFTEN.keys() <= {event for event, _ in shown}
    assert set(shown.values()) == {1}, shown

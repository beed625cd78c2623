"""Outcome of capture for a handler that reads with a real driver on a real mongod."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from pymongo import AsyncMongoClient, MongoClient

from quaestor.capture import Capture, Outcome, recording
from quaestor.model import CapturedRead, Uncacheable

Client = MongoClient[dict[str, Any]]
ROWS = 250


@pytest.fixture
def capture() -> Capture:
    return Capture()


@pytest.fixture
def client(mongo_url: str, capture: Capture, prefix: str) -> Iterator[Client]:
    with MongoClient[dict[str, Any]](mongo_url, event_listeners=[capture]) as client:
        client[prefix].c.insert_many([{"_id": i, "n": i % 10, "deep": {"x": i}} for i in range(ROWS)])
        yield client
        client.drop_database(prefix)


@pytest.fixture
async def async_client(mongo_url: str, capture: Capture) -> AsyncIterator[AsyncMongoClient[dict[str, Any]]]:
    async with AsyncMongoClient[dict[str, Any]](mongo_url, event_listeners=[capture]) as client:
        yield client


def outcome_of(handler: Callable[[], object]) -> Outcome:
    with recording() as recorder:
        handler()
        return recorder.outcome(now_ms())


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def only_read(outcome: Outcome) -> CapturedRead:
    assert outcome.reasons == ()
    (read,) = outcome.reads
    return read


def reasons(outcome: Outcome) -> set[Uncacheable]:
    return {reason for reason, _ in outcome.reasons}

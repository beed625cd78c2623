"""HTTP sources on a real server: bodies, keys, back-pressure, hostile clients, stop and restart."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from quaestor.channels.datasets import Mode
from quaestor.channels.feeds.http import HttpSource
from quaestor.channels.feeds.records import Incoming
from quaestor.channels.feeds.service import FeedService
from quaestor.errors import DependencyError
from tests.channels.feeds.world import World, posting, running
from tests.support import eventually

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def taking(world: World) -> AsyncIterator[tuple[httpx.AsyncClient, FeedService]]:
    """Run the service until the feed takes requests."""
    service = world.service()
    async with running(service), posting(service) as client:
        await eventually(lambda: "f" in service._posts)
        yield client, service


def world_of(folder: Path) -> World:
    world = World(folder)
    world.define(type="http")
    return world


def body(*numbers: int) -> bytes:
    return b"".join(json.dumps({"id": number, "text": "a"}).encode() + b"\n" for number in numbers)


@pytest.mark.parametrize("kind", ["application/x-ndjson", "application/json", ""])
async def test_lines_and_objects_that_follow_each_other_are_records(tmp_path: Path, kind: str) -> None:
    """The answer counts the rejected records; the written records are durable."""
    world = world_of(tmp_path)
    content = body(1, 2) if kind == "application/x-ndjson" else body(1, 2).replace(b"\n", b"")
    async with taking(world) as (client, _):
        answer = await client.post("/feeds/f", content=content + b'{"text":"b"}', headers={"content-type": kind})
    assert answer.json() == {"accepted": 2, "rejected": 1, "repeated": False}
    assert world.records() == {1: "a", 2: "a"}
    assert [data for data, _ in world.letters()] == [b'{"text":"b"}']


async def test_a_body_with_a_known_key_changes_nothing_also_after_a_restart(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    for expected in (False, True):
        async with taking(world) as (client, _):
            answer = await client.post("/feeds/f", content=body(1, 1), headers={"idempotency-key": '"c/1/0"'})
            assert answer.json()["repeated"] is expected
            again = await client.post("/feeds/f", content=body(1, 1), headers={"idempotency-key": "c/1/0"})
            assert again.json() == {"accepted": 0, "rejected": 0, "repeated": True}
    assert world.records() == {1: "a"}
    assert len(world.letters()) == 1


@pytest.mark.parametrize("between", ["b", ""], ids=["keyed", "without a key"])
@pytest.mark.parametrize("mode", list(Mode))
def test_a_keyed_batch_that_failed_in_part_is_written_also_after_other_batches(
    tmp_path: Path, mode: Mode, between: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second partition fails once, another sender is faster, and the retry brings all records. Then the key is known."""
    world = World(tmp_path, partitions=2)
    world.define(mode, type="http")
    batch = [Incoming(line) for line in body(*range(10)).splitlines()]
    feed = world.feed()
    failing = feed._sink.partitions[1]  # type: ignore[attr-defined]

    def fails(*_: Any, **__: Any) -> None:
        raise DependencyError("the storage is away")

    with monkeypatch.context() as patch:
        patch.setattr(failing, "publish", fails)
        with pytest.raises(DependencyError):
            feed.take(batch, "a")
    assert 0 < len(world.records()) < 10
    assert not feed.take([Incoming(body(10))], between).is_repeated
    feed.take(batch, "a")
    assert sorted(world.records()) == list(range(11))
    for later in (feed, world.feed()):
        assert [later.take(batch, key).is_repeated for key in ("a", between or "a")] == [True, True]


async def test_a_compressed_body_is_expanded_and_a_bomb_is_refused(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    packed = {"content-encoding": "gzip", "content-type": "application/x-ndjson"}
    async with taking(world) as (client, _):
        assert (await client.post("/feeds/f", content=gzip.compress(body(1)), headers=packed)).json()["accepted"] == 1
        bomb = await client.post("/feeds/f", content=gzip.compress(b"\n" * (64 << 20)), headers=packed)
        damaged = await client.post("/feeds/f", content=b"plain", headers=packed)
        unknown = await client.post("/feeds/f", content=b"x", headers={"content-encoding": "br"})
    assert [answer.status_code for answer in (bomb, damaged, unknown)] == [413, 400, 400]
    assert world.records() == {1: "a"}


async def test_a_body_without_end_is_written_in_batches_and_left_when_it_is_too_long(tmp_path: Path) -> None:
    """Memory holds a batch at most."""
    world = world_of(tmp_path)
    source = HttpSource(world.feed(), world.telemetry, most_bytes=200_000)
    service = world.service()
    service._posts["f"] = source
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        for start in range(0, 10**9, 1_000):
            part = body(*range(start, start + 1_000))
            sent += len(part)
            yield part

    async with posting(service) as client:
        try:
            answer = await client.post("/feeds/f", content=endless(), headers={"content-type": "application/x-ndjson"})
            assert answer.status_code == 413
        except (httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError):
            pass  # the server closes the connection behind its answer
    assert len(world.records()) >= 1_000
    assert sent < 50_000_000


async def test_a_silent_client_is_left(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    service = world.service()
    service._posts["f"] = HttpSource(world.feed(), world.telemetry, silent_s=0.2)
    left = asyncio.Event()

    async def silent() -> AsyncIterator[bytes]:
        yield body(1)
        await left.wait()

    async with posting(service) as client:
        request = asyncio.create_task(client.post("/feeds/f", content=silent()))
        await eventually(lambda: service._posts["f"]._requests == 1)
        await eventually(lambda: service._posts["f"]._requests == 0)
        left.set()
        await asyncio.wait([request])
        if not request.exception():
            assert request.result().status_code == 408


async def test_a_client_that_sends_a_few_bytes_at_a_time_is_left(tmp_path: Path) -> None:
    """Such clients would hold all the requests that may wait for a feed."""
    world = world_of(tmp_path)
    service = world.service()
    source = service._posts["f"] = HttpSource(world.feed(), world.telemetry, silent_s=0.5)

    async def dripping() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.05)

    async with posting(service) as client:
        request = asyncio.create_task(client.post("/feeds/f", content=dripping()))
        await eventually(lambda: source._requests == 1)
        await eventually(lambda: source._requests == 0)
        await asyncio.wait([request])
        if not request.exception():
            assert request.result().status_code == 408
            assert "bytes a second" in request.result().text


async def test_a_busy_feed_answers_429_with_the_time_to_wait(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    service = world.service()
    source = service._posts["f"] = HttpSource(world.feed(), world.telemetry, waiting=1)
    release = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield body(1)
        await release.wait()

    async with posting(service) as client:
        first = asyncio.create_task(client.post("/feeds/f", content=slow()))
        await eventually(lambda: source._requests == 1)
        refused = await client.post("/feeds/f", content=body(2))
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        release.set()
        assert (await first).json()["accepted"] == 1
    assert world.telemetry.families.registry.get_sample_value("quaestor_feed_refused_total", {"feed": "f"}) == 1


async def test_a_stop_drains_and_a_start_takes_requests_again(tmp_path: Path) -> None:
    """A request that has begun is written; a later one is refused."""
    world = world_of(tmp_path)
    release = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield body(1)
        await release.wait()
        yield body(2)

    async with taking(world) as (client, service):
        source = service._posts["f"]
        request = asyncio.create_task(client.post("/feeds/f", content=slow()))
        await eventually(lambda: source._requests == 1)
        world.feeds.stop("f")
        await eventually(lambda: "f" not in service._posts)
        assert (await client.post("/feeds/f", content=body(3))).status_code == 404
        release.set()
        assert (await request).json()["accepted"] == 2
        world.feeds.start("f")
        await eventually(lambda: "f" in service._posts)
        await client.post("/feeds/f", content=body(4))
    assert world.records() == {1: "a", 2: "a", 4: "a"}


async def test_a_key_in_another_form_is_refused(tmp_path: Path) -> None:
    async with taking(world_of(tmp_path)) as (client, _):
        answers: list[Any] = [
            await client.post("/feeds/f", content=body(1), headers={"idempotency-key": key})
            for key in ("x" * 201, "a b")
        ]
        assert [answer.status_code for answer in answers] == [400, 400]
        assert (await client.post("/feeds/g", content=b"")).status_code == 404

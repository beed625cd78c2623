"""Service of feeds: TCP, files, stop and restart, and failures that pass."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import pytest

from tests.channels.feeds.world import World, posting, running
from tests.support import eventually

pytestmark = pytest.mark.anyio


async def test_lines_of_connections_are_records_and_a_stop_writes_what_has_come(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.define(type="tcp", address="127.0.0.1:0")
    service = world.service()
    async with running(service):
        await eventually(lambda: "f" in service.tcp)
        writers = []
        for number in range(3):
            _, writer = await asyncio.open_connection("127.0.0.1", service.tcp["f"].port)
            writer.write(json.dumps({"id": number, "text": "a"}).encode() + b"\n" + b'{"id": %d' % (number + 10))
            await writer.drain()
            writers.append(writer)
        await eventually(lambda: len(world.records()) == 3)
        world.feeds.stop("f")
        await eventually(lambda: "f" not in service._running)
        for writer in writers:
            writer.close()
    assert world.records() == {0: "a", 1: "a", 2: "a"}
    assert len(world.letters()) == 3


async def test_a_line_without_end_ends_its_connection_alone(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.define(type="tcp", address="127.0.0.1:0")
    service = world.service()
    async with running(service):
        await eventually(lambda: "f" in service.tcp)
        reader, writer = await asyncio.open_connection("127.0.0.1", service.tcp["f"].port)
        _, other = await asyncio.open_connection("127.0.0.1", service.tcp["f"].port)
        writer.write(b'{"text": "' + b"x" * (2 << 20))
        with suppress(ConnectionResetError):  # bytes were on their way
            assert await reader.read() == b""
        other.write(b'{"id": 1, "text": "a"}\n')
        await eventually(lambda: world.records() == {1: "a"})
        other.close()
        writer.close()
    assert "feeds.connection_ended" in world.seen


async def test_a_post_right_after_the_start_of_its_feed_waits_for_it(tmp_path: Path) -> None:
    """No 404 and no 503 between START FEED and the service's next look; a feed that was not started has none to wait for."""
    world = World(tmp_path)
    service = world.service()
    async with running(service), posting(service) as client:
        assert (await client.post("/feeds/f", content='{"id": 1}')).status_code == 404
        world.define(type="http")
        answer = await client.post("/feeds/f", content='{"id": 1, "text": "a"}')
        assert (answer.status_code, answer.json()["accepted"]) == (200, 1)
    assert world.records() == {1: "a"}


async def test_a_started_feed_goes_on_after_a_restart(tmp_path: Path) -> None:
    world = World(tmp_path)
    path = tmp_path / "sources" / "x"
    world.define(type="files", path="x")
    async with running(world.service()):
        path.write_text('{"id": 1, "text": "a"}\n')
        await eventually(lambda: world.records() == {1: "a"})
    with path.open("a") as file:
        file.write('{"id": 2, "text": "b"}\n')
    again = World(tmp_path)
    async with running(again.service()):
        await eventually(lambda: again.records() == {1: "a", 2: "b"})
    assert again.letters() == []


async def test_a_path_outside_the_folder_and_a_missing_dataset_are_failures_by_name(tmp_path: Path) -> None:
    """The feed is tried again: it runs as soon as the cause is gone."""
    world = World(tmp_path)
    world.define(type="files", path="../../etc")
    async with running(world.service()):
        await eventually(lambda: "feeds.failed" in world.seen)
    world = World(tmp_path / "other")
    world.feeds.create("f", {"type": "http"})
    world.feeds.connect("f", "absent")
    world.feeds.start("f")
    async with running(world.service()):
        await eventually(lambda: "feeds.failed" in world.seen)

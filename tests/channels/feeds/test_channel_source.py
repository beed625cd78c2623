"""Channel of another instance as a source, over real HTTP: each result is a record once, also after restarts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvicorn
from starlette.applications import Starlette

from quaestor.channels.brokers.serving import ServedResults
from quaestor.channels.feeds.channel_source import ChannelSource
from quaestor.channels.feeds.records import SourceLostError
from quaestor.continuous.delivery.networks import Networks
from quaestor.errors import ConfigurationError, DependencyError
from quaestor.live.results.endpoint import channel_results
from tests.channels.brokers.world import LOCAL
from tests.channels.brokers.world import World as Channels
from tests.channels.feeds.world import World, running
from tests.end_to_end.scripted_origin import serving
from tests.support import eventually

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def instance(world: Channels) -> AsyncIterator[str]:
    """Serve the results of channels; give the URL of the channel `offers`."""
    results = ServedResults(world.pages, world.brokers, world.acknowledgements, look_s=0.02)
    app = Starlette(routes=channel_results(results))
    async with serving(uvicorn.Config(app, ws="none")) as url:
        yield f"{url}/channels/offers"


def run(world: Channels, number: int, *ids: int, mine: bool = True) -> None:
    """Publish a run with a result for each id, for the subscription `s` or for another one."""
    world.run(number, *(("a", ["s", "t"] if mine else ["t"], {"id": key, "text": f"n{number}"}) for key in ids))


async def test_results_of_another_instance_are_records_once_and_a_new_process_goes_on(tmp_path: Path) -> None:
    """Runs of one result and of many, runs for other subscriptions, and a stop between two batches."""
    first, second = Channels(tmp_path / "first"), World(tmp_path / "second")
    async with instance(first) as url:
        second.define(type="channel", url=url, subscription="s")
        run(first, 1, 0, 1, 2)
        run(first, 2, 100, mine=False)
        source, feed = ChannelSource(url, "s", networks=LOCAL), second.feed()
        assert await asyncio.to_thread(feed.step, source, 2) == 2
        run(first, 3, 3)
        later = ChannelSource(url, "s", networks=LOCAL)
        while await asyncio.to_thread(second.feed().step, later, 2):
            pass
        assert second.records() == {0: "n1", 1: "n1", 2: "n1", 3: "n3"}
        for _ in range(2):
            async with running(second.service(networks=LOCAL)):
                known = len(second.records())
                run(first, 3 + known, 3 + known)
                await eventually(lambda known=known: len(second.records()) == known + 1)
    assert (second.letters(), second.seen) == ([], [])
    assert "s" not in second.feeds.get("f").described()["source"].values()


async def test_the_same_offset_has_the_same_records(tmp_path: Path) -> None:
    """Offsets lie inside runs too, and further runs change nothing before them."""
    world = Channels(tmp_path)
    run(world, 1, 0, 1)
    run(world, 2, 2, 3)
    async with instance(world) as url:
        read = ChannelSource(url, "s", networks=LOCAL).read
        everything = await asyncio.to_thread(read, "", 100)
        assert [json.loads(entry.data)["id"] for entry in everything] == [0, 1, 2, 3]
        run(world, 3, 4)
        for place in range(-1, 3):
            after = everything[place].offset if place >= 0 else ""
            assert await asyncio.to_thread(read, after, 3 - place) == everything[place + 1 :]


async def test_results_that_were_dropped_before_they_were_read_are_a_loss(tmp_path: Path) -> None:
    """A reader that was there all the time has lost nothing; one that was away may have, and is stopped by name."""
    world = Channels(tmp_path)
    run(world, 1, 0)
    async with instance(world) as url:
        present = ChannelSource(url, "s", networks=LOCAL)
        (entry,) = await asyncio.to_thread(present.read, "", 100)
        run(world, 2, 1, mine=False)
        assert await asyncio.to_thread(present.read, entry.offset, 100) == []
        oldest = world.pages.newest("offers") + 1
        world.pages.oldest = lambda _: oldest  # type: ignore[method-assign]
        assert await asyncio.to_thread(present.read, entry.offset, 100) == []
        with pytest.raises(SourceLostError, match="no longer kept"):
            await asyncio.to_thread(ChannelSource(url, "s", networks=LOCAL).read, entry.offset, 100)
        gone = ChannelSource(url.replace("offers", "gone"), "s", networks=LOCAL)
        with pytest.raises(SourceLostError, match="no such channel"):
            await asyncio.to_thread(gone.read, "", 100)
        unknown = ChannelSource(url, "unknown", networks=LOCAL)
        with pytest.raises(SourceLostError, match="no such channel or subscription"):
            await asyncio.to_thread(unknown.read, "", 100)


async def test_the_own_network_is_out_of_reach_unless_it_is_allowed(tmp_path: Path) -> None:
    """Neither by address nor by name: a user's feed asks no server of the operator."""
    async with instance(Channels(tmp_path)) as url:
        for address in (url, url.replace("127.0.0.1", "localhost")):
            with pytest.raises(DependencyError, match="no public address"):
                await asyncio.to_thread(ChannelSource(address, "s", networks=Networks()).read, "", 10)
    with pytest.raises(ConfigurationError, match="is no id"):
        ChannelSource("https://host.example/channels/c", "../../x", networks=Networks())
    with pytest.raises(ConfigurationError, match="must be https"):
        ChannelSource("file:///etc/passwd", "s", networks=Networks())

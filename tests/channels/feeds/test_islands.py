"""The reference's test of islands: a push channel of one instance, whose broker is the HTTP feed of a second instance."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.channels.brokers.world import World as Channels
from tests.channels.feeds.world import World, posting, running
from tests.support import eventually

pytestmark = pytest.mark.anyio


async def test_results_of_a_channel_are_records_of_another_instance_once(tmp_path: Path) -> None:
    """Also when a process ended before it kept that the results were delivered, and after restarts of both."""
    second = World(tmp_path / "second")
    second.define(type="http")
    rows = [("a", ["s"], {"id": number, "text": "OC"}) for number in (0, 2)]
    for restart in range(2):
        service = second.service()
        async with running(service), posting(service) as client:
            await eventually(lambda service=service: "f" in service._posts)
            first = Channels(tmp_path / f"first{restart}")
            first.run(1, *rows)
            port = client.base_url.port
            assert port is not None
            first.brokers.register("a", f"http://127.0.0.1:{port}/feeds/f", options={"type": "BAD"}, replaces=True)
            assert await first.delivery.deliver("offers", push=True) == 2
            assert first.letters.count() == 0
    assert second.records() == {0: "OC", 2: "OC"}
    assert second.letters() == []

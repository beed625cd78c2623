"""Ends of subscriptions over sockets, and slow readers: each is counted, by its reason."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from quaestor.live.websocket.limits import SocketLimits
from quaestor.observability.readings import readings
from quaestor.observability.vocabularies import LIVE_ENDS
from quaestor.rest.access import Access
from tests.live.socket_site import Site, client_of, live_site
from tests.support import eventually

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def site(mongo_url: str) -> Iterator[Site]:
    with live_site(
        mongo_url, "live_ends", access=Access.public_read("items"), limits=SocketLimits(waiting=3)
    ) as running:
        yield running


def counted(site: Site, metric: str = "live_ended") -> dict[str, float]:
    found = readings(site.quaestor.telemetry.families.registry).get(metric, {})
    return {reason: times for reason, times in found.items() if times}


async def test_each_end_is_counted_by_its_reason(site: Site, items: Any) -> None:
    """The client's own, a closed socket, a socket that the process closed."""
    before = counted(site)

    def grown() -> dict[str, float]:
        return {
            reason: times - before.get(reason, 0)
            for reason, times in counted(site).items()
            if times != before.get(reason)
        }

    async with client_of(site) as client:
        for name in "abc":
            await client.subscribe(name)
        await client.say(type="unsubscribe", id="a")
        await eventually(lambda: grown() == {"unsubscribed": 1})
    await eventually(lambda: grown() == {"unsubscribed": 1, "left": 2})
    async with client_of(site) as client:
        await client.subscribe()
        site.drop_sockets()
        await eventually(lambda: grown() == {"unsubscribed": 1, "left": 2, "broken-rule": 1})
    assert counted(site).keys() <= LIVE_ENDS
    assert site.quaestor.telemetry.families.registry.get_sample_value("quaestor_live_subscriptions") == 0


async def test_a_reader_that_stops_is_seen_as_slow(site: Site, items: Any) -> None:
    """Its unsent messages are counted while they wait, and each drop of its events is an overflow."""
    items.insert_one({"_id": 0, "n": 0})
    async with client_of(site, max_queue=1) as client:
        await client.subscribe()
        text = secrets.token_hex(250_000)  # which no compression makes small
        async with asyncio.timeout(60):
            while not counted(site, "live_slow_readers"):
                update = {"$set": {"text": text}, "$inc": {"n": 1}}
                await asyncio.to_thread(items.update_one, {"_id": 0}, update)
        assert counted(site, "live_slow_readers") == {"all": 1}
        await eventually(lambda: counted(site, "live_overflows").get("all", 0) >= 1)
        assert counted(site, "live_unsent")["all"] >= 1
    await eventually(lambda: counted(site, "live_slow_readers") == counted(site, "live_unsent") == {})

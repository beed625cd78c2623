"""The propagation limit over a real socket: changes of one record wait, and the newest is sent."""

from __future__ import annotations

import json
import uuid

import pytest

from quaestor.live.websocket.limits import SocketLimits
from tests.live.socket_site import client_of, live_site

pytestmark = pytest.mark.anyio
HOUR_MS = 3_600_000


async def test_a_removal_and_other_records_do_not_wait_for_a_change_that_waits(mongo_url: str) -> None:
    """With a limit of an hour, no change in place follows the addition; everything else does."""
    with live_site(mongo_url, f"limit_{uuid.uuid4().hex[:8]}", settings={"propagation_ms": HOUR_MS}) as site:
        async with client_of(site) as client:
            await client.subscribe(query={"k": 1})
            site.database.items.insert_one({"_id": 1, "k": 1, "n": 0})
            assert (await client.match())[:2] == ("add", "insert")
            for number in range(1, 4):
                site.database.items.update_one({"_id": 1}, {"$set": {"n": number}})
            site.database.items.insert_one({"_id": 2, "k": 1})
            assert (await client.match())[3] == 2
            site.database.items.delete_one({"_id": 1})
            assert (await client.match())[:2] == ("remove", "delete")


async def test_the_newest_state_is_sent_when_the_interval_is_over(mongo_url: str) -> None:
    """States come in order, and the last one always comes, without a further write."""
    with live_site(mongo_url, f"limit_{uuid.uuid4().hex[:8]}", settings={"propagation_ms": 100}) as site:
        async with client_of(site) as client:
            await client.subscribe(query={"k": 1})
            site.database.items.insert_one({"_id": 1, "k": 1, "n": 0})
            for number in range(1, 21):
                site.database.items.update_one({"_id": 1}, {"$set": {"n": number}})
            states = [(await client.hear())["data"]["n"]]
            while states[-1] != 20:
                states.append((await client.hear())["data"]["n"])
            assert states == sorted(set(states))


async def test_a_change_between_two_readings_is_sent_without_a_further_write(mongo_url: str) -> None:
    """Of a recomputed result: the last state always comes, although only its reading shows it."""
    settings = {"propagation_ms": 100, "poll_interval_ms": 1}
    limits = SocketLimits(pipeline_stages=2)
    name = f"limit_{uuid.uuid4().hex[:8]}"
    with live_site(mongo_url, name, settings=settings, limits=limits) as site:
        async with client_of(site) as client:
            await client.subscribe(pipeline=json.dumps([{"$unionWith": "others"}]))
            site.database.items.insert_one({"_id": 1, "n": 0})
            for number in range(1, 6):
                site.database.items.update_one({"_id": 1}, {"$set": {"n": number}})
            states = [(await client.hear())["data"]["n"]]
            while states[-1] != 5:
                states.append((await client.hear())["data"]["n"])
            assert states == sorted(set(states))

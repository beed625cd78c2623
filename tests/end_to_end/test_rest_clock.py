"""Times in the filters of lists: a list that is kept is, at every moment, the one that its URL asks for."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import pytest

from tests.end_to_end.rest_site import RestSite, rest_site
from tests.support import eventually

pytestmark = pytest.mark.anyio

HOUR_MS = 3_600_000


def iso(moment: datetime) -> dict[str, str]:
    return {"$date": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")}


async def kept(site: RestSite, filter_: dict[str, Any]) -> bool:
    response = await site.find(filter=json.dumps(filter_))
    assert response.status_code == 200, response.text
    return "; hit" in response.headers.get("cache-status", "")


@pytest.mark.parametrize("representation", ["ids", "objects"])
@pytest.mark.parametrize(
    "time",
    [
        lambda now: {"at": {"$gte": iso(now - timedelta(hours=1))}},
        lambda now: {"at": {"$gte": iso(now.replace(microsecond=0))}},
        lambda now: {"at": {"$gte": {"$date": {"$numberLong": str(int(now.timestamp() * 1000) - HOUR_MS)}}}},
        lambda now: {"n": {"$gte": int(now.timestamp())}},
        lambda now: {"day": now.date().isoformat()},
    ],
)
async def test_times_that_a_url_names_are_its_own(mongo_url: str, prefix: str, representation: str, time: Any) -> None:
    """An hour later a client names another time in its URL, so it reads another list."""
    async with rest_site(mongo_url, prefix, representation=representation) as site:
        site.other.items.insert_one({"_id": 99, "at": datetime.now(UTC), "n": 2_000_000_000, "day": "2026-11-22"})
        moment = time(datetime.now(UTC))
        await eventually(lambda: kept(site, moment))
        for entry in site.quaestor.parts.storage.memory._entries.values():
            response = entry.response
            assert response.fresh_until_ms - response.stored_at_ms >= 600_000


async def test_an_id_list_ends_with_the_unit_of_a_time_that_is_not_in_the_url(mongo_url: str, prefix: str) -> None:
    """A time that does not come from the request may come from the clock, so the list ends with the time's unit."""
    async with rest_site(mongo_url, prefix, representation="ids") as site:
        site.other.items.insert_one({"_id": bson.ObjectId()})
        this_hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        condition = {"_id": {"$gte": {"$oid": str(bson.ObjectId.from_datetime(this_hour))}}}
        await eventually(lambda: kept(site, condition))
        entries = site.quaestor.parts.storage.memory._entries
        lists = [entry.response for name, entry in entries.items() if name.startswith("list:")]
        assert lists
        end_ms = int(this_hour.timestamp() * 1000) + HOUR_MS
        assert all(entry.fresh_until_ms <= end_ms for entry in lists)


async def test_records_are_read_again_by_ids_that_look_like_times(mongo_url: str, prefix: str) -> None:
    """A changed member costs one record, also where ids are times of now."""
    async with rest_site(mongo_url, prefix, representation="ids") as site:
        first = int(datetime.now(UTC).timestamp())
        site.other.items.insert_many([{"_id": first + number, "group": "t", "n": number} for number in range(8)])
        numbered = {"group": "t"}
        await eventually(lambda: kept(site, numbered))
        site.heard.commands.clear()
        site.other.items.update_one({"_id": first}, {"$set": {"n": 99}})

        async def shown() -> bool:
            return bool((await site.find(filter=numbered)).json()[0]["n"] == 99)

        await eventually(shown)
        assert [list(find) for find in site.heard.finds()] == [["_id"]]

"""Lists put together from records while a query partition lags: only the records of that partition are read from the
database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from quaestor.invalidation.registry.freshness import Freshness
from quaestor.invalidation.registry.registration_ids import partition_of
from tests.end_to_end.rest_site import RestSite, rest_site
from tests.support import eventually

pytestmark = pytest.mark.anyio

LIST = '/items?filter={"group":"a"}&sort={"rank":1}'
PARTITIONS = 100_000
"""Enough that no two queries of a test share a partition."""
FOR_EVER_MS = 10**14


@contextmanager
def lagging(site: RestSite, registrations: tuple[str, ...]) -> Iterator[None]:
    """Make the grid seem to have that many columns, with the columns of these registrations lagging."""
    validity: Any = site.quaestor.registry._registrations.validity
    late = {partition_of(registration, PARTITIONS) for registration in registrations}
    prove, validity.prove = validity.prove, lambda _: None
    until_ms = tuple(1 if column in late else FOR_EVER_MS for column in range(PARTITIONS))
    prove(Freshness(until_ms=until_ms, all_until_ms=1, any_until_ms=FOR_EVER_MS))
    try:
        yield
    finally:
        validity.prove = prove


def together(response: httpx.Response) -> bool:
    return "QuaestorRecords" in response.headers["cache-status"]


async def ready(site: RestSite) -> None:
    """Returns when the list is put together from memory."""

    async def hit() -> bool:
        return "QuaestorRecords; hit" in (await site.http.get("/db" + LIST)).headers["cache-status"]

    await eventually(hit)


def kept(site: RestSite, prefix: str) -> dict[str, tuple[str, ...]]:
    """Return the entries in memory under names with this prefix, with the registrations that guard them."""
    memory: Any = site.quaestor.read_path.store
    return {name: entry.response.registrations for name, entry in memory._entries.items() if name.startswith(prefix)}


async def test_a_list_whose_own_partition_lags_is_read_whole_and_comes_back(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix, representation="ids") as site:
        await ready(site)
        (guards,) = kept(site, "list:").values()
        with lagging(site, guards):
            for n in range(3):
                site.other.items.update_one({"_id": 2}, {"$set": {"text": n}})
                truth = list(site.other.items.find({"group": "a"}).sort("rank"))

                async def seen(truth: Any = truth) -> bool:
                    response = await site.http.get("/db" + LIST)
                    assert not together(response)
                    return bool(response.json() == truth)

                await eventually(seen)
        site.other.items.update_one({"_id": 2}, {"$set": {"text": "last"}})
        await ready(site)
        assert (await site.http.get("/db" + LIST)).json() == list(site.other.items.find({"group": "a"}).sort("rank"))


async def test_a_member_whose_partition_lags_is_read_each_time_and_alone(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix, representation="ids") as site:
        await ready(site)
        (name,) = [entry for entry in kept(site, "record:") if _shows(site, entry, 2)]
        with lagging(site, kept(site, name)[name]):
            for n in range(3):
                site.other.items.update_one({"_id": 2}, {"$set": {"text": n}})
                site.heard.commands.clear()
                response = await site.http.get("/db" + LIST)
                assert response.json() == list(site.other.items.find({"group": "a"}).sort("rank")), "at once"
                assert site.heard.finds() == [{"_id": {"$in": [2]}}]
        await ready(site)
        assert (await site.http.get("/db" + LIST)).json() == list(site.other.items.find({"group": "a"}).sort("rank"))


def _shows(site: RestSite, name: str, key: int) -> bool:
    memory: Any = site.quaestor.read_path.store
    return f'"_id":{key},'.encode() in memory._entries[name].response.body.replace(b" ", b"")

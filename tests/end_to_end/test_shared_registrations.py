"""Responses that ran the same query rely on one registration: cheaper by an activation, and just as exact."""

from __future__ import annotations

import pytest

from quaestor.store.memory import Resident
from tests.end_to_end.test_embedded import Site, site
from tests.support import eventually

pytestmark = pytest.mark.anyio


async def ids(app: Site, path: str) -> tuple[str, ...]:
    """Return the registrations that guard the stored answer."""
    response = await app.http.get(path)
    assert response.status_code == 200
    entries: dict[str, Resident] = app.quaestor.read_path.store._entries  # type: ignore[attr-defined]
    return list(entries.values())[-1].response.registrations


async def share(app: Site) -> list[str]:
    """Ask under ever new names until an answer relies on another one's registration; all the names."""
    names: list[str] = []

    async def shared() -> bool:
        names.append(f"/departures/JFK?name={len(names)}")
        return len(await ids(app, names[-1])) == 2

    await app.warm("/departures/JFK")
    await eventually(shared)
    return names


async def test_a_write_evicts_all_who_rely_on_it(mongo_url: str, prefix: str) -> None:
    async with site(mongo_url, prefix) as (app, flights):
        names = await share(app)
        flights.update_one({"_id": 0}, {"$set": {"gate": "Z9"}})
        for name in names[-2:]:

            async def new(name: str = name) -> bool:
                return (await app.get(name))[0][0].get("gate") == "Z9"

            await eventually(new)
            response, _ = await app.get(name)
            assert response[0]["gate"] == "Z9"


async def test_no_write_goes_unseen_however_soon_the_next_one_asks(mongo_url: str, prefix: str) -> None:
    """Write, and ask at once under new names: each answer is stored as it was read, and none survives a later write."""
    async with site(mongo_url, prefix) as (app, flights):
        await share(app)
        for turn in range(15):
            flights.update_one({"_id": 0}, {"$set": {"turn": turn}})
            for name in range(4):
                assert (await app.get(f"/departures/JFK?turn={turn}&name={name}"))[0][0]["turn"] == turn
        for turn in range(15):
            for name in range(4):

                async def latest(path: str = f"/departures/JFK?turn={turn}&name={name}") -> bool:
                    return bool((await app.get(path))[0][0]["turn"] == 14)

                await eventually(latest)


async def test_the_end_of_one_response_leaves_the_others_guarded(mongo_url: str, prefix: str) -> None:
    """Of a dying answer's two queries, the one that another answer relies on stays in the grid."""
    async with site(mongo_url, prefix) as (app, flights):
        names = await share(app)
        live = await ids(app, names[-1])
        app.quaestor.registry.cancel(live)
        flights.update_one({"_id": 0}, {"$set": {"gate": "Z9"}})

        async def new() -> bool:
            return (await app.get(names[-1]))[0][0].get("gate") == "Z9"

        await eventually(new)

"""Rights of live queries: equal predicates are one registration, many roles are cheap, and a revocation is a write."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import pymongo
import pytest
from starlette.requests import Request

from quaestor.rest.access import ALL, Access, CollectionAccess, Principal, Rule
from tests.live.socket_site import Json, Site, client_of, live_site
from tests.support import eventually

pytestmark = pytest.mark.anyio
ROLES = [f"team-{number}" for number in range(150)]


def roles_of(request: Request) -> Principal:
    """`Bearer a,b` is nobody in particular with the roles a and b."""
    return Principal(roles=frozenset(request.headers.get("authorization", "").removeprefix("Bearer ").split(",")))


@pytest.fixture(scope="module")
def site(mongo_url: str) -> Iterator[Site]:
    with live_site(mongo_url, "live_rights", principal=roles_of) as running:
        yield running


def acl(*names: str) -> Json:
    return {"read": {"allow": list(names)}}


async def test_clients_with_the_same_150_roles_are_one_registration(site: Site, items: Any) -> None:
    """The order of the roles does not matter, and other roles are a second registration.

    A revocation reaches all clients of the first.
    """
    items.insert_many([{"_id": number, "_acl": acl(f"role:{ROLES[number]}")} for number in range(3)])
    before = site.quaestor.subscriptions.queries
    shuffled = random.Random(1)
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(client_of(site)) for _ in range(20)]
        for client in clients:
            token = ",".join(shuffled.sample(ROLES, len(ROLES)))
            result = await client.subscribe(token=token)
            assert sorted(record["_id"] for record in result["data"]) == [0, 1, 2]
        assert site.quaestor.subscriptions.queries == before + 1
        other = await stack.enter_async_context(client_of(site))
        assert [record["_id"] for record in (await other.subscribe(token=ROLES[1]))["data"]] == [1]
        assert site.quaestor.subscriptions.queries == before + 2
        items.update_one({"_id": 2}, {"$set": {"_acl": acl("role:elsewhere")}})
        for client in clients:
            assert await client.match() == ("remove", "update", None, 2)


async def test_predicates_of_many_roles_are_maintained_exactly(site: Site, items: Any) -> None:
    """Results of many roles are not read again: a record outside the roles makes no event,
    and a readable one makes the next.
    """
    async with client_of(site) as client:
        await client.subscribe(token=",".join(ROLES))
        before = site.quaestor.telemetry.families.registry.get_sample_value("quaestor_subscription_wholes_total")
        items.insert_one({"_id": "hidden", "_acl": acl("role:elsewhere")})
        items.insert_one({"_id": "shown", "_acl": acl("role:team-149")})
        assert await client.match() == ("add", "insert", None, "shown")
        after = site.quaestor.telemetry.families.registry.get_sample_value("quaestor_subscription_wholes_total")
        assert after == before


async def test_a_write_to_the_collection_of_rights_revokes_at_once(mongo_url: str, prefix: str) -> None:
    """C3: the role lies in the database. Its removal ends the subscription, and its return lets the client subscribe again."""
    with pymongo.MongoClient[Json](mongo_url) as mongo:
        members = mongo[prefix].members
        members.insert_one({"_id": "ann", "roles": ["clerk"]})

        def present(request: Request) -> Principal:
            member = members.find_one({"_id": "ann"}) or {"roles": []}
            return Principal(user="ann", roles=frozenset(member["roles"]))

        access = Access(
            collections={"books": CollectionAccess(read=Rule.of(allow=["role:clerk"]))},
            otherwise=CollectionAccess(read=ALL),
        )
        with live_site(mongo_url, prefix, principal=present, access=access, rights_in=["members"]) as site:
            async with client_of(site) as client, client_of(site) as other:
                for _ in range(2):
                    await client.subscribe(bucket="books")
                    await eventually(lambda: site.quaestor.subscriptions.queries >= 2)  # the watch is there
                    members.update_one({"_id": "ann"}, {"$set": {"roles": []}})
                    assert (await client.hear())["error"]["status"] == 404
                    members.update_one({"_id": "ann"}, {"$set": {"roles": ["clerk"]}})
                    while (first := await other.subscribe(bucket="books"))["type"] == "error":
                        pass
                    assert first["type"] == "result"
                    await other.say(type="unsubscribe", id="a")
                    await other.say(type="ping")
                    while (await other.hear())["type"] != "pong":
                        pass

"""Pipelines and collations over a real socket: rows equal what the database answers, and rights hold for every collection."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from bson import json_util

from quaestor import HttpLiveQuery
from quaestor.client.live.live_client import LiveClient
from quaestor.client.live.streams import ResultStream
from quaestor.errors import SubscriptionError
from quaestor.live.websocket.limits import SocketLimits
from quaestor.rest.access import ALL, Access, CollectionAccess, Principal, Rule
from tests.live.socket_site import Client, Json, Site, client_of, live_site
from tests.support import eventually

pytestmark = pytest.mark.anyio
PIPELINES: dict[str, list[Json]] = {
    "groups": [{"$match": {"n": {"$gte": 0}}}, {"$group": {"_id": "$tag", "n": {"$sum": "$n"}}}],
    "no identity": [{"$sort": {"_id": 1}}, {"$limit": 6}, {"$project": {"_id": 0, "n": 1}}, {"$unionWith": "others"}],
    "facet": [{"$facet": {"number": [{"$count": "n"}], "tags": [{"$sortByCount": "$tag"}, {"$sort": {"_id": 1}}]}}],
    "union": [
        {"$unionWith": {"coll": "others", "pipeline": [{"$match": {"n": {"$lt": 5}}}]}},
        {"$sort": {"_id": 1, "n": 1}},
    ],
    "window": [{"$sort": {"n": -1, "_id": 1}}, {"$limit": 3}, {"$group": {"_id": "$tag", "n": {"$sum": 1}}}],
    "join": [
        {"$lookup": {"from": "others", "localField": "n", "foreignField": "n", "as": "with"}},
        {"$unwind": "$with"},
    ],
}
INNER = {"from": "more", "let": {"n": "$n"}, "pipeline": [{"$match": {"$expr": {"$eq": ["$n", "$$n"]}}}], "as": "with"}
JOINS: list[Json] = [
    {"$lookup": {"from": "more", "localField": "n", "foreignField": "n", "as": "with"}},
    {"$lookup": INNER},
    {"$graphLookup": {"from": "more", "startWith": "$n", "connectFromField": "n", "connectToField": "n", "as": "with"}},
    {"$facet": {"x": [{"$unionWith": "more"}]}},
    {"$facet": {"x": [{"$lookup": {"from": "items", "pipeline": [{"$unionWith": {"coll": "more"}}], "as": "with"}}]}},
]


@pytest.fixture(scope="module")
def site(mongo_url: str) -> Iterator[Site]:
    limits = SocketLimits(pipeline_stages=8)
    with live_site(mongo_url, "live_pipelines", limits=limits, settings={"poll_interval_ms": 20}) as running:
        yield running


@pytest.fixture
def items(site: Site) -> Any:
    for name in ("items", "others"):
        site.database[name].delete_many({})
        site.database[name].insert_many([{"_id": number, "n": number, "tag": "x"} for number in range(3)])
    return site.database["items"]


def sorted_rows(rows: list[Any]) -> list[str]:
    """Rows in an order of their own, with their fields in order: a delta does not tell the order of fields."""
    return sorted(json_util.dumps(row, sort_keys=True) for row in rows)


async def answer(client: Client, name: str, pipeline: str) -> Json:
    """Return the first message of a subscription, past the messages of other subscriptions."""
    message = await client.subscribe(name, pipeline=pipeline)
    while message["id"] != name:
        message = await client.hear()
    return message


@pytest.mark.parametrize("binary", [False, True], ids=["JSON", "BSON"])
async def test_rows_of_pipelines_equal_what_the_database_answers(site: Site, items: Any, binary: bool) -> None:
    """Maintained and recomputed pipelines, after random writes to both collections, as the Python client shows them."""
    draw = random.Random(3)
    async with LiveClient(site.url, binary=binary) as live:
        streams = {name: await live.result_stream("items", pipeline=pipeline) for name, pipeline in PIPELINES.items()}
        for number in range(30):
            collection = site.database[draw.choice(["items", "items", "others"])]
            key = draw.randrange(8)
            if draw.random() < 0.3:
                collection.delete_one({"_id": key})
            else:
                record = {"n": draw.randrange(9), "tag": draw.choice("xyz")}
                collection.replace_one({"_id": key}, record, upsert=True)
            if number % 5 == 4:
                for name, stream in streams.items():

                    def right(name: str = name, stream: Any = stream) -> bool:
                        return sorted_rows(stream.latest() or []) == sorted_rows(list(items.aggregate(PIPELINES[name])))

                    await eventually(right)


async def test_the_same_rows_over_http(site: Site, items: Any) -> None:
    """Chunks and long polls of pipelines: rows without an `_id` too, and the text of a pipeline has one canonical form."""
    pipeline = PIPELINES["no identity"]
    async with HttpLiveQuery(f"{site.http}/live", "items", pipeline=pipeline) as results:
        for number in range(6):
            items.replace_one({"_id": number % 4}, {"n": 10 + number}, upsert=True)
            async for rows in results:
                if sorted_rows(rows) == sorted_rows(list(items.aggregate(pipeline))):
                    break
    async with httpx.AsyncClient(base_url=f"{site.http}/live", trust_env=False) as web:
        texts = json.dumps(pipeline), json.dumps(pipeline, indent=4)
        links = {(await web.get("/items", params={"pipeline": text})).json()["next"] for text in texts}
        assert len(links) == 1
        refused = [{"pipeline": "[{"}, {"pipeline": "[]", "query": '{"n": 1}'}, {"collation": '{"strength": 1}'}]
        answers = [await web.get("/items", params=parameters) for parameters in refused]
        assert [(answer.status_code, answer.json()["parameter"]) for answer in answers] == [
            (400, "pipeline"),
            (400, "pipeline"),
            (400, "collation"),
        ]


async def test_a_result_is_public_only_if_every_collection_of_its_pipeline_is(mongo_url: str) -> None:
    """A shared cache must not hand records of a collection that some may read to a client that may not."""
    everybody, some = (
        CollectionAccess(read=Rule(allow=frozenset({"*"}))),
        CollectionAccess(read=Rule(allow=frozenset({"bob"}))),
    )
    access = Access(collections={"items": everybody, "more": some}, record_acl=None)
    limits = SocketLimits(pipeline_stages=8)
    with live_site(
        mongo_url, "live_public", access=access, principal=lambda request: Principal(user="bob"), limits=limits
    ) as site:
        async with httpx.AsyncClient(base_url=f"{site.http}/live", trust_env=False) as web:
            kept = {}
            for name, pipeline in {"alone": [{"$match": {"n": 1}}], "both": [{"$unionWith": "more"}]}.items():
                answer = await web.get("/items", params={"pipeline": json.dumps(pipeline)})
                kept[name] = answer.headers["cache-control"]
    assert kept == {"alone": "public, max-age=1", "both": "private, no-store"}


async def test_rows_without_an_id_have_a_key(site: Site, items: Any) -> None:
    """Keys are sent beside the rows, and with their changes; groups need none."""
    async with client_of(site) as client:
        shown = json.dumps([{"$sort": {"_id": 1}}, {"$limit": 2}, {"$project": {"_id": 0, "n": 1}}, {"$unwind": "$n"}])
        result = await client.subscribe("rows", pipeline=shown)
        assert (result["delivery"], result["data"], result["keys"]) == ("recomputed", [{"n": 0}, {"n": 1}], [0, 1])
        items.update_one({"_id": 1}, {"$set": {"n": 7}})
        change = await client.hear()
        assert (change["matchType"], change["key"], change["data"], change["index"]) == ("change", 1, {"n": 7}, 1)
        await client.say(type="unsubscribe", id="rows")
        groups = await client.subscribe("groups", pipeline=json.dumps(PIPELINES["groups"]))
        assert "keys" not in groups
        items.update_one({"_id": 1}, {"$set": {"n": 8}})
        change = await client.hear()
        assert (change["matchType"], change["operation"], change["data"]["_id"]) == ("change", "none", "x")
        assert "key" not in change


async def test_a_collation_decides_members_and_order(site: Site, items: Any) -> None:
    """A field of the message, for queries and pipelines."""
    items.update_one({"_id": 0}, {"$set": {"tag": "Ä"}})
    async with client_of(site) as client:
        result = await client.subscribe("a", query={"tag": "a"}, collation={"locale": "de", "strength": 1})
        assert [record["_id"] for record in result["data"]] == [0]
        items.update_one({"_id": 2}, {"$set": {"tag": "A"}})
        assert await client.match() == ("add", "update", None, 2)
    async with LiveClient(site.url) as live:
        stream = await live.result_stream("items", {"tag": "a"}, collation={"locale": "de", "strength": 1})
        assert len(await anext(stream)) == 2


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [
        ({"pipeline": "{}"}, 400, "array"),
        ({"pipeline": '[{"$match": {}, "$limit": 1}]'}, 400, "one stage"),
        ({"pipeline": '[{"$lookup": "x"}]'}, 400, "another type"),
        ({"pipeline": '[{"$facet": {"x": 5}}]'}, 400, "array"),
        ({"pipeline": '[{"$match": {"$where": "1"}}]'}, 400, "$where"),
        (
            {"pipeline": '[{"$project": {"x": {"$function": {"body": "1", "args": [], "lang": "js"}}}}]'},
            400,
            "$function",
        ),
        ({"pipeline": json.dumps([{"$limit": 1}] * 9)}, 400, "at most 8"),
        ({"pipeline": json.dumps([{"$facet": {"x": [{"$limit": 1}] * 8}}])}, 400, "at most 8"),
        ({"pipeline": '[{"$out": "others"}]'}, 400, "$out"),
        ({"pipeline": '[{"$merge": "others"}]'}, 400, "$merge"),
        ({"pipeline": '[{"$sample": {"size": 1}}]'}, 400, "$sample"),
        ({"pipeline": '[{"$currentOp": {}}]'}, 400, "$currentOp"),
        ({"pipeline": "[]", "query": {"a": 1}}, 400, "pipeline"),
        ({"pipeline": "[]", "limit": 1}, 400, "pipeline"),
        ({"pipeline": '[{"$unionWith": "system.users"}]'}, 403, "system.users"),
        ({"pipeline": '[{"$lookup": {"from": {"db": "admin", "coll": "x"}, "pipeline": [], "as": "y"}}]'}, 403, "x"),
        ({"pipeline": '[{"$project": {"x": {"$nothing": 1}}}, {"$facet": {"x": []}}]'}, 400, "$nothing"),
        ({"pipeline": '[{"$bucket": {"groupBy": "$n", "boundaries": [2, 1]}}]'}, 422, "MongoDB refuses"),
        ({"collation": {"locale": "de", "strengh": 1}}, 400, "collation"),
    ],
)
async def test_a_pipeline_that_may_not_be_followed_is_refused(
    site: Site, items: Any, fields: Json, status: int, text: str
) -> None:
    """Each with the reason, before the pipeline is executed; nothing is written."""
    async with client_of(site) as client:
        refused = await client.subscribe(**fields)
        assert refused["type"] == "error", refused
        assert (refused["error"]["status"], text in refused["error"]["message"]) == (status, True), refused
    assert site.database["others"].count_documents({}) == 3


async def test_without_the_limit_no_pipeline_is_taken(mongo_url: str, prefix: str) -> None:
    """The application permits pipelines; by default a client can follow filters only."""
    with live_site(mongo_url, prefix) as site:
        async with client_of(site) as client:
            refused = await client.subscribe(pipeline="[]")
            assert (refused["error"]["status"], "pipeline_stages" in refused["error"]["message"]) == (400, True)


async def test_rights_hold_for_pipelines(mongo_url: str, prefix: str) -> None:
    """Hidden records never count, also where they are joined; a collection that the client may not read cannot be joined."""

    def who(request: Any) -> Principal:
        return Principal(user=request.headers.get("authorization", "").removeprefix("Bearer ") or None)

    access = Access(
        collections={"items": CollectionAccess(read=ALL), "more": CollectionAccess(read=ALL)}, record_acl="acl"
    )
    with live_site(
        mongo_url, prefix, access=access, principal=who, limits=SocketLimits(pipeline_stages=8),
        settings={"poll_interval_ms": 20},
    ) as site:  # fmt: skip
        items = site.database["items"]
        hers = {"read": {"allow": ["user:ann"]}}
        items.insert_many([{"_id": 1, "n": 1}, {"_id": 2, "n": 2, "acl": hers}])
        count = '[{"$group": {"_id": null, "n": {"$sum": "$n"}}}]'
        facet = '[{"$match": {"n": {"$gt": 0}}}, {"$facet": {"all": [{"$count": "n"}]}}]'
        async with client_of(site) as bob, client_of(site) as ann:
            await ann.say(type="token", token="ann")
            for number, (text, mine, all_) in enumerate([(count, 1, 3), (facet, 1, 2)]):
                for client, expected in ((bob, mine), (ann, all_)):
                    (row,) = (await client.subscribe(str(number), pipeline=text))["data"]
                    assert (row["n"] if number == 0 else row["all"][0]["n"]) == expected
            items.insert_one({"_id": 3, "n": 4, "acl": hers})
            assert {(await ann.hear())["id"], (await ann.hear())["id"]} == {"0", "1"}
            items.insert_one({"_id": 4, "n": 8})
            messages = {message["id"]: message["data"] for message in [await bob.hear(), await bob.hear()]}
            assert messages == {"0": {"_id": None, "n": 9}, "1": {"all": [{"n": 2}]}}
            others = site.database["more"]
            others.insert_many([{"_id": 1, "n": 1}, {"_id": 2, "n": 1, "acl": hers}])
            for number, stage in enumerate(JOINS):
                text = json.dumps([{"$match": {"_id": 1}}, stage])
                (row,) = (await answer(bob, f"join-{number}", text))["data"]
                assert '"_id": 2' not in json.dumps(row), row
                (row,) = (await answer(ann, f"join-{number}", text))["data"]
                assert '"_id": 2' in json.dumps(row), row
            for stage in ({"$unionWith": "others"}, {"$facet": {"x": [{"$unionWith": "others"}]}}):
                refused = (await answer(ann, "other", json.dumps([stage])))["error"]
                assert (refused["status"], "may not read" in refused["message"]) == (403, True), refused


async def test_each_subscription_may_have_a_poll_limit_of_its_own(mongo_url: str) -> None:
    """A recomputed result is read again as often as the most eager subscription allows, within the server's limit."""
    limits = SocketLimits(pipeline_stages=2, poll_interval_ms=10)
    settings = {"poll_interval_ms": 3_600_000}
    with live_site(mongo_url, "live_polls", limits=limits, settings=settings) as site:
        numbers: list[Json] = [{"$facet": {"number": [{"$count": "n"}]}}]
        async with LiveClient(site.url) as live:
            streams = [await live.result_stream("items", pipeline=numbers, poll_ms=poll_ms) for poll_ms in (0, 15)]
            for number in range(1, 4):
                site.database.items.insert_one({"_id": number})
                for stream in streams:
                    await eventually(
                        lambda stream=stream, number=number: stream.latest() == [{"number": [{"n": number}]}]
                    )
        async with httpx.AsyncClient(base_url=f"{site.http}/live", trust_env=False) as web:
            parameters = {"pipeline": json.dumps(numbers), "poll": "15"}
            assert "&poll=15&" in (await web.get("/items", params=parameters)).json()["next"]


async def followed(live: LiveClient) -> ResultStream:
    """The newest two records of a view, which the server knows within its interval of looks at definitions."""
    streams: list[ResultStream] = []

    async def accepted() -> bool:
        with suppress(SubscriptionError):
            streams.append(await live.result_stream("shown", sort=[("n", -1)], limit=2))
        return bool(streams)

    await eventually(accepted)
    return streams[0]


async def test_a_view_is_a_bucket_like_any_other(site: Site, items: Any) -> None:
    """Rows are those of the view; with another definition the client subscribes again."""
    site.database.drop_collection("shown")
    shown = site.database.create_collection("shown", viewOn="items", pipeline=[{"$match": {"n": {"$lt": 5}}}])
    async with LiveClient(site.url) as live:
        stream = await followed(live)
        items.insert_one({"_id": 3, "n": 4})
        items.insert_one({"_id": 4, "n": 6})
        await eventually(lambda: stream.latest() == list(shown.find().sort([("n", -1), ("_id", 1)]).limit(2)))
        site.database.command("collMod", "shown", viewOn="items", pipeline=[])
        await eventually(lambda: [row["n"] for row in stream.latest() or []] == [6, 4])
    site.database.drop_collection("shown")

"""Live queries over plain HTTP: snapshots, chunks of numbered changes, long polls, and the parameters of a URL."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from quaestor.rest.access import ALL, Access, CollectionAccess, Principal, Rule
from tests.live.socket_site import Json, Site, live_site
from tests.support import eventually

pytestmark = pytest.mark.anyio
WAIT_MS = 20_000


@pytest.fixture(scope="module")
def site(mongo_url: str) -> Iterator[Site]:
    with live_site(mongo_url, "live_http", settings={"live_wait_ms": WAIT_MS}) as running:
        yield running


@pytest.fixture
async def web(site: Site) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"{site.http}/live", timeout=60, trust_env=False) as client:
        yield client


def asking(query: Json | None = None, **parameters: Any) -> dict[str, str]:
    """The parameters of a first request."""
    return {"query": json.dumps(query or {})} | {name: str(value) for name, value in parameters.items()}


async def begun(web: httpx.AsyncClient, query: Json | None = None, **parameters: Any) -> Json:
    """A snapshot."""
    answer = await web.get("/items", params=asking(query, **parameters))
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


async def test_a_snapshot_names_its_position_and_a_long_poll_brings_the_next_change(site: Site, items: Any) -> None:
    """The first answer holds the result, its epoch and offset; its `next` waits for a change and holds exactly that change."""
    items.insert_many([{"_id": 1, "price": 10}, {"_id": 2, "price": 20}])
    async with httpx.AsyncClient(base_url=f"{site.http}/live", timeout=60, trust_env=False) as web:
        first = await web.get("/items", params=asking({"price": {"$lt": 100}}, sort='{"price": 1}', limit=10))
        snapshot = first.json()
        assert snapshot["data"] == [{"_id": 1, "price": 10}, {"_id": 2, "price": 20}]
        assert first.headers["quaestor-epoch"] == snapshot["epoch"]
        assert first.headers["quaestor-offset"] == str(snapshot["offset"])
        poll = asyncio.create_task(web.get("/items" + snapshot["next"]))
        await eventually(lambda: site.quaestor.telemetry.live.polls._value.get() == 1)
        items.insert_one({"_id": 3, "price": 15})
        answer = await poll
        (change,) = answer.json()["changes"]
        assert (change["matchType"], change["operation"], change["index"]) == ("add", "insert", 1)
        assert change["data"] == {"_id": 3, "price": 15}
        assert answer.json()["offset"] == snapshot["offset"] + 1
        assert answer.json()["epoch"] == snapshot["epoch"]


async def test_a_chunk_holds_every_change_behind_an_offset_and_is_immutable(web: httpx.AsyncClient, items: Any) -> None:
    """Each chunk leads from its offset to the next one; caches may keep it; with its entity tag it is a 304."""
    snapshot = await begun(web)
    for number in range(5):
        items.insert_one({"_id": number})
    params = asking() | {"epoch": snapshot["epoch"], "offset": str(snapshot["offset"])}

    async def complete() -> bool:
        return len((await web.get("/items", params=params)).json()["changes"]) == 5

    await eventually(complete)
    chunk = await web.get("/items", params=params)
    assert chunk.headers["cache-control"] == "public, max-age=600, immutable"
    assert chunk.headers["cdn-cache-control"] == "max-age=600"
    assert [change["data"]["_id"] for change in chunk.json()["changes"]] == list(range(5))
    again = await web.get("/items", params=params, headers={"if-none-match": chunk.headers["etag"]})
    assert (again.status_code, again.headers["etag"]) == (304, chunk.headers["etag"])
    last = await web.get("/items", params=params | {"offset": str(chunk.json()["offset"] - 1)})
    assert [change["data"]["_id"] for change in last.json()["changes"]] == [4]


async def test_at_the_end_a_plain_request_is_answered_at_once_and_not_kept(web: httpx.AsyncClient, items: Any) -> None:
    """Without `live` the answer says that the client is up to date, and no cache keeps it."""
    snapshot = await begun(web)
    answer = await web.get("/items", params=asking() | {"epoch": snapshot["epoch"], "offset": str(snapshot["offset"])})
    assert (answer.json()["changes"], answer.json()["up_to_date"]) == ([], True)
    assert answer.headers["quaestor-up-to-date"] == "true"
    assert answer.headers["cache-control"] == "no-store"


async def test_equal_queries_share_the_urls_of_their_chunks(web: httpx.AsyncClient, items: Any) -> None:
    """Order of parameters and of conditions, spaces and defaults do not matter: `next` is one URL."""
    one = await web.get("/items?query=%7B%22a%22:1,%20%22b%22:{%22$numberLong%22:%222%22}%7D&skip=0&limit=5")
    two = await web.get("/items?limit=5&query=%7B%22b%22%3A2%2C%22a%22%3A1%7D&delivery=state")
    assert one.json()["next"] == two.json()["next"]
    assert (await web.get("/items" + two.json()["next"].replace("&live=true", ""))).json()["up_to_date"]


async def test_an_answer_repeats_what_it_is_for(web: httpx.AsyncClient, items: Any) -> None:
    """`for` holds the parameters as they came, so that a client sees a proxy that changed them."""
    params = asking({"a": 1}, limit=3)
    assert (await web.get("/items", params=params)).json()["for"] == params


async def test_an_epoch_that_is_gone_is_a_409_that_leads_to_a_new_snapshot(web: httpx.AsyncClient, items: Any) -> None:
    """409 with the new epoch in field and body, never kept; `next` is a snapshot of that epoch."""
    snapshot = await begun(web)
    for position in ({"epoch": "000000000000001-aaaaaaaa:q1", "offset": "7"}, {"epoch": "0"}):
        refused = await web.get("/items", params=asking() | position)
        assert refused.status_code == 409
        assert refused.headers["cache-control"] == "private, no-store"
        assert refused.headers["quaestor-epoch"] == refused.json()["epoch"] == snapshot["epoch"]
        renewed = await web.get("/items" + refused.json()["next"])
        assert (renewed.json()["epoch"], renewed.json()["data"]) == (snapshot["epoch"], [])


async def test_an_offset_that_does_not_exist_yet_is_a_409(web: httpx.AsyncClient, items: Any) -> None:
    """A position that this process does not reach is never answered as if it were known."""
    snapshot = await begun(web)
    position = {"epoch": snapshot["epoch"], "offset": str(snapshot["offset"] + 9), "live": "true"}
    assert (await web.get("/items", params=asking() | position)).status_code == 409


@pytest.mark.parametrize(
    ("url", "parameter", "text"),
    [
        ("?filter=%7B%7D", "filter", "known are query"),
        ("?query=%7B%7D&query=%7B%7D", "query", "once"),
        ("?query=nonsense", "filter", ""),
        ("?query=%7B%22$where%22:%221%22%7D", "filter", "$where"),
        ("?sort=%7B%22a%22:2%7D", "sort", "1 or -1"),
        ("?skip=500", "skip", "'500'"),
        ("?limit=-1", "limit", "'-1'"),
        ("?limit=%D9%A3", "limit", "integer"),
        ("?offset=3", "offset", "epoch"),
        ("?epoch=a&offset=x", "offset", "'x'"),
        ("?epoch=a%20b&offset=1", "epoch", "'a b'"),
        ("?epoch=" + "a" * 81, "epoch", "copy"),
        ("?live=maybe", "live", "'maybe'"),
        ("?live=true", "live", "snapshot"),
        ("?delivery=twice", "delivery", "'twice'"),
        ("?retry=" + "1" * 65, "retry", "64"),
    ],
)
async def test_a_bad_parameter_is_a_400_that_names_it(
    web: httpx.AsyncClient, items: Any, url: str, parameter: str, text: str
) -> None:
    """The parameter, its value and the remedy; no cache keeps the refusal."""
    refused = await web.get("/items" + url)
    assert refused.status_code == 400
    assert refused.json()["parameter"] == parameter
    assert text in refused.json()["detail"]
    assert refused.headers["cache-control"] == "private, no-store"


async def test_an_unreadable_query_is_not_found(mongo_url: str) -> None:
    """404 for a collection without the right, and for names that are none."""
    with live_site(mongo_url, "live_http_access", access=Access.public_read("items")) as site:
        async with httpx.AsyncClient(base_url=f"{site.http}/live", trust_env=False) as web:
            for bucket in ("secrets", "system.users", "%24cmd"):
                assert (await web.get(f"/{bucket}")).status_code == 404


async def test_a_poll_without_news_ends_with_a_cursor_that_never_comes_twice(mongo_url: str) -> None:
    """The next URL differs from the last, so a cache cannot give the same answer again; the answer is kept for a moment only."""
    with live_site(mongo_url, "live_http_slots", settings={"live_wait_ms": 100}) as site:
        site.database.items.insert_one({"_id": 1})
        async with httpx.AsyncClient(base_url=f"{site.http}/live", timeout=60, trust_env=False) as web:
            following, seen = "/items" + (await begun(web))["next"], set()
            for _ in range(5):
                answer = await web.get(following)
                assert answer.json()["up_to_date"]
                assert answer.headers["cache-control"] == "public, max-age=2"
                seen.add(following)
                following = "/items" + answer.json()["next"]
            assert len(seen) == 5
            assert f"cursor={answer.json()['cursor']}" in following


def user_of(request: Any) -> Principal:
    name = request.headers.get("x-user")
    return Principal(user=name) if name else Principal()


async def test_a_result_that_depends_on_the_principal_is_private(mongo_url: str) -> None:
    """Each principal receives its own records, another epoch, and no answer that a cache keeps."""
    access = Access(collections={"items": CollectionAccess(read=ALL)})
    with live_site(mongo_url, "live_http_private", access=access, principal=user_of) as site:
        site.database.items.insert_many([{"_id": 1, "_acl": {"read": {"allow": ["user:tim"]}}}, {"_id": 2}])
        async with httpx.AsyncClient(base_url=f"{site.http}/live", timeout=60, trust_env=False) as web:
            own = await web.get("/items", headers={"x-user": "tim"})
            other = await web.get("/items", headers={"x-user": "ann"})
            assert [record["_id"] for record in own.json()["data"]] == [1, 2]
            assert [record["_id"] for record in other.json()["data"]] == [2]
            for answer in (own, other):
                assert answer.headers["cache-control"] == "private, no-store"
                assert answer.headers["cdn-cache-control"] == "no-store"
            stolen = await web.get("/items" + own.json()["next"], headers={"x-user": "ann"})
            assert stolen.status_code == 409
            assert stolen.json()["epoch"] == other.json()["epoch"]


async def test_a_collection_that_everybody_reads_alike_is_public_for_principals_too(mongo_url: str) -> None:
    """Without rules in records, and with `read` for everybody, all principals share one URL and its copies."""
    access = Access(collections={"items": CollectionAccess(read=Rule.of(["*"]))}, record_acl=None)
    with live_site(mongo_url, "live_http_alike", access=access, principal=user_of) as site:
        site.database.items.insert_one({"_id": 1})
        async with httpx.AsyncClient(base_url=f"{site.http}/live", timeout=60, trust_env=False) as web:
            answers = [await web.get("/items", headers={"x-user": name}) for name in ("tim", "ann")]
            assert answers[0].json()["next"] == answers[1].json()["next"]
            assert {answer.headers["cache-control"] for answer in answers} == {"public, max-age=1"}


async def test_a_long_poll_of_a_service_that_stops_is_answered(site: Site, web: httpx.AsyncClient, items: Any) -> None:
    """503: the client asks again, and the next process answers. No client waits for an answer that never comes."""
    snapshot = await begun(web)
    poll = asyncio.create_task(web.get("/items" + snapshot["next"]))
    await eventually(lambda: site.quaestor.telemetry.live.polls._value.get() == 1)
    site.loops[0].call_soon_threadsafe(site.live._endpoint.http.end_all)
    answer = await poll
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["cache-control"].endswith("no-store")


async def test_requests_share_their_groups_while_rights_are_looked_up(mongo_url: str, prefix: str) -> None:
    """No socket is open. The first request waits for the application's answer about its client."""

    async def present(request: Any) -> Principal:
        await asyncio.sleep(0.05)
        return Principal(user="ann")

    with live_site(mongo_url, prefix, principal=present) as site:
        site.database.items.insert_one({"_id": 1})
        async with httpx.AsyncClient(base_url=f"{site.http}/live", timeout=60, trust_env=False) as web:
            await begun(web)
            context = site.live._endpoint._context
            await begun(web)
            assert site.live._endpoint._context is context is not None
            assert len(context.groups) == 1

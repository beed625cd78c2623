"""Entity tags: a change applies to the record it was made for, or not at all, however many change it at once."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from quaestor.rest import Access
from tests.end_to_end.rest_site import limits, rest_site

pytestmark = pytest.mark.anyio

UPDATE = "application/vnd.quaestor.update+json"


async def test_changes_with_the_tag_of_an_older_record_are_refused(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix) as site:
        old = (await site.ask("GET", "/items/1")).headers["etag"]
        assert (await site.ask("PUT", "/items/1", {"v": 1}, if_match=old)).status_code == 204
        for method, body in (("PUT", {"v": 2}), ("PATCH", {"v": 2}), ("DELETE", None)):
            refused = await site.ask(method, "/items/1", body, if_match=old)
            assert refused.status_code == 412
            assert refused.headers["content-type"] == "application/problem+json"
            weak = "W/" + site.etag(1)
            assert (await site.ask(method, "/items/1", body, if_match=weak)).status_code == 412
        assert site.other.items.find_one({"_id": 1}) == {"_id": 1, "v": 1}
        new = site.etag(1)
        assert (await site.ask("PATCH", "/items/1", {"w": 1}, if_match=f'"x", {new}')).status_code == 200
        assert (await site.ask("DELETE", "/items/1", if_match="*")).status_code == 204


async def test_the_tag_tells_types_apart_that_compare_equal(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix) as site:
        old = (await site.ask("GET", "/items/1")).headers["etag"]
        site.other.items.update_one({"_id": 1}, {"$set": {"rank": 1.0}})
        assert (await site.ask("PATCH", "/items/1", {"x": 1}, if_match=old)).status_code == 412


async def test_if_none_match_star_only_makes(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix) as site:
        assert (await site.ask("PUT", "/items/new", {"v": 1}, if_none_match="*")).status_code == 201
        assert (await site.ask("PUT", "/items/new", {"v": 2}, if_none_match="*")).status_code == 412
        assert (await site.ask("PUT", "/items/absent", {"v": 2}, if_match="*")).status_code == 412
        assert site.other.items.find_one({"_id": "new"}) == {"_id": "new", "v": 1}
        assert site.other.items.find_one({"_id": "absent"}) is None


async def test_of_many_who_make_the_same_record_one_does(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix) as site:
        statuses: list[int] = []

        async def make(n: int) -> None:
            statuses.append((await site.ask("PUT", "/items/new", {"v": n}, if_none_match="*")).status_code)

        async with anyio.create_task_group() as tasks:
            for n in range(10):
                tasks.start_soon(make, n)
        assert sorted(statuses) == [201] + [412] * 9


@pytest.mark.parametrize("how", ["put", "merge"])
@pytest.mark.parametrize("threads", [False, True], ids=["async", "threads"])
async def test_no_change_is_lost_among_many_that_read_and_write_back(
    mongo_url: str, prefix: str, how: str, threads: bool
) -> None:
    async with rest_site(mongo_url, prefix, threads=threads) as site:
        done = 0

        async def count() -> None:
            nonlocal done
            for _ in range(5_000):
                read = await site.ask("GET", "/items/0")
                record = read.json() | {"rank": read.json()["rank"] + 1}
                method = "PUT" if how == "put" else "PATCH"
                response = await site.ask(method, "/items/0", record, if_match=read.headers["etag"])
                assert response.status_code in (200, 204, 412, 503), response.text
                if response.status_code in (200, 204):
                    done += 1
                    return

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(count)
        assert done == 8
        stored_record = site.other.items.find_one({"_id": 0})
        assert stored_record is not None
        assert stored_record["rank"] == 8


async def test_patches_without_a_tag_do_not_lose_each_other(mongo_url: str, prefix: str) -> None:
    """Each merges into the record as it is when it is written."""
    async with rest_site(mongo_url, prefix) as site:

        async def patch(n: int) -> None:
            while (await site.ask("PATCH", "/items/0", {f"f{n}": n})).status_code == 503:
                pass

        async with anyio.create_task_group() as tasks:
            for n in range(8):
                tasks.start_soon(patch, n)
        record = site.other.items.find_one({"_id": 0})
        assert record is not None
        assert {f"f{n}": n for n in range(8)}.items() <= record.items()


async def test_update_operators_have_a_media_type_of_their_own(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix) as site:
        body = {"$inc": {"rank": 5}, "$push": {"tags": {"$each": ["x"], "$slice": -3}}}
        changed = await site.ask("PATCH", "/items/1", body, content_type=UPDATE)
        assert (changed.status_code, changed.json()["rank"], changed.json()["tags"]) == (200, 6, ["x"])
        refused = await site.ask("PATCH", "/items/1", {"$inc": {"group": 1}}, content_type=UPDATE)
        assert refused.status_code == 422
        refused = await site.ask("PATCH", "/items/1", {"$set": {"_id": 7}}, content_type=UPDATE)
        assert (refused.status_code, refused.json()["pointer"]) == (422, "/$set/_id")
        short = await site.ask("PATCH", "/items/1", {"rank": 0}, prefer="return=minimal")
        assert (short.status_code, short.content) == (204, b"")
        assert short.headers["etag"] == site.etag(1)


async def test_preconditions_can_be_demanded(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix, limits=limits(require_preconditions=True)) as site:
        for method, body in (("PUT", {}), ("PATCH", {}), ("DELETE", None)):
            assert (await site.ask(method, "/items/1", body)).status_code == 428
        assert (await site.ask("PATCH", "/items/1", {"x": 1}, if_match="*")).status_code == 200
        assert (await site.ask("POST", "/items", {"x": 1})).status_code == 201


@pytest.mark.parametrize("text", ["abc", '"a" "b"', "*, *", '"\x01"'])
async def test_fields_that_are_no_tags_are_400(mongo_url: str, prefix: str, text: str) -> None:
    async with rest_site(mongo_url, prefix) as site:
        assert (await site.ask("DELETE", "/items/1", if_match=text)).status_code == 400
        assert site.other.items.count_documents({"_id": 1}) == 1


async def test_a_client_that_has_the_record_gets_304(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix) as site:
        for path in ("/items/1", "/items", "/items?representation=ids"):
            etag = (await site.ask("GET", path)).headers["etag"]
            for cookie in ({}, {"cookie": "past=caches"}):
                again = await site.ask("GET", path, if_none_match=etag, **cookie)
                assert (again.status_code, again.content) == (304, b"")


BAD: list[tuple[str, str, Any, dict[str, str], int]] = [
    ("POST", "/items", b"{", {}, 400),
    ("POST", "/items", b"\xff", {}, 400),
    ("POST", "/items", b"[" * 5000, {}, 400),
    ("POST", "/items", {"a": 1}, {"content_type": "text/plain"}, 415),
    ("POST", "/items", {"a": 1}, {"content_type": "application/json; charset=utf-16"}, 415),
    ("POST", "/items", {"a": 1}, {"content_encoding": "gzip"}, 415),
    ("PATCH", "/items/1", {"a": 1}, {"content_type": "application/json-patch+json"}, 415),
    ("POST", "/items", {"a": "x" * 3_000_000}, {}, 413),
    ("POST", "/items", [1], {}, 422),
    ("POST", "/items", {"$set": {"a": 1}}, {}, 422),
    ("POST", "/items", {"a": {"$gt": 1}}, {}, 422),
    ("POST", "/items", {"a.b": 1}, {}, 422),
    ("POST", "/items", {"_id": [1]}, {}, 422),
    ("POST", "/items", {"_id": {"$regularExpression": {"pattern": "a", "options": ""}}}, {}, 422),
    ("POST", "/items", {"_acl": {"read": {"allow": ["ann"]}}}, {}, 422),
    ("PUT", "/items/1", {"_id": 2}, {}, 422),
    ("PUT", "/items/1", {"_id": "1"}, {}, 422),
    ("PATCH", "/items/1", {"_id": 2}, {}, 422),
    ("PATCH", "/items/1", {"_acl": 5}, {}, 422),
    ("PATCH", "/items/1", {"$set": {"_acl": 5}}, {"content_type": UPDATE}, 422),
    ("POST", "/items", {"_id": 1}, {}, 409),
    ("PUT", "/items/1", {"u": 2}, {}, 409),
    ("PATCH", "/items/1", {"u": 2}, {}, 409),
    ("PUT", "/items/~[1]", {}, {}, 400),
    ("PUT", "/nowhere/1", {}, {}, 404),
    ("POST", "/nowhere", {}, {}, 404),
    ("POST", "/system.users", {}, {}, 404),
    ("PUT", "/$cmd/1", {}, {}, 404),
    ("PUT", "/view/1", {}, {}, 405),
]


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"), BAD, ids=[f"{b[0]} {b[1]} {str(b[2])[:30]} {b[4]}" for b in BAD]
)
async def test_an_impossible_write_is_refused_and_nothing_is_changed(
    mongo_url: str, prefix: str, method: str, path: str, body: Any, headers: dict[str, str], status: int
) -> None:
    async with rest_site(mongo_url, prefix, access=Access.public()) as site:
        site.other.items.insert_one({"_id": "u", "u": 2})
        site.other.items.create_index("u", unique=True, sparse=True)
        site.other.create_collection("view", viewOn="items")
        before = list(site.other.items.find())
        refused = await site.ask(method, path, body, **headers)
        assert refused.status_code == status, refused.text
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.json()["status"] == status
        assert list(site.other.items.find()) == before
        assert "nowhere" not in site.other.list_collection_names()
        if status == 415:
            assert headers.get("content_encoding") or "accept" in json.dumps(dict(refused.headers))


async def test_a_validator_of_the_collection_is_422(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix) as site:
        site.other.command("collMod", "items", validator={"rank": {"$type": "number"}})
        for method, path in (("POST", "/items"), ("PUT", "/items/1"), ("PATCH", "/items/1")):
            assert (await site.ask(method, path, {"rank": "x"})).status_code == 422

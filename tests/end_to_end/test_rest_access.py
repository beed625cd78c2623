"""Access over HTTP: rules of collections and of records; refusals reveal no hidden record."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from starlette.middleware import Middleware
from starlette.requests import Request

from quaestor.rest import Access, CollectionAccess, Principal, Rule
from tests.end_to_end.rest_site import RestSite, is_hit, rest_site
from tests.support import eventually

pytestmark = pytest.mark.anyio

EVERYBODY = Rule.of(["*"])
STAFF = Rule.of(["role:staff"])


def by_header(request: Request) -> Principal:
    """A stand-in for a verified token: `user;role,role` in one header."""
    text = request.headers.get("x-test-principal")
    if text is None:
        return Principal()
    user, _, roles = text.partition(";")
    return Principal(user=user or None, roles=frozenset(filter(None, roles.split(","))), superuser=user == "root")


async def ask(site: RestSite, who: str | None, method: str, path: str, body: Any = None) -> httpx.Response:
    return await site.ask(method, path, body, **({} if who is None else {"x_test_principal": who}))


RULES = Access(
    collections={
        "items": CollectionAccess(
            read=EVERYBODY, insert=STAFF, update=EVERYBODY, delete=EVERYBODY, write_acl=EVERYBODY
        ),
        "secret": CollectionAccess(read=STAFF),
        "inbox": CollectionAccess(insert=EVERYBODY),
    }
)


async def test_rules_of_collections_decide_each_method(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix, access=RULES, principal=by_header) as site:
        site.other.secret.insert_one({"_id": 1})
        site.other.inbox.insert_one({"_id": 1})
        site.other.unlisted.insert_one({"_id": 1})
        for who, method, path, status in (
            (None, "GET", "/items", 200),
            (None, "POST", "/items", 403),
            ("ann;staff", "POST", "/items", 201),
            (None, "GET", "/secret", 404),
            ("ann", "GET", "/secret/1", 404),
            ("ann;staff", "GET", "/secret/1", 200),
            ("ann;staff", "DELETE", "/secret/1", 403),
            (None, "DELETE", "/secret/1", 404),
            (None, "GET", "/unlisted", 404),
            ("root", "GET", "/unlisted/1", 200),
            (None, "POST", "/inbox", 201),
            (None, "GET", "/inbox", 404),
            (None, "PATCH", "/inbox/1", 404),
        ):
            answer = await ask(site, who, method, path, {} if method in ("POST", "PATCH") else None)
            assert answer.status_code == status, (who, method, path)
        assert (await ask(site, None, "POST", "/inbox", {"x": 1})).content == b"", "not even what was sent is shown"


async def test_a_hidden_record_looks_like_a_missing_one(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix, access=RULES, principal=by_header) as site:
        site.other.secret.insert_one({"_id": 1})
        site.other.items.insert_one(
            {"_id": "hidden", "_acl": {"read": {"allow": ["user:ann"]}, "write": {"allow": []}}}
        )
        # Both are asked in the same moment, so that neither the age nor the rest of a lifetime tells them apart.
        this_ms = site.quaestor.read_path.clock()
        read_path = site.quaestor.read_path
        for part in (read_path, read_path.lookup, read_path.usability, read_path.admission):
            part.clock = lambda: this_ms
        for hidden, absent in (
            ("/secret", "/nowhere"),
            ("/secret/1", "/nowhere/1"),
            ("/items/hidden", "/items/absent"),
            ("/system.users/1", "/nowhere/1"),
        ):
            for method, body in (("GET", None), ("HEAD", None), ("DELETE", None), ("PATCH", {"x": 1})):
                if hidden.count("/") == 1 and method not in ("GET", "HEAD"):
                    continue
                on_hidden, other = (
                    await ask(site, "bob", method, hidden, body),
                    await ask(site, "bob", method, absent, body),
                )
                assert on_hidden.status_code == 404, (method, hidden)
                for answer in (on_hidden, other):
                    answer.headers.pop("x-quaestor-explain", None)  # for debugging: names the query
                passed_by = [answer.headers.pop("cache-status", "") for answer in (on_hidden, other)]
                assert dict(on_hidden.headers) == dict(other.headers), (method, hidden)
                assert on_hidden.content == other.content
                # On a machine that is too busy to follow the database either of them may have passed the cache by.
                assert passed_by[0] == passed_by[1] or any("fwd=bypass" in said for said in passed_by), passed_by
        for path in ("/items/hidden", "/items/absent"):
            response = await site.ask("PATCH", path, {"x": 1}, if_match='"x"', x_test_principal="bob")
            assert response.status_code == 404
        assert site.other.items.find_one({"_id": "hidden"}, {"x": 1}) == {"_id": "hidden"}


async def test_rules_of_records_are_part_of_lists_and_their_limits(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix, access=RULES, principal=by_header) as site:
        site.other.items.delete_many({})
        site.other.items.insert_many(
            [{"_id": i, "_acl": {"read": {"allow": [f"role:r{i % 3}"], "deny": ["user:eve"]}}} for i in range(30)]
        )

        async def ids(who: str | None, query: str = "") -> Any:
            return (await ask(site, who, "GET", f"/items?representation=ids{query}")).json()

        assert await ids("ann;r0", "&limit=4") == [0, 3, 6, 9]
        assert await ids("ann;r0", "&limit=2&skip=3") == [9, 12]
        assert len(await ids("ann;r0,r2")) == 20
        assert await ids(None) == await ids("eve;r0,r1,r2") == []
        assert len(await ids("root")) == 30
        narrowed = '&filter={"$and":[{"_id":{"$lt":4}}],"$or":[{"_acl.read.deny":"user:eve"}]}'
        assert await ids("ann;r0", narrowed) == [0, 3], "a filter can narrow what one sees, never widen it"


async def test_writing_follows_the_records_own_rules(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix, access=RULES, principal=by_header) as site:
        rules = {"write": {"allow": ["user:ann"]}}
        site.other.items.insert_one({"_id": "x", "v": 1, "_acl": rules})
        for method, body in (("PUT", {"v": 2}), ("PATCH", {"v": 2}), ("DELETE", None)):
            for conditions in ({}, {"if_match": "*"}):
                refused = await site.ask(method, "/items/x", body, x_test_principal="bob;staff", **conditions)
                assert refused.status_code == 403, "visible, and not for bob to change"
        assert site.other.items.find_one({"_id": "x"}) == {"_id": "x", "v": 1, "_acl": rules}
        assert (await ask(site, "ann", "PUT", "/items/x", {"v": 3})).status_code == 204
        assert site.other.items.find_one({"_id": "x"}) == {"_id": "x", "v": 3, "_acl": rules}, "silence keeps the rules"
        kept = await site.ask("PUT", "/items/x", {"v": 4}, x_test_principal="ann", if_match=site.etag("x"))
        assert kept.status_code == 204
        assert kept.headers["etag"] == site.etag("x")
        assert (await ask(site, "ann", "PUT", "/items/x", {"v": 5, "_acl": {}})).status_code == 204
        assert (await ask(site, "bob", "DELETE", "/items/x")).status_code == 204


async def test_a_put_makes_only_where_inserting_is_allowed(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix, access=RULES, principal=by_header) as site:
        assert (await ask(site, "bob", "PUT", "/items/new", {})).status_code == 404
        assert (await ask(site, "ann;staff", "PUT", "/items/new", {})).status_code == 201
        assert (await ask(site, None, "PUT", "/inbox/1", {})).status_code == 404, "no such collection"
        site.other.inbox.insert_one({"_id": 1})
        assert (await ask(site, None, "PUT", "/inbox/2", {})).status_code == 201
        assert (await ask(site, None, "PUT", "/inbox/1", {"x": 1})).status_code == 403, "making is not replacing"
        assert site.other.inbox.find_one({"_id": 1}) == {"_id": 1}


async def test_a_principal_of_a_thousand_roles_and_records_that_name_a_thousand(mongo_url: str, prefix: str) -> None:
    def many(request: Request) -> Principal:
        return Principal(user="ann", roles=frozenset(f"team{i}" for i in range(1_000)))

    async with rest_site(mongo_url, prefix, access=RULES, principal=many) as site:
        strangers = [f"role:other{i}" for i in range(999)]
        site.other.items.delete_many({})
        site.other.items.insert_many(
            [
                {"_id": "in", "_acl": {"read": {"allow": [*strangers, "role:team999"]}}},
                {"_id": "out", "_acl": {"read": {"allow": [*strangers, "role:team1000"]}}},
                {"_id": "denied", "_acl": {"read": {"allow": ["*"], "deny": [*strangers, "role:team0"]}}},
                {"_id": "open"},
            ]
        )
        assert (await site.ask("GET", "/items?representation=ids")).json() == ["in", "open"]
        assert [(await site.ask("GET", f"/items/{key}")).status_code for key in ("in", "out", "denied")] == [
            200,
            404,
            404,
        ]


async def test_answers_without_a_principal_are_everybodys_and_follow_the_rules_of_records(
    mongo_url: str, prefix: str
) -> None:
    """Cached once for all; a change of a record's rules evicts what it was in, or is now in."""
    async with rest_site(mongo_url, prefix, access=Access.public_read()) as site:
        path = '/items?filter={"group":"a"}&representation=ids'
        assert await site.warm(path) == [0, 2, 4, 6, 8]
        site.other.items.update_one({"_id": 2}, {"$set": {"_acl": {"read": {"allow": ["user:ann"]}}}})

        async def hidden() -> bool:
            return bool((await site.http.get("/db" + path)).json() == [0, 4, 6, 8])

        await eventually(hidden)
        assert await site.warm(path) == [0, 4, 6, 8]
        again = await site.http.get("/db" + path, headers={"authorization": "Bearer x", "cookie": "a=b"})
        assert is_hit(again)


async def test_a_principal_that_cannot_be_verified_is_the_applications_answer(mongo_url: str, prefix: str) -> None:
    from fastapi import HTTPException

    async def refuse(request: Request) -> Principal:
        raise HTTPException(401, headers={"www-authenticate": "Bearer"})

    async with rest_site(mongo_url, prefix, access=RULES, principal=refuse) as site:
        for method in ("GET", "DELETE"):
            response = await site.ask(method, "/items/1")
            assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")


async def test_an_asynchronous_principal_is_awaited_and_nothing_is_shared(mongo_url: str, prefix: str) -> None:
    async def who(request: Request) -> Principal:
        return by_header(request)

    async with rest_site(mongo_url, prefix, access=RULES, principal=who) as site:
        assert (await ask(site, "ann;staff", "POST", "/items", {})).status_code == 201
        assert (await ask(site, "ann", "POST", "/items", {})).status_code == 403
        for _ in range(3):
            assert not is_hit(await ask(site, "ann", "GET", "/items"))


async def test_equal_principals_share_an_answer_and_others_do_not(mongo_url: str, prefix: str) -> None:
    """With any header that the application likes, credentials or not."""
    async with rest_site(mongo_url, prefix, access=RULES, principal=by_header) as site:
        site.other.items.insert_one({"_id": "hers", "_acl": {"read": {"allow": ["user:ann"]}}})

        async def hit() -> bool:
            answer = await ask(site, "ann", "GET", "/items/hers")
            return answer.status_code == 200 and is_hit(answer)

        await eventually(hit)
        credentials = {"authorization": "Bearer x", "cookie": "a=b", "x_test_principal": "ann"}
        assert is_hit(await site.ask("GET", "/items/hers", **credentials))
        for who in (None, "bob", "ann;staff"):
            first = await ask(site, who, "GET", "/items/hers")
            assert not is_hit(first)
            assert first.status_code == (200 if who == "ann;staff" else 404)
        site.other.items.update_one({"_id": "hers"}, {"$set": {"_acl.read.allow": ["user:bob"]}})

        async def moved() -> bool:
            return (await ask(site, "ann", "GET", "/items/hers")).status_code == 404

        await eventually(moved)

        async def his() -> bool:
            return (await ask(site, "bob", "GET", "/items/hers")).status_code == 200

        await eventually(his)


async def test_clients_that_are_known_only_behind_the_cache_get_no_cached_answer(mongo_url: str, prefix: str) -> None:
    """The cache would take such a request for one of nobody in particular."""

    def by_state(request: Request) -> Principal:
        return Principal(user=request.scope.get("who"))

    class Authentication:
        def __init__(self, app: Any) -> None:
            self.app = app

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            who = dict(scope.get("headers", ())).get(b"x-test-user")
            await self.app({**scope, "who": who.decode()} if who else scope, receive, send)

    inner = [Middleware(Authentication)]
    async with rest_site(mongo_url, prefix, access=RULES, principal=by_state, inner=inner) as site:
        site.other.items.insert_one({"_id": "hers", "_acl": {"read": {"allow": ["user:ann"]}}})
        for _ in range(4):
            hers = await site.ask("GET", "/items/hers", x_test_user="ann")
            assert (hers.status_code, is_hit(hers)) == (200, False)
            assert "no-store" in hers.headers["cache-control"] or "private" in hers.headers["cache-control"]

        async def hit() -> bool:
            answer = await site.ask("GET", "/items/hers")
            assert answer.status_code == 404
            return is_hit(answer)

        await eventually(hit)


async def test_answers_for_different_principals_are_kept_apart(mongo_url: str, prefix: str) -> None:
    async with rest_site(mongo_url, prefix, access=RULES, principal=by_header) as site:
        site.other.items.insert_one({"_id": "hers", "_acl": {"read": {"allow": ["user:ann"]}}})
        for _ in range(4):
            for who, status in (("ann", 200), (None, 404), ("bob", 404), ("root", 200)):
                answer = await ask(site, who, "GET", "/items/hers")
                assert answer.status_code == status
                assert "public" not in answer.headers["cache-control"]
                assert json.loads(answer.content)

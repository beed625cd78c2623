"""Answers to writes reveal no unreadable value: errors, tags, conditions and conflicts are the same for all values."""

from __future__ import annotations

from typing import Any

import pymongo
import pytest

from quaestor.rest import Access, CollectionAccess
from tests.end_to_end.rest_site import RestSite, rest_site
from tests.end_to_end.test_rest_access import EVERYBODY, STAFF, ask, by_header

pytestmark = pytest.mark.anyio

UPDATE = "application/vnd.quaestor.update+json"
IBAN = "DE02120300000000202051"
RULES = Access(
    collections={
        "blind": CollectionAccess(read=STAFF, insert=EVERYBODY, update=EVERYBODY, delete=EVERYBODY),
        "items": CollectionAccess(
            read=EVERYBODY, insert=EVERYBODY, update=EVERYBODY, delete=EVERYBODY, write_acl=STAFF
        ),
    }
)
HERS = {"read": {"allow": ["user:ann"]}}


def site_with(mongo_url: str, prefix: str) -> Any:
    return rest_site(mongo_url, prefix, access=RULES, principal=by_header)


def fill(site: RestSite) -> None:
    """A record that the collection's rule hides from everybody but staff, and one that its own rules hide from all but Ann."""
    for collection, rules in (("blind", {}), ("items", {"_acl": HERS})):
        site.other[collection].insert_one({"_id": "x", "account": {"iban": IBAN}, "pin": 4711, "loc": IBAN} | rules)


async def update(site: RestSite, who: str, path: str, body: Any, **headers: str) -> Any:
    return await site.ask("PATCH", path, body, content_type=UPDATE, x_test_principal=who, **headers)


@pytest.mark.parametrize("collection", ["blind", "items"])
@pytest.mark.parametrize(
    "body",
    [
        {"$set": {"account.iban.x": 1}},
        {"$push": {"account": 1}},
        {"$addToSet": {"pin": 1}},
        {"$pull": {"pin": 1}},
        {"$pop": {"loc": 1}},
    ],
    ids=str,
)
async def test_a_refused_update_quotes_nothing_to_who_may_not_read(
    mongo_url: str, prefix: str, collection: str, body: Any
) -> None:
    """The database's message quotes the stored element; who may read it gets the message, others a sentence without values."""
    async with site_with(mongo_url, prefix) as site:
        fill(site)
        refused = await update(site, "bob", f"/{collection}/x", body)
        assert refused.status_code == 422
        assert refused.json()["detail"] == "The change does not fit what is stored."
        assert IBAN not in refused.text
        assert "4711" not in refused.text
        answer = await update(site, "ann;staff", f"/{collection}/x", body)
        assert answer.status_code == 422
        assert answer.json()["detail"] != refused.json()["detail"]


async def test_a_refused_replacement_does_not_quote_the_rules_that_it_would_have_kept(
    mongo_url: str, prefix: str
) -> None:
    async with site_with(mongo_url, prefix) as site:
        site.other.items.delete_many({})
        site.other.items.create_index([("place", pymongo.GEOSPHERE)])
        site.other.items.insert_one({"_id": "x", "_acl": HERS})
        bad = {"place": {"type": "Point", "coordinates": [500, 500]}}
        refused = await ask(site, "bob", "PUT", "/items/x", bad)
        assert (refused.status_code, "user:ann" in refused.text) == (422, False)
        answer = await ask(site, "bob", "PUT", "/items/new", bad)
        assert (answer.status_code, "500" in answer.text) == (422, True), (
            "an error about his own record names the fault"
        )


@pytest.mark.parametrize("collection", ["blind", "items"])
async def test_no_tag_is_sent_to_or_compared_for_callers_without_read_access(
    mongo_url: str, prefix: str, collection: str
) -> None:
    """A tag is made of the record's bytes: a caller who receives it, or can test a guess, can guess a PIN."""
    async with site_with(mongo_url, prefix) as site:
        fill(site)
        path, tag = f"/{collection}/x", site.etag("x", collection)
        for answer in (
            await ask(site, "bob", "PATCH", path, {}),
            await update(site, "bob", path, {"$set": {"new": 1}}),
            await ask(site, "bob", "PUT", path, {"pin": 4711}),
        ):
            assert (answer.status_code, answer.content, answer.headers.get("etag")) == (204, b"", None)
        tag = site.etag("x", collection)
        for method, body in (("PATCH", {}), ("PUT", {"pin": 4711}), ("DELETE", None)):
            for condition in ("if_match", "if_none_match"):
                for guess in (tag, '"x"'):
                    guessed = await site.ask(method, path, body, x_test_principal="bob", **{condition: guess})
                    assert guessed.status_code == 412, (method, condition, guess)
        assert (await site.ask("PATCH", path, {}, x_test_principal="bob", if_match="*")).status_code == 204
        seen = await ask(site, "ann;staff", "PATCH", path, {})
        assert (seen.status_code, seen.headers["etag"]) == (200, tag)


@pytest.mark.parametrize("operator", ["$inc", "$mul", "$min", "$max", "$bit", "$rename"])
async def test_a_client_that_may_not_read_a_field_may_not_compute_with_it(
    mongo_url: str, prefix: str, operator: str
) -> None:
    """Adding until it overflows tells a number in 63 requests, and so on: that needs the right to read."""
    operand: Any = {"$bit": {"and": 1}, "$rename": "other"}.get(operator, 1)
    async with site_with(mongo_url, prefix) as site:
        fill(site)
        refused = await update(site, "bob", "/blind/x", {operator: {"pin": operand}})
        assert (refused.status_code, refused.json()["pointer"]) == (403, f"/{operator}")
        assert site.other.blind.find_one({"_id": "x"}, {"pin": 1}) == {"_id": "x", "pin": 4711}
        assert (await update(site, "ann;staff", "/blind/x", {operator: {"pin": operand}})).status_code == 200


async def test_rules_of_a_record_are_changed_only_with_the_right_to_change_rules(mongo_url: str, prefix: str) -> None:
    """The right to update does not suffice, because its owner could patch the rules away and read."""
    async with site_with(mongo_url, prefix) as site:
        fill(site)
        site.other.items.insert_one({"_id": "open", "_acl": {"write": {"deny": ["user:eve"]}}})
        site.other.items.insert_one({"_id": "plain"})
        for key in ("x", "open", "plain"):
            before = site.other.items.find_one({"_id": key})
            for body in ({"_acl": None}, {"_acl": {"read": {"allow": ["user:bob"]}}}, {"_acl": {"write": None}}):
                patched = await ask(site, "bob", "PATCH", f"/items/{key}", body)
                noop = key == "plain" and body == {"_acl": None}
                assert patched.status_code == (200 if noop else 403), (key, body)
            for operators in (
                {"$unset": {"_acl": ""}},
                {"$set": {"_acl.read.allow": ["user:bob"]}},
                {"$rename": {"_acl": "was"}} if key == "open" else {"$set": {"_acl": {"read": {}}}},
            ):
                patched = await update(site, "bob", f"/items/{key}", operators)
                assert patched.status_code in ((200, 403) if key == "plain" else (403,)), (key, operators)
            for headers in ({}, {"if_match": "*"}):
                put = await site.ask("PUT", f"/items/{key}", {"_acl": {}}, x_test_principal="bob", **headers)
                assert put.status_code == 403
            assert site.other.items.find_one({"_id": key}) == before
        assert (await ask(site, "bob", "GET", "/items/x")).status_code == 404


async def test_rules_that_are_sent_back_as_they_were_are_no_change_of_them(mongo_url: str, prefix: str) -> None:
    """Read, changed, written back. But only for who could read them: that a guess of them passes would tell them."""
    async with site_with(mongo_url, prefix) as site:
        fill(site)
        record = (await ask(site, "ann", "GET", "/items/x")).json()
        assert (await ask(site, "ann", "PUT", "/items/x", record | {"pin": 1})).status_code == 204
        assert (await ask(site, "ann", "PATCH", "/items/x", {"_acl": HERS, "pin": 2})).status_code == 200
        assert (await ask(site, "bob", "PATCH", "/items/x", {"_acl": HERS})).status_code == 403
        assert (await ask(site, "bob", "PUT", "/items/x", {"_acl": HERS})).status_code == 403
        stored = site.other.items.find_one({"_id": "x"}, {"_acl": 1, "pin": 1})
        assert stored == {"_id": "x", "_acl": HERS, "pin": 2}
        assert (await ask(site, "bob", "PUT", "/items/mine", {"_acl": HERS})).status_code == 201, "the first are free"
        assert (await ask(site, "cleo;staff", "PATCH", "/items/x", {"_acl": None})).status_code == 200
        assert (await ask(site, "bob", "GET", "/items/x")).status_code == 200


async def test_a_conflict_names_the_value_only_to_who_may_read_the_other_record(mongo_url: str, prefix: str) -> None:
    """That something conflicts cannot be hidden from who may write; which value it is can."""
    async with site_with(mongo_url, prefix) as site:
        site.other.items.delete_many({})
        site.other.items.create_index("mail", unique=True, sparse=True)
        site.other.items.insert_many([{"_id": "x", "mail": "a@b", "_acl": HERS}, {"_id": "y"}])
        for who, named in (("bob", False), ("ann", True)):
            for method, path, body in (
                ("POST", "/items", {"mail": "a@b"}),
                ("PUT", "/items/y", {"mail": "a@b"}),
                ("PUT", "/items/new", {"mail": "a@b"}),
                ("PATCH", "/items/y", {"mail": "a@b"}),
                ("POST", "/items", {"_id": "x"}),
            ):
                refused = await ask(site, who, method, path, body)
                field = "_id" if "_id" in body else "mail"
                assert (refused.status_code, f"value of {field}" in refused.text) == (409, named), (who, method, path)
                assert refused.json()["type"] == "urn:quaestor:problem:duplicate-key"


async def test_malformed_rules_admit_no_client_and_are_reported(mongo_url: str, prefix: str) -> None:
    """The operator finds malformed rules in the log and in the failures, once a minute at any rate of requests."""
    async with site_with(mongo_url, prefix) as site:
        failures: list[Any] = []
        site.quaestor.on_failure(failures.append)
        bad: list[Any] = [
            {"raed": {"allow": ["user:ann"]}},
            {"allow": "*"},
            [{"read": {}}],
            5,
            {"read": {"allow": "*"}},
        ]
        site.other.items.delete_many({})
        site.other.items.insert_many([{"_id": number, "_acl": rules} for number, rules in enumerate(bad)])
        for number in range(len(bad)):
            for method, body in (("GET", None), ("PATCH", {"a": 1}), ("DELETE", None)):
                answer = await ask(site, "ann", method, f"/items/{number}", body)
                assert answer.status_code == 404, (bad[number], method)
        assert (await ask(site, "ann", "GET", "/items")).json() == []
        assert len((await ask(site, "root", "GET", "/items")).json()) == len(bad)
        (failure,) = [failure for failure in failures if failure.name == "rest.record_rules_malformed"]
        assert (failure.part, failure.fields) == ("records", {"collection": "items"})
        assert (await ask(site, "root", "PATCH", "/items/3", {"_acl": None})).status_code == 200
        assert (await ask(site, "ann", "GET", "/items/3")).status_code == 200


@pytest.mark.parametrize("query", ["", "?representation=ids", '?filter={"a":{"$gte":1},"$nor":[{"b":1}]}'])
async def test_a_list_that_leaves_out_a_malformed_record_reports_it_once_a_minute(
    mongo_url: str, prefix: str, query: str
) -> None:
    """Of what the list's own filter finds; the list is the same, and its client learns nothing."""
    async with site_with(mongo_url, prefix) as site:
        failures: list[Any] = []
        site.quaestor.on_failure(failures.append)
        site.other.items.delete_many({})
        site.other.items.insert_many(
            [{"_id": 1, "a": 1}, {"_id": 2, "a": 2, "_acl": {"raed": {}}}, {"_id": 3, "a": 3, "_acl": HERS}]
        )
        for turn in range(3):
            site.other.items.update_one({"_id": 1}, {"$set": {"turn": turn}})
            listed = (await ask(site, "bob", "GET", f"/items{query}")).json()
            assert [record if isinstance(record, int) else record["_id"] for record in listed] == [1]
        assert [
            (failure.part, failure.fields) for failure in failures if failure.name == "rest.record_rules_malformed"
        ] == [("records", {"collection": "items"})]


async def test_a_list_without_malformed_records_or_for_a_superuser_reports_nothing(mongo_url: str, prefix: str) -> None:
    """Well-formed rules that hide a record are nothing to report, and superusers see all there is."""
    async with site_with(mongo_url, prefix) as site:
        failures: list[Any] = []
        site.quaestor.on_failure(failures.append)
        site.other.items.delete_many({})
        site.other.items.insert_many([{"_id": 1}, {"_id": 3, "_acl": HERS}])
        assert len((await ask(site, "bob", "GET", "/items")).json()) == 1
        site.other.items.insert_one({"_id": 4, "_acl": 5})
        assert len((await ask(site, "root", "GET", "/items")).json()) == 3
        assert [failure for failure in failures if failure.name == "rest.record_rules_malformed"] == []

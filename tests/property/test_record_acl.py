"""Record rules as the database applies them in a query, as this process applies them to a record, and as they are meant."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bson
import pymongo
import pytest
from bson import Binary, Code, DBRef, Decimal128, MaxKey, MinKey, ObjectId, Regex
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pymongo.collection import Collection

from quaestor.query import compile_query
from quaestor.rest.access import ANONYMOUS, Principal
from quaestor.rest.record_acl import BadAclError, condition, permits, require_acl, well_formed
from quaestor.rest.records import decode

ANN = Principal(user="ann", roles=frozenset({"editor"}))
PRINCIPALS = (ANONYMOUS, ANN, Principal(user="bob"), Principal(superuser=True))

DOCUMENTED = json.loads(
    re.findall(r"```json\n(.*?)```", (Path(__file__).parents[2] / "docs/rest.md").read_text(), re.DOTALL)[-1]
)
"""The filter by which the documents say that malformed rules are found."""
names = st.sampled_from(["*", "user:*", "user:ann", "user:bob", "role:editor", "role:x", "user:a\nb", "user:\n"])
odd = st.sampled_from(
    [
        *(None, True, False, 0, 1, 1.5, float("nan"), "", "*", "ann", "user:", "role:", "user", "*\n", "\n*", "user:ann", "x:y"),
        *(Code("*"), Code("user:ann"), Code("*", {}), Regex("^user"), ObjectId("0" * 24), Decimal128("1"), Binary(b"*")),
        *(MinKey(), MaxKey(), datetime.datetime(2020, 1, 1), DBRef("items", 1), [], {}, [[]], [{}], [["*"]]),
        *({"*": True}, {"allow": ["*"]}, {"read": {"allow": ["*"]}}, [{"allow": ["*"]}], [{"read": {}}]),
    ]
)  # fmt: skip
seldom_odd = st.integers(0, 9).map(lambda drawn: drawn == 0)


def mostly(good: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A good value, or now and then one that does not belong there, alone or in a list."""
    return seldom_odd.flatmap(lambda is_odd: st.one_of(odd, odd.map(lambda value: [value])) if is_odd else good)


def members(good: tuple[str, ...], other: tuple[str, ...], value: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """An object with some of the good names, now and then with one of the others."""
    usual = st.fixed_dictionaries({}, optional=dict.fromkeys(good, value))
    strange = st.dictionaries(st.sampled_from(other), value, max_size=1)
    return seldom_odd.flatmap(
        lambda is_odd: st.tuples(usual, strange).map(lambda two: two[0] | two[1]) if is_odd else usual
    )


lists = mostly(st.lists(mostly(names), max_size=4))
rules = mostly(members(("allow", "deny"), ("alow", "Allow", "", "allow.0", "read", "$ref"), lists))
acls = mostly(members(("read", "write"), ("raed", "Read", "", "read.allow", "allow", "deny", "$id"), rules))
records = st.one_of(st.just({}), acls.map(lambda acl: {"_acl": acl}), acls.map(lambda acl: {"_acl": acl}))


@pytest.fixture(scope="module")
def found_in(mongo_url: str) -> Iterator[Collection[RawBSONDocument]]:
    options: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)
    name = f"t{ObjectId()}"
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        yield client[name].get_collection("records", codec_options=options)
        client.drop_database(name)


@given(st.lists(records, min_size=1, max_size=40))
@example([{"_acl": {"read": {"allow": [None]}}}, {"_acl": {"write": {"deny": [None, "user:ann"]}}}])
@settings(max_examples=60)
def test_the_query_finds_what_the_rules_permit(
    found_in: Collection[RawBSONDocument], drawn: list[dict[str, Any]]
) -> None:
    """Well-formed and malformed rules: mongod, this project's matcher and `permits` say the same, and malformed ones let in
    nobody but superusers."""
    found_in.delete_many({})
    found_in.insert_many(
        [RawBSONDocument(bson.encode({"_id": number, **record})) for number, record in enumerate(drawn)]
    )
    stored = {record["_id"]: decode(record.raw) for record in found_in.find()}
    good = {key for key, record in stored.items() if _is_good(record)}
    assert {record["_id"] for record in found_in.find(well_formed("_acl"))} == good
    assert {record["_id"] for record in found_in.find(DOCUMENTED)} == stored.keys() - good
    for principal in PRINCIPALS:
        for kind in ("read", "write"):
            clause = condition("_acl", kind, principal)  # type: ignore[arg-type]
            keys = {record["_id"] for record in found_in.find(clause)}
            matches = compile_query(clause).matches
            for key, record in stored.items():
                permitted = permits(record.get("_acl", {}), kind, principal)  # type: ignore[arg-type]
                assert (key in keys) == permitted == matches(record) == _expected(record, kind, principal), record
                assert key in good or principal.superuser or not permitted


def _is_good(record: dict[str, Any]) -> bool:
    try:
        require_acl(record.get("_acl", {}))
    except BadAclError:
        return False
    return True


def _expected(record: dict[str, Any], kind: str, principal: Principal) -> bool:
    """Return the intended decision, written a second time."""
    if principal.superuser or not _is_good(record):
        return principal.superuser
    rule = record.get("_acl", {}).get(kind, {})
    mine = set(principal.names)
    return not mine & set(rule.get("deny", [])) and ("allow" not in rule or bool(mine & set(rule["allow"])))

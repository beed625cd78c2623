"""Access rules: deny by default, deny before allow, superusers pass; and a record's own rules, malformed ones included."""

from __future__ import annotations

from typing import Any

import pytest
from bson import Code
from hypothesis import given
from hypothesis import strategies as st

from quaestor.errors import ConfigurationError
from quaestor.query import compile_query
from quaestor.rest.access import (
    ALL,
    ANONYMOUS,
    NOBODY,
    Access,
    Action,
    CollectionAccess,
    Principal,
    Rule,
    addressable,
)
from quaestor.rest.record_acl import BadAclError, condition, permits, require_acl

ANN = Principal(user="ann", roles=frozenset({"editor"}))
ROOT = Principal(superuser=True)


def test_nobody_may_anything_by_default_but_superusers() -> None:
    for action in Action:
        assert not Access().permits("items", action, ANN)
        assert Access().permits("items", action, ROOT)


def test_public_read_is_read_alone_and_of_the_collections_named() -> None:
    access = Access.public_read("items")
    assert access.permits("items", Action.READ, ANONYMOUS)
    assert not access.permits("others", Action.READ, ANONYMOUS)
    assert not any(access.permits("items", action, ANN) for action in (Action.INSERT, Action.UPDATE, Action.DELETE))


@pytest.mark.parametrize(
    ("allow", "deny", "anonymous", "ann"),
    [
        ((), (), False, False),
        (("*",), (), True, True),
        (("user:*",), (), False, True),
        (("user:ann",), (), False, True),
        (("role:editor",), (), False, True),
        (("user:bob", "role:admin"), (), False, False),
        (("*",), ("user:ann",), True, False),
        (("*",), ("role:editor",), True, False),
        (("user:ann",), ("*",), False, False),
        (("*",), ("user:*",), True, False),
    ],
)
def test_denied_names_go_before_allowed_ones(
    allow: tuple[str, ...], deny: tuple[str, ...], anonymous: bool, ann: bool
) -> None:
    rule = Rule.of(allow, deny)
    assert (rule.permits(ANONYMOUS), rule.permits(ann_ := ANN)) == (anonymous, ann), ann_
    assert rule.permits(ROOT)


def test_a_user_named_like_a_role_or_like_everybody_is_not_it() -> None:
    assert not Rule.of(allow=["role:editor"]).permits(Principal(user="role:editor"))
    assert not Rule.of(allow=["user:x"]).permits(Principal(roles=frozenset({"user:x", "x"})))
    for user in ("*", ""):
        with pytest.raises(ConfigurationError):
            Principal(user=user)


@pytest.mark.parametrize("name", ["ann", "user:", "role:", "", "group:x"])
def test_names_that_stand_for_nobody_are_refused(name: str) -> None:
    with pytest.raises(ConfigurationError):
        Rule.of(allow=[name])


@pytest.mark.parametrize("field", ["", "_id", "$x", "a.b"])
def test_the_field_of_rules_is_one_that_can_hold_them(field: str) -> None:
    with pytest.raises(ConfigurationError):
        Access(record_acl=field)


def test_rules_are_by_operation() -> None:
    access = Access(collections={"items": CollectionAccess(read=ALL, delete=NOBODY, insert=Rule.of(["role:editor"]))})
    assert [access.permits("items", action, ANN) for action in Action] == [True, True, False, False, False]


@pytest.mark.parametrize(
    "name", ["system.users", "a.system.b", "$cmd", "a$b", "", ".a", "a.", "a..b", "a\0", "a/b", "a\nb", "x" * 121]
)
def test_names_that_are_not_shown(name: str) -> None:
    assert not addressable(name)


def test_ordinary_names_are_shown() -> None:
    assert all(map(addressable, ["items", "a.b", "ünï", "systems", "a-b_c"]))


ACLS: list[tuple[Any, bool, bool]] = [
    ({}, True, True),
    ({"write": {"allow": []}}, True, True),
    ({"read": {}}, True, True),
    ({"read": {"allow": []}}, False, False),
    ({"read": {"allow": ["*"]}}, True, True),
    ({"read": {"allow": ["user:ann"]}}, False, True),
    ({"read": {"allow": ["role:editor", "user:bob"]}}, False, True),
    ({"read": {"allow": ["user:bob"]}}, False, False),
    ({"read": {"deny": ["user:ann"]}}, True, False),
    ({"read": {"allow": ["user:ann"], "deny": ["role:editor"]}}, False, False),
    ({"read": {"deny": []}}, True, True),
    # Not as it should be: nobody.
    (5, False, False),
    (None, False, False),
    ("user:ann", False, False),
    ([], False, False),
    ({"read": "user:ann"}, False, False),
    ({"read": None}, False, False),
    ({"read": {"deny": "user:bob"}}, False, False),
    ({"read": {"deny": {"user:bob": True}}}, False, False),
    ({"read": {"allow": None}}, False, False),
    ({"read": {"allow": {"user:ann": True}}}, False, False),
    ({"raed": {"allow": ["user:bob"]}}, False, False),
    ({"allow": "*"}, False, False),
    ({"allow": ["*"]}, False, False),
    ({"read": {"allow": "*"}}, False, False),
    ({"read": {"alow": ["user:bob"]}}, False, False),
    ({"read": {"deny": ["bob"]}}, False, False),
    ({"read": {"allow": ["*", 5]}}, False, False),
    ({"read": {"allow": ["*"]}, "write": {"allow": "user:bob"}}, False, False),
    ([{}], False, False),
    ([{"read": {"allow": ["*"]}}], False, False),
    ({"read": [{"allow": ["*"]}]}, False, False),
    ({"read": {"allow": [["*"]]}}, False, False),
    ({"read": {"allow": [Code("*")]}}, False, False),
    ({"read": {"allow": ["*\n"]}}, False, False),
]


@pytest.mark.parametrize(("acl", "anonymous", "ann"), ACLS, ids=[str(acl) for acl, *_ in ACLS])
def test_a_records_own_rules(acl: Any, anonymous: bool, ann: bool) -> None:
    for principal, expected in ((ANONYMOUS, anonymous), (ANN, ann), (ROOT, True)):
        assert compile_query(condition("_acl", "read", principal)).matches({"_id": 1, "_acl": acl}) is expected
        assert permits(acl, "read", principal) is expected


def test_a_record_without_rules_is_the_collections_business() -> None:
    assert compile_query(condition("_acl", "write", ANONYMOUS)).matches({"_id": 1})


names = st.sampled_from(["*", "user:*", "user:ann", "user:bob", "role:editor", "role:x"])
rules = st.fixed_dictionaries({}, optional={"allow": st.lists(names), "deny": st.lists(names)})
acls = st.fixed_dictionaries({}, optional={"read": rules, "write": rules})


@given(acls, st.sampled_from(["read", "write"]), st.sampled_from([ANONYMOUS, ANN, ROOT]))
def test_the_condition_says_what_the_rules_say(acl: Any, kind: Any, principal: Principal) -> None:
    require_acl(acl)
    permitted = compile_query(condition("_acl", kind, principal)).matches({"_id": 1, "_acl": acl})
    rule = acl.get(kind, {})
    mine = set(principal.names)
    expected = principal.superuser or (
        mine.isdisjoint(rule.get("deny", [])) and ("allow" not in rule or not mine.isdisjoint(rule["allow"]))
    )
    assert permitted == expected == permits(acl, kind, principal)


@pytest.mark.parametrize(
    "acl",
    [
        None, 5, [], {"reed": {}}, {"read": []}, {"read": {"alow": []}}, {"read": {"allow": "user:x"}},
        {"read": {"allow": ["x"]}}, {"write": {"deny": [5]}}, {"read": {"allow": ["user:"]}}, {"read": {"allow": None}},
    ],
    ids=str,
)  # fmt: skip
def test_rules_that_would_not_mean_what_they_say_are_not_stored(acl: Any) -> None:
    with pytest.raises(BadAclError):
        require_acl(acl)

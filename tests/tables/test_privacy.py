"""Inputs that distinguish answers: parameters that count, claims of proxies, declared fields, scopes.

Two requests that may be answered differently must never have one key.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaestor.policy import DEFAULT, RoutePolicy, Sharing
from quaestor.read_path.declared_dependencies import declared_reads
from quaestor.read_path.forwarded_fields import CLAIMS, claims, digest, shown
from quaestor.read_path.freshness import refusal
from quaestor.read_path.key import Target, resource, target
from quaestor.read_path.query import TRACKING, Tracking, kept
from quaestor.read_path.request import NOTABLE, inspect
from quaestor.read_path.variant_key import covered, selection
from quaestor.read_path.vary import names
from quaestor.tags import valid_tag

TRACKED = Tracking()
Headers = Sequence[tuple[bytes, bytes]]

KEPT = [
    # query, declared by the route, only these count, what is kept
    (b"", (), None, b""),
    (b"a=1&b=2", (), None, b"a=1&b=2"),
    (b"utm_source=x", (), None, b""),
    (b"b=2&utm_source=x&a=1", (), None, b"b=2&a=1"),
    (b"utm_source=x&fbclid=y&gclid=z&msclkid=1&a=1", (), None, b"a=1"),
    (b"%75tm_source=x&a=1", (), None, b"a=1"),
    (b"utm_source=x&a=1", ("utm_source",), None, b"utm_source=x&a=1"),
    (b"UTM_SOURCE=x", (), None, b"UTM_SOURCE=x"),
    (b"utm=x&gclids=y", (), None, b"utm=x&gclids=y"),
    (b"utm_source&a", (), None, b"a"),
    (b"a=utm_source", (), None, b"a=utm_source"),
    (b"utm_content=1;q=evil&q=good", (), None, b"q=good"),
    (b"q=good;utm_source=1", (), None, b"q=good;utm_source=1"),
    (b"a=1&b=2&a=3", (), ("a",), b"a=1&a=3"),
    (b"a+b=1&a%20b=2&c=3", (), ("a b",), b"a+b=1&a%20b=2"),
    (b"a=1&&b=2", (), None, b"a=1&&b=2"),
    (b"\xff\xfe=1&utm_x=2", (), None, b"\xff\xfe=1"),
    (b"%E2%82%AC=1&x=2", (), ("€",), b"%E2%82%AC=1"),
]


@pytest.mark.parametrize(("query", "declared", "only", "expected"), KEPT)
def test_ignored_parameters_are_cut_out_and_the_rest_stays_as_it_is(
    query: bytes, declared: Sequence[str], only: Sequence[str] | None, expected: bytes
) -> None:
    policy = RoutePolicy(declared_query=frozenset(declared), query=None if only is None else frozenset(only))
    assert kept(query, policy, TRACKED) == expected


def test_tracking_parameters_count_where_a_route_says_so() -> None:
    assert kept(b"utm_source=x", RoutePolicy(tracking=False), TRACKED) == b"utm_source=x"
    assert kept(b"utm_source=x&v=1", DEFAULT, Tracking(frozenset({"v"}))) == b"utm_source=x"
    assert "utm_anything" in TRACKED
    assert all(name == name.strip() for name in TRACKING)


@given(st.text(alphabet="ab&=;%+u5tm_ ", max_size=40))
def test_no_ignored_parameter_reaches_a_parser_that_frameworks_use(text: str) -> None:
    """The kept query, parsed as Starlette does it, holds no tracking parameter and every other one, in order."""
    query = text.encode()
    left = parse_qsl(kept(query, DEFAULT, TRACKED).decode("latin-1"), keep_blank_values=True)
    whole = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    assert left == [(name, value) for name, value in whole if name not in TRACKED]


def named(query: bytes, only: bytes) -> Target:
    target_found = target("http", b"a", b"/p", query, kept=only)
    assert target_found is not None
    return target_found


def test_a_target_without_its_ignored_parameters_is_known_under_the_url_that_was_asked() -> None:
    results = named(b"b=1&utm_source=x&a=2", b"b=1&a=2")
    assert (results.key, results.resource) == ("http://a/p?a=2&b=1", "/p?a=2&b=1")
    assert results.url == "http://a/p?b=1&utm_source=x&a=2"
    assert not results.own


@pytest.mark.parametrize(("query", "only"), [(b"a=1", b"a=1"), (b"", b""), (b"b&a", b"b&a"), (b"a=1&", b"a=1")])
def test_a_target_is_its_own_if_clients_compute_its_resource(query: bytes, only: bytes) -> None:
    assert named(query, only).own
    assert named(query, only).resource == resource(b"/p", query)


# Claims


@pytest.mark.parametrize("name", sorted(CLAIMS))
def test_fields_that_proxies_set_are_read_and_keyed(name: bytes) -> None:
    assert NOTABLE[name]
    facts = inspect([(b"host", b"a"), (name, b"host=evil")])
    assert facts.bypass is None
    assert facts.claims == ((name, b"host=evil"),)
    assert digest(facts.claims) != digest(claims([(name, b"host=good")]))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"for=1.2.3.4", b""),
        (b"for=1.2.3.4;proto=https;by=x", b"proto=https"),
        (b'FOR="[::1]"; Host="a.b"; PROTO=http', b'host="a.b";proto=http'),
        (b"host=a, host=b", b"host=a;host=b"),
        (b'for="x;host=evil";host=good', b"host=evil;host=good"),
        (b"proto=", b"proto="),
        (b"xhost=evil", b""),
    ],
)
def test_of_forwarded_only_host_and_protocol_count(value: bytes, expected: bytes) -> None:
    """A text in quotes that a careless parser might take for a host is kept as well:
    the handler sees exactly the keyed fields.
    """
    assert shown(b"forwarded", value) == expected


def test_enormous_claims_are_not_keyed() -> None:
    assert digest(((b"x-forwarded-host", b"a" * 5000),)) is None
    assert selection(DEFAULT, (), claimed=((b"x-host", b"a" * 5000),)) is None


# Selections: a list of requests and policies that must all have different keys

USER = RoutePolicy(sharing=Sharing.PER_USER, by=lambda scope: None)
ROLE = RoutePolicy(sharing=Sharing.PER_ROLE, by=lambda scope: None)
FIELDS = RoutePolicy(headers=(b"x-a", b"x-b"))
COOKIES = RoutePolicy(cookies=("a", "b"))
JSON = [(b"content-type", b"application/json")]
DIFFERENT: list[str | None] = [
    selection(DEFAULT, ()),
    selection(DEFAULT, (), claimed=((b"x-host", b"a"),)),
    selection(DEFAULT, (), claimed=((b"x-forwarded-host", b"a"),)),
    selection(DEFAULT, (), claimed=((b"x-host", b"a"), (b"x-host", b"a"))),
    selection(DEFAULT, (), claimed=((b"x-host", b"ax-hosta"),)),
    selection(USER, (), audience="ann"),
    selection(USER, (), audience="bob"),
    selection(USER, (), audience="ann "),
    selection(USER, (), audience="annb"),
    selection(USER, (), audience="\ud800"),
    selection(ROLE, (), audience="ann"),
    selection(RoutePolicy(sharing=Sharing.PER_USER, headers=(b"b",)), [(b"b", b"")], audience="ann"),
    selection(RoutePolicy(sharing=Sharing.PER_USER, headers=(b"b",)), (), audience="ann"),
    selection(FIELDS, ()),
    selection(FIELDS, [(b"x-a", b"")]),
    selection(FIELDS, [(b"x-b", b"")]),
    selection(FIELDS, [(b"x-a", b"1"), (b"x-b", b"2")]),
    selection(FIELDS, [(b"x-a", b"1"), (b"x-a", b"2")]),
    selection(FIELDS, [(b"x-a", b"2"), (b"x-a", b"1")]),
    selection(FIELDS, [(b"x-a", b"12")]),
    selection(FIELDS, [(b"x-a", b"1,2")]),
    selection(COOKIES, ()),
    selection(COOKIES, [(b"cookie", b"a=1")]),
    selection(COOKIES, [(b"cookie", b"a=1; b=2")]),
    selection(COOKIES, [(b"cookie", b"b=2; a=1")]),
    selection(COOKIES, [(b"cookie", b"a=1; a=2")]),
    selection(COOKIES, [(b"cookie", b"a=12")]),
    selection(COOKIES, [(b"cookie", b"b=1")]),
    # Where parsers disagree, all of the field counts.
    selection(COOKIES, [(b"cookie", b'x="; a=3"')]),
    selection(COOKIES, [(b"cookie", b"x=1 a=3")]),
    selection(COOKIES, [(b"cookie", b"x=1, a=3")]),
    selection(COOKIES, [(b"cookie", b"x=1\ta=3")]),
    selection(COOKIES, [(b"cookie", b"=a=3")]),
    selection(DEFAULT, (), method="POST", body=b""),
    selection(DEFAULT, (), method="QUERY", body=b""),
    selection(DEFAULT, JSON, method="POST", body=b""),
    selection(DEFAULT, JSON, method="POST", body=b"{}"),
    selection(DEFAULT, [*JSON, (b"content-encoding", b"gzip")], method="POST", body=b"{}"),
    selection(DEFAULT, [(b"content-type", b"application/jso")], method="POST", body=b"n{}"),
    selection(USER, (), method="POST", body=b"{}", audience="ann"),
    selection(USER, (), method="POST", body=b"{}", audience="bob"),
]


def test_no_two_of_these_have_one_key() -> None:
    assert None not in DIFFERENT
    assert len(set(DIFFERENT)) == len(DIFFERENT)


@given(st.lists(st.tuples(st.text(max_size=6), st.binary(max_size=6), st.binary(max_size=6)), min_size=2, max_size=6))
def test_users_and_fields_cannot_be_mixed_up(requests: list[tuple[str, bytes, bytes]]) -> None:
    policy = RoutePolicy(sharing=Sharing.PER_USER, headers=(b"a", b"b"))
    keys = {selection(policy, [(b"a", a), (b"b", b)], audience=user): (user, a, b) for user, a, b in requests if user}
    assert len(keys) == len({request for request in requests if request[0]})


def test_irrelevant_fields_change_nothing() -> None:
    assert selection(COOKIES, [(b"cookie", b"a=1; x=2")]) == selection(COOKIES, [(b"cookie", b"y=3; a=1")])
    assert selection(DEFAULT, [(b"x-a", b"1"), (b"cookie", b"a=1")]) == ""


def test_nobody_is_not_a_user() -> None:
    assert selection(USER, (), audience=None) is None
    assert selection(USER, (), audience="") is None


def test_a_key_does_not_tell_who_is_behind_it() -> None:
    policy = RoutePolicy(sharing=Sharing.PER_USER, headers=(b"x-a",), cookies=("session",))
    headers = [(b"x-a", b"secret1"), (b"cookie", b"session=secret2")]
    chosen = selection(policy, headers, audience="secret3")
    assert chosen is not None
    assert chosen.startswith("#s")
    assert "secret" not in chosen
    assert len(chosen) == 42


def test_a_variant_of_vary_is_never_taken_for_a_selection() -> None:
    """Variants are `#` and hex digits; selections begin with a letter that is none."""
    assert all(not name or name[1] not in "0123456789abcdef" for name in DIFFERENT if name is not None)


# Requests


@pytest.mark.parametrize(
    ("headers", "bypass", "barred", "personal"),
    [
        ([], None, None, False),
        ([(b"cookie", b"a=1")], "cookie", None, True),
        ([(b"authorization", b"x")], "authorization", None, True),
        ([(b"x-api-key", b"x")], "credentials", None, True),
        ([(b"cookie", b"a"), (b"x-rewrite-url", b"/")], "cookie", "override", True),
        ([(b"x-original-url", b"/admin")], "override", "override", False),
        ([(b"if-match", b'"a"')], "precondition", "precondition", False),
        ([(b"host", b"a"), (b"host", b"b")], "host", "host", False),
        ([(b"content-length", b"5")], "request-body", None, False),
        ([(b"content-length", b"0")], None, None, False),
        ([(b"x-forwarded-host", b"a")], None, None, False),
        ([(b"x_forwarded_host", b"a")], "override", "override", False),
        ([(b"x-original_url", b"a")], "override", "override", False),
        ([(b"x_api_key", b"a")], "credentials", None, True),
        ([(b"sec_fetch_user", b"a")], None, None, False),
        ([(b"x-forwarded-user", b"ann")], "credentials", None, True),
    ],
)
def test_answers_within_a_declared_scope_and_outside_it(
    headers: Headers, bypass: str | None, barred: str | None, personal: bool
) -> None:
    facts = inspect(headers)
    assert (facts.bypass, facts.barred, facts.personal) == (bypass, barred, personal)


def test_vary_adds_nothing_that_the_key_has_already() -> None:
    vary = [(b"vary", b"Cookie, Authorization, X-A, Accept-Encoding, X-Forwarded-Proto")]
    assert names(vary, covered=covered(DEFAULT)) == (b"accept-encoding", b"authorization", b"cookie", b"x-a")
    assert names(vary, covered=covered(FIELDS)) == (b"accept-encoding", b"authorization", b"cookie")
    assert names(vary, covered=covered(USER)) == (b"accept-encoding", b"x-a")
    assert names(vary, covered=covered(RoutePolicy(sharing=Sharing.PUBLIC))) == names(vary, covered=covered(DEFAULT))


@pytest.mark.parametrize(
    ("headers", "shared", "personal"),
    [
        ([(b"cache-control", b"private")], "private", None),
        ([(b"cache-control", b"private, no-store")], "no-store", "no-store"),
        ([(b"cache-control", b"private, no-cache")], "private", "no-cache"),
        ([(b"set-cookie", b"a=1"), (b"cache-control", b"private")], "set-cookie", "set-cookie"),
        ([(b"vary", b"*")], "vary", "vary"),
        ([], None, None),
    ],
)
def test_an_answer_for_some_only_may_say_private(headers: Headers, shared: str | None, personal: str | None) -> None:
    assert refusal(200, headers) == shared
    assert refusal(200, headers, personal=True) == personal


# Names to invalidate by


@pytest.mark.parametrize("tag", ["", "a b", "a,b", 'a"b', "a\nb", "x" * 201])
def test_text_that_no_header_or_list_can_carry_is_no_tag(tag: str) -> None:
    assert valid_tag(tag) is not None


def test_a_declaration_is_one_dependency_on_tags_and_url_and_one_for_each_further_collection() -> None:
    first_key = named(b"a=1", b"a=1")
    policy = RoutePolicy(explicit=True, tags=("t",), depends_on=(("shop.stock", {"shop": 1}),))
    first, second = declared_reads(policy, first_key, deployment="d", namespace="q.c", since=7)
    assert first.query.namespace == "q.c"
    assert first.query.filter == {"_id": {"$in": ["d tag t", "d url /p?a=1", "d url http://a/p?a=1"]}}
    assert (second.query.namespace, second.query.filter) == ("shop.stock", {"shop": 1})
    assert {read.read_at for read in (first, second)} == {7}
    assert declared_reads(DEFAULT, first_key, deployment="d", namespace="q.c", since=7) == ()

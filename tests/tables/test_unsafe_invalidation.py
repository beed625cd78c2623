"""Invalidation by unsafe requests: RFC 9111, section 4.4, and RFC 9875, as tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaestor.read_path.key import target
from quaestor.read_path.unsafe_invalidation import (
    EVERYTHING,
    MAX_GROUPS,
    group_label,
    groups,
    is_label,
    origin,
    outdated,
    uri_label,
)
from tests.tables.test_shared_cache_rules import fields

ASKED = target("http", b"shop.test", b"/items/1", b"b=1&a=2")
assert ASKED is not None


def keys(method: str, status: int, *lines: str) -> tuple[str, ...]:
    assert ASKED is not None
    return outdated(method, status, fields(*lines), ASKED).keys


@pytest.mark.parametrize(
    ("method", "status", "outdates"),
    [
        ("POST", 200, True),
        ("PUT", 204, True),
        ("DELETE", 303, True),
        ("PATCH", 200, True),
        ("M-SEARCH", 200, True),
        ("whatever", 200, True),
        ("POST", 404, False),
        ("POST", 500, False),
        ("OPTIONS", 200, False),
        ("GET", 200, False),
        ("QUERY", 200, False),
    ],
)
def test_an_unsafe_request_outdates_its_target(method: str, status: int, outdates: bool) -> None:
    assert keys(method, status) == (("http://shop.test/items/1?a=2&b=1",) if outdates else ())


@pytest.mark.parametrize(
    ("line", "also"),
    [
        ("location: /items", ["http://shop.test/items"]),
        ("location: 2?x=1", ["http://shop.test/items/2?x=1"]),
        ("content-location: http://SHOP.test:80/b?d&c", ["http://shop.test/b?c&d"]),
        ("location: //shop.test/c#part", ["http://shop.test/c"]),
        ("location: https://shop.test/items", []),
        ("location: http://shop.test:81/items", []),
        ("location: http://evil.test/items", []),
        ("location: //evil.test/items", []),
        ("location: http://[evil", []),
        ("location: ü", []),
        ("location: javascript:alert(1)", []),
        ("x-location: /items", []),
    ],
)
def test_location_and_content_location_on_the_same_origin(line: str, also: list[str]) -> None:
    assert keys("POST", 201, line) == ("http://shop.test/items/1?a=2&b=1", *also)


def test_groups_are_lists_of_strings_within_bounds() -> None:
    wide = [f'cache-groups: "{n:032}"' for n in range(40)]
    assert len(groups(fields(*wide), b"cache-groups")) == 40
    assert groups(fields('cache-groups: "a", "B", "a"'), b"cache-groups") == ("a", "B")
    assert groups(fields("cache-groups: a"), b"cache-groups") == ()
    assert groups(fields('cache-groups: "a", 1'), b"cache-groups") == ()
    many = ",".join(f'"{n}"' for n in range(MAX_GROUPS + 5))
    assert len(groups(fields("cache-groups: " + many), b"cache-groups")) == MAX_GROUPS


def test_group_invalidation_counts_on_unsafe_methods_that_succeed_only() -> None:
    assert ASKED is not None
    said = fields('cache-group-invalidation: "a", "b"')
    assert outdated("POST", 200, said, ASKED).groups == ("a", "b")
    assert outdated("GET", 200, said, ASKED).groups == ()
    assert outdated("POST", 500, said, ASKED).groups == ()


def test_labels_belong_to_one_origin_and_are_no_registrations() -> None:
    assert origin("http://shop.test/items?x") == "http://shop.test"
    assert origin("http://shop.test?x") == "http://shop.test"
    assert group_label("http://a", "g") != group_label("http://b", "g")
    for label in (group_label("http://a", "g"), uri_label("k"), EVERYTHING):
        assert is_label(label)
    for registration in ("3f2a9c:17", "e:3f2a9c:17", "u", ""):
        assert not is_label(registration)


@given(st.binary(max_size=60))
def test_garbage_in_fields_never_raises(data: bytes) -> None:
    assert ASKED is not None
    outdated("POST", 200, [(b"location", data), (b"cache-group-invalidation", data)], ASKED)

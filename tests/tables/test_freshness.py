"""RFC 9111 and RFC 9110, section 13, as tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaestor.read_path import freshness, validation

NOW_S = 1_445_412_480.0
"""Wed, 21 Oct 2015 07:28:00 GMT"""


def fields(**values: str) -> list[tuple[bytes, bytes]]:
    return [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in values.items()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("no-store", {"no-store": None}),
        ("Max-Age=5, PRIVATE", {"max-age": "5", "private": None}),
        ('private="a, b", max-age="7"', {"private": "a, b", "max-age": "7"}),
        ("max-age = 5", {"max-age": ""}),
        (",, ,max-age=5,,", {"max-age": "5"}),
        ("max-age=5, max-age=3", {"max-age": "3"}),
        ("max-age=5, max-age=soon", {"max-age": "0"}),
        ("=5, ;;; no-store, no-store", {"no-store": None}),
        ("max-age", {"max-age": None}),
        ('a="x\\", no-store", b', {"a": 'x\\", no-store', "b": None}),
        ('x="unterminated, no-store', {"x": "unterminated", "no-store": None}),
    ],
)
def test_cache_control_is_read_robustly(text: str, expected: dict[str, str | None]) -> None:
    assert freshness.cache_control([(b"cache-control", text.encode())]) == expected


def test_several_fields_are_one_list_and_enormous_ones_forbid_storing() -> None:
    assert freshness.cache_control([(b"cache-control", b"public"), (b"cache-control", b"max-age=1")]) == {
        "public": None,
        "max-age": "1",
    }
    assert freshness.cache_control([(b"cache-control", b"x," * 5000)]) == {"no-store": None}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("60", 60), ("9" * 30, 2**31), ("-1", 0), ("1.5", 0), ("", 0), ("١", 0), (None, 0), ("1e3", 0)],
)
def test_delta_seconds_are_parsed_as_in_the_table(text: str | None, seconds: int) -> None:
    assert freshness.delta_s(text) == seconds


@pytest.mark.parametrize(
    ("headers", "shared", "client"),
    [
        ({}, None, None),
        ({"cache_control": "max-age=5"}, 5, 5),
        ({"cache_control": "s-maxage=9, max-age=5"}, 9, 5),
        ({"cache_control": "s-maxage=9"}, 9, None),
        ({"cache_control": "max-age=soon"}, 0, 0),
        ({"expires": "Wed, 21 Oct 2015 07:29:00 GMT"}, 60, 60),
        ({"expires": "Wed, 21 Oct 2015 07:27:00 GMT"}, 0, 0),
        ({"expires": "0"}, 0, 0),
        ({"expires": "Wed, 21 Oct 2015 07:29:00 GMT", "cache_control": "max-age=5"}, 5, 5),
        ({"expires": "x" * 100}, 0, 0),
    ],
)
def test_lifetimes_that_the_handler_allows(headers: dict[str, str], shared: int | None, client: int | None) -> None:
    assert freshness.shared_lifetime_s(fields(**headers), now_s=NOW_S) == shared
    assert freshness.client_lifetime_s(fields(**headers), now_s=NOW_S) == client


@pytest.mark.parametrize(
    ("status", "headers", "reason"),
    [
        (200, {}, None),
        (404, {}, None),
        (301, {"location": "/x"}, None),
        (302, {}, "status"),
        (206, {}, "status"),
        (500, {}, "status"),
        (200, {"set_cookie": "a"}, "set-cookie"),
        (200, {"cache_control": "public, No-Store"}, "no-store"),
        (200, {"cache_control": 'private="x"'}, "private"),
        (200, {"cache_control": "no-cache"}, "no-cache"),
        (200, {"vary": "a, *"}, "vary"),
        (200, {"vary": "accept"}, None),
        (200, {"content_range": "bytes 0-1/2"}, "partial"),
    ],
)
def test_answers_that_may_not_be_stored(status: int, headers: dict[str, str], reason: str | None) -> None:
    assert freshness.refusal(status, fields(**headers)) == reason


@pytest.mark.parametrize(
    ("field", "etag", "fails"),
    [
        ('"a"', '"a"', True),
        ('W/"a"', '"a"', True),
        ('"a"', 'W/"a"', True),
        ('"b", W/"a"', '"a"', True),
        ('"b","c"', '"a"', False),
        ("*", '"a"', True),
        (" * ", '"a"', True),
        ("a", '"a"', False),
        ('"a', '"a"', False),
        ('w/"a"', '"b"', False),
        ('"a,b"', '"a"', False),
        ('"a,b"', '"a,b"', True),
        ("", '"a"', False),
    ],
)
def test_if_none_match_is_compared_weakly(field: str, etag: str, fails: bool) -> None:
    assert validation.none_match_fails(field.encode(), etag.encode()) is fails


def test_an_enormous_if_none_match_names_nothing() -> None:
    assert not validation.none_match_fails(b'"x", ' * 5000 + b'"a"', b'"a"')


@given(st.binary(max_size=60))
def test_garbage_in_fields_never_raises(data: bytes) -> None:
    headers = [(b"cache-control", data), (b"expires", data), (b"vary", data)]
    freshness.refusal(200, headers)
    freshness.shared_lifetime_s(headers, now_s=NOW_S)
    validation.none_match_fails(data, b'"a"')
    validation.modified_since(data, data)


def test_entity_tags_are_quoted_strong_and_the_same_everywhere() -> None:
    assert validation.strong_etag(b"") == b'"e3b0c44298fc1c149afbf4c8996fb924"'
    assert validation.valid_etag(validation.strong_etag(b"x"))
    assert not validation.valid_etag(b"unquoted")


def test_age_is_never_negative() -> None:
    assert freshness.current_age_s(10_000, 9_000) == 0
    assert freshness.current_age_s(10_000, 12_999) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Tue, 14 Nov 2023 22:13:20 GMT", 1_700_000_000),
        ("tue, 14 nOv 2023 22:13:20 gmt", 1_700_000_000),
        ("Tuesday, 14-Nov-23 22:13:20 GMT", 1_700_000_000),
        ("Tue Nov 14 22:13:20 2023", 1_700_000_000),
        ("Thu Aug  8 02:01:18 2050", 2_543_536_878),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777),
        ("Sun, 21 Nov 2286 04:46:39 GMT", 10_000_039_599),
        ("Tue, 30 Jun 2015 23:59:60 GMT", 1_435_708_799),
        ("Tue, 14 Nov 2023 22:13:20 UTC", None),
        ("Tue, 14 Nov 2023 22:13:20 AEST", None),
        ("Tue, 14 Nov 2023 22:13:20 +0000", None),
        ("Tue, 14 Nov 2023 22:13:20", None),
        ("Tue, 14 Nov 23 22:13:20 GMT", None),
        ("Tue 14 Nov 2023 22:13:20 GMT", None),
        ("Tue, 14  Nov  2023 22:13:20 GMT", None),
        ("Tue, 14-Nov-2023 22:13:20 GMT", None),
        ("Tue, 14 Nov 2023 22.13.20 GMT", None),
        ("Tue, 14 Nov 2023 2:13:20 GMT", None),
        ("Tue, 31 Feb 2023 22:13:20 GMT", None),
        ("Tue, 14 Nov 2023 25:13:20 GMT", None),
        ("Tue, 14 Foo 2023 22:13:20 GMT", None),
        ("0", None),
        ("", None),
        ("Tue, 14 Nov 2023 22:13:20 GMT" + " " * 64, None),
    ],
)
def test_dates_are_what_the_grammar_says(text: str, expected: int | None) -> None:
    assert freshness.http_date_s(text.encode()) == expected

"""Storing and lifetime by an answer's own fields: RFC 9111, sections 3 and 4.2, and RFC 9213, as tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaestor.read_path.shared_cache_rules import (
    governing,
    heuristic_lifetime_s,
    initial_age_ms,
    lifetime_s,
    refusal,
)

NOW_S = 1_700_000_000
DATE = "Tue, 14 Nov 2023 22:13:20 GMT"
IN_AN_HOUR = "Tue, 14 Nov 2023 23:13:20 GMT"


def fields(*lines: str) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, _, value in (line.partition(": ") for line in lines)]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], None),
        (["cache-control: public"], None),
        (["cache-control: max-age=5"], 5),
        (["cache-control: max-age=003600"], 3600),
        (['cache-control: max-age="3600"'], 3600),
        (["cache-control: MaX-aGe=5"], 5),
        (["cache-control: max-age=5, s-maxage=7"], 7),
        (["cache-control: max-age=5", "cache-control: s-maxage=1"], 1),
        (["cache-control: max-age=5, max-age=1"], 1),
        (["cache-control: max-age=1", "cache-control: max-age=5"], 1),
        (["cache-control: max-age=99999999999"], 2**31),
        (["cache-control: max-age"], 0),
        (["cache-control: max-age=-1"], 0),
        (["cache-control: max-age='5'"], 0),
        (["cache-control: max-age=5.0"], 0),
        (["cache-control: max-age=a5"], 0),
        (["cache-control: max-age=5a"], 0),
        (["cache-control: max-age =5"], 0),
        (["cache-control: max-age= 5"], 0),
        (['cache-control: ext="max-age=9", max-age=1'], 1),
        (['cache-control: max-age=1, ext="max-age=9"'], 1),
        (["cache-control: foobar, max-age=5"], 5),
        (["cache-control: max-age=5", "expires: 0"], 5),
        (["cache-control: max-age=0", f"expires: {IN_AN_HOUR}", f"date: {DATE}"], 0),
        ([f"expires: {IN_AN_HOUR}", f"date: {DATE}"], 3600),
        ([f"expires: {IN_AN_HOUR}"], 3600),
        ([f"expires: {DATE}", f"date: {IN_AN_HOUR}"], 0),
        (["expires: 0", f"date: {DATE}"], 0),
        ([f"expires: {IN_AN_HOUR}", f"expires: {DATE}", f"date: {DATE}"], 0),
        ([f"expires: {IN_AN_HOUR}", "date: yesterday"], 3600),
        ([f"expires: {DATE}", "date: yesterday"], 0),
        ([f"expires: {IN_AN_HOUR}", f"date: {DATE}", "date: yesterday"], 0),
        (["cdn-cache-control: max-age=9", "cache-control: max-age=5"], 9),
        (["cdn-cache-control: max-age=1", "cache-control: max-age=5"], 1),
        (["cdn-cache-control: max-age=9", "cache-control: no-store"], 9),
        (["cdn-cache-control: foo", "cache-control: max-age=5", f"expires: {IN_AN_HOUR}"], None),
        (["cdn-cache-control: max-age =9", "cache-control: max-age=5"], 5),
        (["cdn-cache-control: MaX-aGe=9", "cache-control: max-age=5"], 5),
        (['cdn-cache-control: max-age="9"', "cache-control: max-age=5"], 5),
        (["cdn-cache-control: max-age", "cache-control: max-age=5"], 5),
        (["cdn-cache-control: max-age=9, &&&", "cache-control: max-age=5"], 5),
        (["cdn-cache-control: ", "cache-control: max-age=5"], 5),
        (["cdn-cache-control: max-age=9;x=1"], 9),
        (["cdn-cache-control: max-age=-9"], 0),
    ],
)
def test_lifetimes_follow_from_the_header_fields(lines: list[str], expected: int | None) -> None:
    """Lifetimes of answers follow from their header fields as in RFC 9111, section 4.2."""
    assert lifetime_s(fields(*lines), now_s=NOW_S) == expected


@pytest.mark.parametrize(
    ("status", "lines", "credentials", "expected"),
    [
        (200, ["cache-control: max-age=5"], False, None),
        (200, [], False, "unspecified"),
        (200, ["last-modified: " + DATE], False, "unspecified"),
        (200, ["cache-control: public", "last-modified: " + DATE], False, "unspecified"),
        (200, ["cache-control: no-cache"], False, "unspecified"),
        (200, ["cache-control: no-cache", 'etag: "a"'], False, None),
        (200, ['cache-control: no-cache="a"', 'etag: "a"'], False, None),
        (200, ["cache-control: max-age=5, no-store"], False, "no-store"),
        (200, ["cache-control: max-age=5, No-StOrE"], False, "no-store"),
        (200, ["cache-control: max-age=5, private"], False, "private"),
        (200, ['cache-control: max-age=5, private="x-a"'], False, "private"),
        (200, ["cache-control: max-age=5", "cdn-cache-control: private"], False, "private"),
        (200, ["cache-control: max-age=5", "cdn-cache-control: no-store"], False, "no-store"),
        (200, ["cache-control: max-age=5, no-store, must-understand"], False, None),
        (299, ["cache-control: max-age=5, no-store, must-understand"], False, "status"),
        (299, ["cache-control: max-age=5"], False, None),
        (404, ["cache-control: max-age=5"], False, None),
        (503, ["cache-control: max-age=5"], False, None),
        (599, ["cache-control: max-age=5"], False, None),
        (503, [], False, "unspecified"),
        (206, ["cache-control: max-age=5"], False, "status"),
        (304, ["cache-control: max-age=5"], False, "status"),
        (200, ["cache-control: max-age=5", "content-range: bytes 0-1/2"], False, None),
        (200, ["cache-control: max-age=5", "set-cookie: a=b"], False, "set-cookie"),
        (200, ["cache-control: max-age=5", "vary: a, *"], False, "vary"),
        (200, ["cache-control: max-age=5"], True, "credentials"),
        (200, ["cache-control: max-age=5, public"], True, None),
        (200, ["cache-control: max-age=5, must-revalidate"], True, "credentials"),
        (200, ["cache-control: s-maxage=5"], True, None),
        (200, ["cache-control: max-age=5, proxy-revalidate"], True, "credentials"),
    ],
)
def test_answers_that_a_shared_cache_may_store(
    status: int, lines: list[str], credentials: bool, expected: str | None
) -> None:
    assert refusal(status, fields(*lines), credentials=credentials, now_s=NOW_S) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cache-control: max-age=5", "credentials"),
        ("cache-control: max-age=5, must-revalidate", None),
        ("cache-control: max-age=5, public", None),
        ("cache-control: s-maxage=5", None),
    ],
)
def test_authorization_alone_may_be_shared_by_all_that_section_3_5_names(line: str, expected: str | None) -> None:
    given = refusal(200, fields(line), credentials=True, authorization_only=True, now_s=NOW_S)
    assert given == expected


@pytest.mark.parametrize(
    ("lines", "delay_ms", "expected_ms"),
    [
        ([], 0, 0),
        ([], 300, 300),
        ([f"date: {DATE}"], 300, 300),
        (["date: Tue, 14 Nov 2023 22:13:10 GMT"], 300, 10_000),
        (["date: Tue, 14 Nov 2023 22:13:30 GMT"], 300, 300),
        (["age: 30"], 300, 30_300),
        (["date: Tue, 14 Nov 2023 22:13:10 GMT", "age: 30"], 0, 30_000),
        (["age: 30, 0"], 0, 30_000),
        (["age: 0", "age: 30"], 0, 0),
        (["age: -30"], 0, 0),
        (["age: abc"], 0, 0),
        (["age: 30.5"], 0, 0),
        (["age: 99999999999999"], 0, 2**31 * 1000),
        (["date: yesterday"], 0, 0),
    ],
)
def test_how_old_an_answer_is_when_it_comes(lines: list[str], delay_ms: int, expected_ms: int) -> None:
    answered_ms = NOW_S * 1000 + 400
    assert initial_age_ms(fields(*lines), asked_ms=answered_ms - delay_ms, answered_ms=answered_ms) == expected_ms


@given(st.binary(max_size=60), st.integers(100, 599))
def test_garbage_never_raises_and_never_gives_a_negative_age(data: bytes, status: int) -> None:
    headers = [(name, data) for name in (b"cache-control", b"cdn-cache-control", b"expires", b"date", b"age", b"vary")]
    governing(headers)
    refusal(status, headers, credentials=False, now_s=NOW_S)
    assert initial_age_ms(headers, asked_ms=0, answered_ms=NOW_S * 1000) >= 0
    assert (lifetime_s(headers, now_s=NOW_S) or 0) >= 0


A_DAY_BEFORE = "last-modified: Mon, 13 Nov 2023 22:13:20 GMT"


@pytest.mark.parametrize(
    ("status", "lines", "fraction", "expected"),
    [
        (200, [A_DAY_BEFORE, f"date: {DATE}"], 0.1, 8640),
        (404, [A_DAY_BEFORE, f"date: {DATE}"], 0.1, 8640),
        (200, [A_DAY_BEFORE], 0.1, 8640),
        (200, [A_DAY_BEFORE, f"date: {DATE}"], 0.0, None),
        (200, ["last-modified: Tue, 14 Nov 2000 22:13:20 GMT", f"date: {DATE}"], 0.1, 86_400),
        (403, [A_DAY_BEFORE, f"date: {DATE}"], 0.1, None),
        (403, [A_DAY_BEFORE, f"date: {DATE}", "cache-control: public"], 0.1, 8640),
        (200, [f"last-modified: {DATE}", f"date: {DATE}"], 0.1, None),
        (200, ["last-modified: yesterday", f"date: {DATE}"], 0.1, None),
        (200, [A_DAY_BEFORE, A_DAY_BEFORE, f"date: {DATE}"], 0.1, None),
        (200, [A_DAY_BEFORE, "date: today"], 0.1, None),
        (200, [f"date: {DATE}"], 0.1, None),
    ],
)
def test_a_lifetime_that_nobody_has_said(status: int, lines: list[str], fraction: float, expected: int | None) -> None:
    """RFC 9111, section 4.2.2."""
    results = heuristic_lifetime_s(status, fields(*lines), fraction=fraction, now_s=NOW_S)
    assert results == expected

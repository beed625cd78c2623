"""Using, validating and freshening stored answers: RFC 9111, sections 4.2.4, 4.3 and 5.2.1, and RFC 5861, as tables."""

from __future__ import annotations

import pytest

from quaestor.model import CachedResponse
from quaestor.policy import DEFAULT, RoutePolicy
from quaestor.read_path.freshening import conditions, confirms, freshened, head_agrees
from quaestor.read_path.freshness import cache_control
from quaestor.read_path.reuse import Use, Windows, may_serve_on_error, use_explicit, use_guarded, windows
from tests.tables.test_shared_cache_rules import fields

STORED_MS = 1_000_000


def entry(lifetime_s: int = 100) -> CachedResponse:
    return CachedResponse(
        key="k", status=200, headers=(), body=b"", etag=b'"e"', stored_at_ms=STORED_MS,
        fresh_until_ms=STORED_MS + lifetime_s * 1000, registrations=("r",), tags=(), resource="/",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("said", "policy", "expected"),
    [
        ("max-age=1", DEFAULT, Windows(0, 0)),
        ("max-age=1, stale-while-revalidate=5, stale-if-error=7", DEFAULT, Windows(5000, 7000)),
        ("max-age=1", RoutePolicy(stale_while_revalidate_ms=3000, stale_if_error_ms=9), Windows(3000, 9)),
        ("stale-while-revalidate=0", RoutePolicy(stale_while_revalidate_ms=3000), Windows(0, 0)),
        ("stale-while-revalidate=x", RoutePolicy(stale_while_revalidate_ms=3000), Windows(0, 0)),
        ("s-maxage=1", DEFAULT, Windows(0, 0, strict=True)),
        ("s-maxage=1, stale-while-revalidate=5", DEFAULT, Windows(5000, 0, strict=True)),
        ("must-revalidate, stale-while-revalidate=5", DEFAULT, Windows(0, 0, strict=True)),
        ("proxy-revalidate", RoutePolicy(stale_if_error_ms=9), Windows(0, 0, strict=True)),
        ("no-cache, stale-if-error=9", DEFAULT, Windows(0, 0, strict=True, validate=True)),
    ],
)
def test_how_long_stale_use_is_allowed(said: str, policy: RoutePolicy, expected: Windows) -> None:
    assert windows(fields(f"cache-control: {said}"), policy) == expected


@pytest.mark.parametrize(
    ("age_s", "allowed", "expected"),
    [
        (99, Windows(0, 0), Use.FRESH),
        (100, Windows(0, 0), Use.VALIDATE),
        (100, Windows(5000, 0), Use.STALE_WHILE_REVALIDATE),
        (104, Windows(5000, 0), Use.STALE_WHILE_REVALIDATE),
        (105, Windows(5000, 0), Use.VALIDATE),
        (100, Windows(0, 5000), Use.VALIDATE),
    ],
)
def test_use_of_guarded_entries_follows_the_table(age_s: int, allowed: Windows, expected: Use) -> None:
    assert use_guarded(entry(), allowed, now_ms=STORED_MS + age_s * 1000) is expected


@pytest.mark.parametrize(
    ("age_s", "allowed", "requested", "expected"),
    [
        (0, Windows(0, 0), "", Use.FRESH),
        (99, Windows(0, 0), "", Use.FRESH),
        (100, Windows(0, 0), "", Use.VALIDATE),
        (0, Windows(0, 0, validate=True), "", Use.VALIDATE),
        (0, Windows(0, 0), "no-cache", Use.VALIDATE),
        (0, Windows(0, 0), "nothing-to-see-here", Use.FRESH),
        (10, Windows(0, 0), "max-age=10", Use.FRESH),
        (11, Windows(0, 0), "max-age=10", Use.VALIDATE),
        (3, Windows(0, 0), "max-age=0", Use.VALIDATE),
        (3, Windows(0, 0), "max-age=x", Use.VALIDATE),
        (11, Windows(0, 0), "max-age=10, max-stale", Use.FRESH),
        (79, Windows(0, 0), "min-fresh=20", Use.FRESH),
        (80, Windows(0, 0), "min-fresh=20", Use.VALIDATE),
        (0, Windows(0, 0), "min-fresh=200", Use.VALIDATE),
        (150, Windows(0, 0), "max-stale", Use.STALE),
        (150, Windows(0, 0), "max-stale=51", Use.STALE),
        (150, Windows(0, 0), "max-stale=50", Use.VALIDATE),
        (150, Windows(0, 0, strict=True), "max-stale", Use.VALIDATE),
        (104, Windows(5000, 0), "", Use.STALE_WHILE_REVALIDATE),
        (105, Windows(5000, 0), "", Use.VALIDATE),
        (104, Windows(5000, 0), "max-age=200", Use.VALIDATE),
        (104, Windows(5000, 0), "no-cache", Use.VALIDATE),
    ],
)
def test_explicit_entries_and_what_the_request_asks(
    age_s: int, allowed: Windows, requested: str, expected: Use
) -> None:
    directives = cache_control(fields(f"cache-control: {requested}"))
    assert use_explicit(entry(), allowed, directives, now_ms=STORED_MS + age_s * 1000) is expected


@pytest.mark.parametrize(
    ("late_s", "allowed", "requested", "expected"),
    [
        (0, Windows(0, 5000), "", True),
        (5, Windows(0, 5000), "", False),
        (1, Windows(5000, 0), "", False),
        (1, Windows(0, 0), "stale-if-error=5", True),
        (5, Windows(0, 0), "stale-if-error=5", False),
        (1, Windows(0, 0, strict=True), "stale-if-error=5", False),
        (1, Windows(0, 0, validate=True), "stale-if-error=5", False),
    ],
)
def test_instead_of_an_error(late_s: int, allowed: Windows, requested: str, expected: bool) -> None:
    directives = cache_control(fields(f"cache-control: {requested}"))
    assert may_serve_on_error(entry(), allowed, directives, now_ms=STORED_MS + (100 + late_s) * 1000) is expected


DATE = "Tue, 14 Nov 2023 22:13:20 GMT"


def test_a_validating_request_names_the_origin_s_own_validators() -> None:
    assert conditions(fields('etag: "a"', f"last-modified: {DATE}")) == [
        (b"if-none-match", b'"a"'),
        (b"if-modified-since", DATE.encode()),
    ]
    assert conditions(fields("etag: unquoted")) == [(b"if-none-match", b"unquoted")]
    assert conditions(fields("last-modified: yesterday", "x: y")) == []
    assert conditions(fields('etag: "a"', 'etag: "b"')) == []


@pytest.mark.parametrize(
    ("stored", "answer", "expected"),
    [
        (['etag: "a"'], ['etag: "a"'], True),
        (['etag: W/"a"'], ['etag: "a"'], True),
        (['etag: "a"'], ['etag: "b"'], False),
        (['etag: "a"'], [], True),
        ([f"last-modified: {DATE}"], [f"last-modified: {DATE}"], True),
        ([f"last-modified: {DATE}"], ["last-modified: another"], False),
        ([f"last-modified: {DATE}"], ['etag: "b"'], False),
    ],
)
def test_which_answer_a_304_confirms(stored: list[str], answer: list[str], expected: bool) -> None:
    assert confirms(fields(*stored), fields(*answer)) is expected


def test_a_304_replaces_fields_but_not_those_that_the_body_depends_on() -> None:
    stored = fields(
        "a: 1", "b: 1", "b: 2", 'etag: "a"', "content-length: 5", "content-encoding: br", "content-type: text/x"
    )
    answer = fields(
        "b: 3",
        "c: 4",
        "c: 5",
        "content-length: 0",
        "content-encoding: gzip",
        "content-type: text/y",
        "connection: c",
        'etag: W/"a"',
    )
    assert freshened(stored, answer, dropped=frozenset({b"connection"})) == tuple(
        fields(
            "a: 1",
            'etag: "a"',
            "content-length: 5",
            "content-encoding: br",
            "b: 3",
            "c: 4",
            "c: 5",
            "content-type: text/y",
        )
    )


@pytest.mark.parametrize(
    ("stored", "answer", "expected"),
    [
        (['etag: "a"', "content-length: 5"], ['etag: "a"', "content-length: 5"], True),
        (['etag: "a"'], [], True),
        (['etag: "a"'], ['etag: "b"'], False),
        (["content-length: 5"], ["content-length: 6"], False),
        ([], ['etag: "b"'], True),
    ],
)
def test_whether_a_head_is_about_the_stored_answer(stored: list[str], answer: list[str], expected: bool) -> None:
    assert head_agrees(fields(*stored), fields(*answer)) is expected

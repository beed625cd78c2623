"""Outgoing header fields as tables: one row for each kind of client and answer."""

from __future__ import annotations

import pytest

from quaestor.middleware.headers import HeaderPolicy, lives_s
from quaestor.middleware.reticence import Reticence, reticence
from quaestor.middleware.storable_fields import storable
from quaestor.model import CachedResponse
from quaestor.policy import RoutePolicy, Sharing
from quaestor.settings import Settings
from quaestor.store.memory import Resident
from tests.hand_driven import START_MS, TaggingCdn


@pytest.mark.parametrize(
    ("status", "reasons", "expected"),
    [
        (200, ["no-reads"], Reticence.UNTOUCHED),
        (200, ["no-reads", "too-large"], Reticence.FORBIDDEN),
        (200, ["no-reads", "uncaptured"], Reticence.UNKNOWN),
        (200, ["uncaptured"], Reticence.FORBIDDEN),
        (200, ["clock"], Reticence.FORBIDDEN),
        (200, ["clock", "no-reads"], Reticence.FORBIDDEN),
        (200, ["refused"], Reticence.FORBIDDEN),
        (200, ["lagging"], Reticence.FORBIDDEN),
        (200, ["not-serving"], Reticence.FORBIDDEN),
        (200, ["cookie"], Reticence.PERSONAL),
        (200, ["set-cookie"], Reticence.PERSONAL),
        (200, ["private"], Reticence.UNTOUCHED),
        (500, ["status"], Reticence.UNTOUCHED),
        (500, ["not-serving"], Reticence.UNTOUCHED),
        (404, ["clock"], Reticence.FORBIDDEN),
    ],
)
def test_how_much_is_said_on_answers_that_were_not_stored(status: int, reasons: list[str], expected: Reticence) -> None:
    assert reticence(status, reasons) is expected


def response(*headers: tuple[bytes, bytes], lifetime_ms: int = 60_000) -> Resident:
    return Resident(
        CachedResponse(
            key="k",
            status=200,
            headers=headers,
            body=b"x",
            etag=b'"e"',
            stored_at_ms=START_MS,
            fresh_until_ms=START_MS + lifetime_ms,
            registrations=("r",),
            tags=("t",),
            resource="/",
        )
    )


@pytest.mark.parametrize(
    ("client_ttl", "cdn", "sent", "expected"),
    [
        ("none", False, None, {b"cache-control": b"public, max-age=0, must-revalidate"}),
        ("none", True, None, {b"cache-control": b"public, max-age=0, must-revalidate", b"cdn-cache-control": b"max-age=60"}),
        ("estimated", False, None, {b"cache-control": b"public, max-age=60, must-revalidate"}),
        ("estimated", False, b"max-age=7", {b"cache-control": b"public, max-age=7, must-revalidate"}),
        ("estimated", False, b"s-maxage=7", {b"cache-control": b"public, max-age=60, must-revalidate"}),
        ("none", False, b"no-transform", {b"cache-control": b"public, max-age=0, must-revalidate, no-transform"}),
    ],
)  # fmt: skip
def test_lifetimes_of_stored_answers(
    client_ttl: str, cdn: bool, sent: bytes | None, expected: dict[bytes, bytes]
) -> None:
    policy = HeaderPolicy(Settings(client_ttl=client_ttl), [TaggingCdn()] if cdn else [])
    given = response(*([(b"cache-control", sent)] if sent else []))
    headers = policy.hit(given, START_MS)
    assert {name: value for name, value in headers if name.endswith(b"cache-control")} == expected
    assert [name for name, _ in headers].count(b"cache-control") == 1


def test_a_fraction_of_a_second_is_never_sent() -> None:
    policy = HeaderPolicy(Settings(client_ttl="estimated"), [TaggingCdn()])
    headers = dict(policy.hit(response(lifetime_ms=1_999), START_MS))
    assert headers[b"cdn-cache-control"] == b"max-age=1"
    assert b"max-age=1," in headers[b"cache-control"]


def test_the_fields_of_a_hit_are_made_once_a_tenth_of_a_second() -> None:
    policy = HeaderPolicy(Settings(), [])
    entry = response()
    first = policy.hit(entry, START_MS + 100)
    assert policy.hit(entry, START_MS + 199) is first
    later = policy.hit(entry, START_MS + 1_000)
    assert dict(later)[b"age"] == b"1"
    assert dict(later)[b"cache-status"] == b"Quaestor; hit; ttl=59"


def test_a_304_carries_what_updates_a_stored_answer_and_nothing_about_a_body() -> None:
    policy = HeaderPolicy(Settings(), [TaggingCdn()])
    entry = response((b"content-type", b"a/b"), (b"content-length", b"1"), (b"vary", b"accept"), (b"x-own", b"1"))
    names = {name for name, _ in policy.not_modified(policy.hit(entry, START_MS))}
    assert names == {b"age", b"cache-control", b"cache-status", b"cdn-cache-control", b"etag", b"vary", b"xkey"}


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ([], b"abc", [(b"content-length", b"3")]),
        ([(b"Content-Length", b"3")], b"abc", [(b"content-length", b"3")]),
        ([(b"content-length", b"4")], b"abc", None),
        ([(b"content-length", b"3"), (b"content-length", b"4")], b"abc", None),
        ([(b"connection", b"X-Hop, close"), (b"x-hop", b"1"), (b"x", b"1"), (b"content-length", b"0")], b"",
         [(b"x", b"1"), (b"content-length", b"0")]),
        ([(b"transfer-encoding", b"chunked")], b"a", [(b"content-length", b"1")]),
    ],
)  # fmt: skip
def test_stored_fields_of_the_handler(
    headers: list[tuple[bytes, bytes]], body: bytes, expected: list[tuple[bytes, bytes]] | None
) -> None:
    assert storable(headers, body, status=200) == expected


def test_explanations_are_one_printable_line() -> None:
    policy = HeaderPolicy(Settings(debug_header=True), [])
    headers = dict(policy.withheld(200, [], ("clock",), b"fwd=uri-miss", "a\r\nset-cookie: x=\u20ac"))
    assert headers[b"x-quaestor-explain"] == b"not stored: clock (a??set-cookie: x=?)"


@pytest.mark.parametrize(
    ("policy", "estimated", "fields", "expected"),
    [
        (RoutePolicy(), False, [], (0, 60)),
        (RoutePolicy(), True, [], (60, 60)),
        (RoutePolicy(), True, [(b"cache-control", b"max-age=5")], (5, 60)),
        (RoutePolicy(browser_ttl_ms=10_000), False, [], (10, 60)),
        (RoutePolicy(browser_ttl_ms=10_000), True, [(b"cache-control", b"max-age=5")], (10, 60)),
        (RoutePolicy(browser_ttl_ms=600_000), False, [], (60, 60)),
        (RoutePolicy(browser_ttl_ms=0), True, [], (0, 60)),
        (RoutePolicy(cdn_ttl_ms=20_000), False, [], (0, 20)),
        (RoutePolicy(cdn_ttl_ms=600_000), False, [], (0, 60)),
        (RoutePolicy(), False, [(b"cdn-cache-control", b"max-age=7")], (0, 7)),
        (RoutePolicy(cdn_ttl_ms=5_000), False, [(b"cdn-cache-control", b"max-age=7")], (0, 5)),
        (RoutePolicy(), False, [(b"cdn-cache-control", b"no-store")], (0, 0)),
        (RoutePolicy(), False, [(b"cdn-cache-control", b"max-age=7, &")], (0, 60)),
        (RoutePolicy(sharing=Sharing.PER_USER), True, [], (0, 60)),
        (RoutePolicy(sharing=Sharing.PER_USER, browser_ttl_ms=9_000), True, [], (0, 60)),
        (RoutePolicy(sharing=Sharing.PER_USER, reads=(b"cookie",), browser_ttl_ms=9_000), True, [], (9, 60)),
    ],
)
def test_no_copy_outside_outlives_the_stored_answer(
    policy: RoutePolicy, estimated: bool, fields: list[tuple[bytes, bytes]], expected: tuple[int, int]
) -> None:
    """Browsers and CDNs never keep an answer for longer than our own store (here 60 s)."""
    assert lives_s(response(*fields), policy, estimated=estimated) == expected


def test_answers_that_browsers_may_keep_are_reported_to_the_sketch() -> None:
    policy = HeaderPolicy(Settings(client_ttl="none"), ())
    assert not policy.leaves(RoutePolicy())
    assert policy.leaves(RoutePolicy(browser_ttl_ms=1))
    assert not HeaderPolicy(Settings(client_ttl="estimated"), ()).leaves(RoutePolicy(sharing=Sharing.PER_USER))


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        (["unspecified", "no-reads"], Reticence.UNTOUCHED),
        (["failed", "no-reads"], Reticence.UNTOUCHED),
        (["no-reads", "uncaptured"], Reticence.UNTOUCHED),
        (["uncaptured"], Reticence.FORBIDDEN),
        (["partial"], Reticence.UNTOUCHED),
        (["cookie"], Reticence.UNTOUCHED),
        (["clock"], Reticence.FORBIDDEN),
        (["died"], Reticence.FORBIDDEN),
    ],
)
def test_in_explicit_mode_the_origin_s_word_stands_unless_records_are_shown(
    reasons: list[str], expected: Reticence
) -> None:
    assert reticence(200, reasons, explicit=True) is expected

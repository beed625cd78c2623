"""RequestCoalescing, variants, what was handed out, requests, and the memory store: each by itself."""

from __future__ import annotations

import asyncio

import pytest

from quaestor.model import CachedResponse
from quaestor.read_path.coalescing import MOST_REMEMBERED, UNCOALESCED_MS, Landing, RequestCoalescing
from quaestor.read_path.request import inspect
from quaestor.read_path.vary import MAX_NAMES, Variants, names, variant_key
from quaestor.store.memory import MemoryStore, size_bytes


def entry(key: str, body: bytes = b"x") -> CachedResponse:
    return CachedResponse(
        key=key, status=200, headers=((b"a", b"b"),), body=body, etag=b'"e"', stored_at_ms=0, fresh_until_ms=1,
        registrations=("r",), tags=("t",), resource="/",
    )  # fmt: skip


# RequestCoalescing


@pytest.mark.anyio
async def test_a_flight_lands_once_and_is_forgotten() -> None:
    flights = RequestCoalescing()
    flight = flights.lead("k")
    assert flights.under_way("k") is flight
    flight.land(Landing.STORED)
    flight.land(Landing.LEFT)
    assert await flight.landing(deadline_s=1) is Landing.STORED
    assert flights.under_way("k") is None
    assert len(flights) == 0


@pytest.mark.anyio
async def test_a_leader_that_never_lands_is_not_waited_for_beyond_the_deadline() -> None:
    assert await RequestCoalescing().lead("k").landing(deadline_s=0.001) is Landing.REFUSED


@pytest.mark.anyio
async def test_a_late_landing_does_not_remove_the_flight_that_took_its_place() -> None:
    flights = RequestCoalescing()
    first, second = flights.lead("k"), flights.lead("k")
    first.land(Landing.LEFT)
    assert flights.under_way("k") is second


def test_a_flight_of_another_event_loop_is_not_waited_for() -> None:
    flights = RequestCoalescing()

    async def lead() -> None:
        flights.lead("k")

    async def follow() -> Landing:
        flight = flights.under_way("k")
        assert flight is not None
        return await flight.landing(deadline_s=5)

    asyncio.run(lead())
    assert asyncio.run(follow()) is Landing.REFUSED


def test_unstorable_keys_are_remembered_for_a_while_and_within_bounds() -> None:
    flights = RequestCoalescing()
    flights.leave_uncoalesced("k", now_ms=0)
    assert flights.uncoalesced("k", now_ms=UNCOALESCED_MS - 1)
    assert not flights.uncoalesced("k", now_ms=UNCOALESCED_MS)
    assert not flights.uncoalesced("other", now_ms=0)
    for n in range(MOST_REMEMBERED + 10):
        flights.leave_uncoalesced(str(n), now_ms=0)
    assert not flights.uncoalesced("9", now_ms=0)
    assert flights.uncoalesced("10", now_ms=0)


# Requests


@pytest.mark.parametrize(
    ("headers", "bypass"),
    [
        ([(b"host", b"a"), (b"accept", b"x")], None),
        ([(b"host", b"a"), (b"host", b"b")], "host"),
        ([(b"cookie", b"")], "cookie"),
        ([(b"authorization", b"x"), (b"x-original-url", b"/")], "authorization"),
        ([(b"content-length", b"0")], None),
        ([(b"content-length", b"0"), (b"content-length", b"3")], "request-body"),
        ([(b"x-api-key", b"x")], "credentials"),
        ([(b"x-forwarded-user", b"x")], "credentials"),
        ([(b"cf-access-jwt-assertion", b"x")], "credentials"),
        ([(b"user-id", b"x")], "credentials"),
        (
            [(b"user-agent", b"x"), (b"accept-language", b"de"), (b"x-request-id", b"1"), (b"sec-fetch-user", b"?1")],
            None,
        ),
        ([(b"content-length", b"7")], "request-body"),
        ([(b"range", b"bytes=0-1")], None),
        ([(b"if-unmodified-since", b"x")], "precondition"),
    ],
)
def test_requests_that_keep_the_cache_out(headers: list[tuple[bytes, bytes]], bypass: str | None) -> None:
    assert inspect(headers).bypass == bypass


# Variants


def test_names_that_an_answer_varies_by() -> None:
    assert names([]) == ()
    assert names([(b"vary", b"Accept, accept ,, X-Y"), (b"vary", b"a")]) == (b"a", b"accept", b"x-y")
    assert names([(b"vary", b"*")]) is None
    assert names([(b"vary", b"a b")]) is None
    assert names([(b"vary", b",".join(b"h%d" % n for n in range(MAX_NAMES + 1)))]) is None


def test_variant_keys_tell_values_absence_and_fields_apart() -> None:
    by = (b"a", b"b")
    requests = [
        [],
        [(b"a", b"")],
        [(b"a", b"1")],
        [(b"b", b"1")],
        [(b"a", b"1"), (b"b", b"1")],
        [(b"a", b"1"), (b"a", b"2")],
        [(b"a", b"1,2"), (b"b", b"")],
    ]
    assert len({variant_key("k", by, request) for request in requests}) == len(requests)
    assert variant_key("k", (), [(b"a", b"1")]) == "k"
    assert variant_key("k", by, [(b"a", b"x" * 2000)]) is None


def test_codings_are_compared_as_a_set_unless_they_carry_preferences() -> None:
    def key(value: bytes) -> str | None:
        return variant_key("k", (b"accept-encoding",), [(b"accept-encoding", value)])

    assert key(b"gzip, br") == key(b"BR,gzip")
    assert key(b"gzip;q=0, br") != key(b"gzip, br")


def test_varying_fields_are_only_added() -> None:
    variants = Variants(limit=2)
    assert variants.learn("k", (b"a",)) == (b"a",)
    assert variants.learn("k", ()) == (b"a",)
    assert variants.learn("k", (b"b",)) == (b"a", b"b")
    assert variants.learn("k", tuple(b"h%d" % n for n in range(MAX_NAMES))) is None
    variants.learn("l", (b"a",))
    variants.learn("m", (b"a",))
    assert variants.key("k", [(b"a", b"1")]) == "k"
    assert variants.key("m", [(b"a", b"1")]) != "m"


# The memory store


def test_an_entry_larger_than_the_budget_is_not_kept_and_replacing_does_not_leak_bytes() -> None:
    store = MemoryStore(budget_bytes=10_000)
    store.keep(entry("k"))
    store.keep(entry("k", b"x" * 20_000))
    assert store.resident("k") is None
    assert store.used_bytes == 0
    for size in (10, 1000, 100):
        store.keep(entry("k", b"x" * size))
        assert store.used_bytes == size_bytes(entry("k", b"x" * size))
    store.drop("k")
    assert store.used_bytes == 0


def test_variants_of_long_urls_are_remembered_without_the_urls() -> None:
    """Thousands of URLs of 8 KB would otherwise be kept for their `Vary`."""
    variants = Variants()
    long, other = "http://a/" + "x" * 8_000, "http://a/" + "x" * 7_999 + "y"
    assert variants.learn(long, (b"accept",)) == (b"accept",)
    assert variants.key(long, [(b"accept", b"a")]) == variant_key(long, (b"accept",), [(b"accept", b"a")])
    assert variants.key(other, [(b"accept", b"a")]) == other
    assert all(len(name) < 100 for name in variants._names)

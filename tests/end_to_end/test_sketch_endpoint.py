"""The endpoint of the Cache Sketch: its fields, numbers of clients, conditions, codings, what hostile clients send."""

from __future__ import annotations

import asyncio
import gzip
import random

import httpx
import pytest
import zstandard

from quaestor.cache_sketch import MemoryCacheSketch, wire_format
from quaestor.cache_sketch.sizing import BODY_BYTES, DEFAULT
from quaestor.middleware.sketch_endpoint import NONCES_AT_ONCE, NONCES_PER_SECOND
from quaestor.middleware.sketch_snapshot import SketchSnapshot, acceptable
from quaestor.read_path.structured import dictionary
from quaestor.token_bucket import TokenBucket
from tests.end_to_end.site import Site

pytestmark = pytest.mark.anyio

PATH = "/quaestor/sketch"


def site_with_sketch(**settings: object) -> Site:
    site = Site(**settings)
    site.engine.sketch = MemoryCacheSketch()  # type: ignore[assignment]
    return site


def said(answer: httpx.Response) -> dict[str, object]:
    return dict(dictionary([answer.headers["quaestor-sketch"].encode()]) or {})


async def outdate(site: Site, resource: str) -> None:
    now_ms = site.engine.clock.now_ms
    await site.engine.sketch.report_read(resource, expires_at_ms=now_ms + 60_000, now_ms=now_ms)
    await site.engine.sketch.report_write([resource], now_ms=now_ms)


async def test_the_field_says_when_it_was_made_and_how_old_it_may_be_used() -> None:
    site = site_with_sketch(sketch_delta_s=7)
    made_ms = site.engine.clock.now_ms
    for age_ms in (0, 999):
        site.engine.clock.now_ms = made_ms + age_ms
        answer = await site.get(PATH)
        assert said(answer) == {"made": made_ms, "delta": 7}
        assert answer.headers["cache-control"] == "public, max-age=1"
        assert len(answer.content) == BODY_BYTES
    site.engine.clock.now_ms = made_ms + 1_000
    assert said(await site.get(PATH))["made"] == made_ms + 1_000


async def test_reports_before_a_sketch_was_made_are_in_the_sketch() -> None:
    site = site_with_sketch()
    await outdate(site, "/items")
    body = (await site.get(PATH)).content
    bits = body[40:]
    positions = wire_format.positions(wire_format.digest("/items"), DEFAULT)
    assert all(bits[position // 8] >> position % 8 & 1 for position in positions)


async def test_a_number_is_sent_back_and_such_an_answer_is_kept_by_nobody() -> None:
    site = site_with_sketch()
    for number in (1, 4_294_967_296):
        answer = await site.get(f"{PATH}?nonce={number}")
        assert said(answer)["nonce"] == number
        assert answer.headers["cache-control"] == "no-store"
    assert "nonce" not in said(await site.get(f"{PATH}?other=1"))


@pytest.mark.parametrize(
    "query",
    ["nonce=", "nonce=0", "nonce=01", "nonce=-1", "nonce=4294967297", "nonce=99999999999", "nonce=1e3", "nonce=%31",
     "nonce=1&nonce=1", "nonce=1%0d%0aset-cookie:x", "nonce=1,off", "nonce=\u0661", "nonce=" + "1" * 900, "x=" + "y" * 2000],
)  # fmt: skip
async def test_a_parameter_that_is_no_number_is_refused(query: str) -> None:
    """Nothing but digits ever comes back in the field."""
    site = site_with_sketch()
    answer = await site.get(f"{PATH}?{query}")
    assert (answer.status_code, answer.headers["cache-control"]) == (400, "no-store")
    assert "quaestor-sketch" not in answer.headers
    assert "nonce must be one number" in answer.text


async def test_too_many_numbers_are_refused_and_the_others_are_served() -> None:
    site = site_with_sketch()
    answers = [await site.get(f"{PATH}?nonce={n}") for n in range(1, NONCES_AT_ONCE + 2)]
    assert {answer.status_code for answer in answers[:-1]} == {200}
    refused = answers[-1]
    assert (refused.status_code, refused.headers["retry-after"], refused.headers["cache-control"]) == (
        429,
        "1",
        "no-store",
    )
    assert (await site.get(PATH)).status_code == 200
    site.engine.clock.now_ms += 1_000
    assert (await site.get(f"{PATH}?nonce=1")).status_code == 200


def test_the_limit_gives_back_what_time_allows_and_no_more() -> None:
    limit = TokenBucket(per_second=NONCES_PER_SECOND, burst=NONCES_AT_ONCE)
    assert sum(limit.passes(1_000_000) for _ in range(1_000)) == NONCES_AT_ONCE
    assert not limit.passes(900_000), "a clock that went back gives nothing"
    assert sum(limit.passes(901_000) for _ in range(1_000)) == NONCES_PER_SECOND
    assert sum(limit.passes(9_000_000) for _ in range(1_000)) == NONCES_AT_ONCE


async def test_the_same_bits_are_not_sent_again() -> None:
    """The 304 carries the new time: what the client holds is as good as a sketch made now."""
    site = site_with_sketch()
    first = await site.get(PATH)
    site.engine.clock.now_ms += 5_000
    second = await site.get(PATH, if_none_match=first.headers["etag"])
    assert (second.status_code, second.content) == (304, b"")
    assert said(second)["made"] == said(first)["made"] + 5_000  # type: ignore[operator]
    await outdate(site, "/items")
    site.engine.clock.now_ms += 1_000
    third = await site.get(PATH, if_none_match=first.headers["etag"])
    assert third.status_code == 200
    assert third.headers["etag"] != first.headers["etag"]


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [("gzip", "gzip"), ("gzip, zstd", "zstd"), ("zstd;q=0, GZIP;q=0.5", "gzip"), ("br", None), ("gzip;q=0", None), ("*", None),
     ("x" * 5_000, None)],
)  # fmt: skip
async def test_it_is_compressed_for_those_who_take_it(accepted: str, coding: str | None) -> None:
    site = site_with_sketch()
    await outdate(site, "/items")
    plain = (await site.get(PATH, accept_encoding="identity")).content
    async with site.client.stream("GET", PATH, headers={"accept-encoding": accepted}) as answer:
        raw = b"".join([piece async for piece in answer.aiter_raw()])
    assert answer.headers.get("content-encoding") == coding
    assert answer.headers["vary"] == "accept-encoding"
    if coding is not None:
        raw = gzip.decompress(raw) if coding == "gzip" else zstandard.ZstdDecompressor().decompress(raw)
    assert raw == plain
    assert coding is None or int(answer.headers["content-length"]) < 500
    again = await site.client.get(PATH, headers={"accept-encoding": accepted, "if-none-match": answer.headers["etag"]})
    assert again.status_code == 304


def test_a_full_filter_is_not_compressed() -> None:
    """Its bits are as good as random: compressing them costs both sides and saves nothing."""
    bits = random.Random(1).randbytes(DEFAULT.size_bytes)
    snapshot = SketchSnapshot(wire_format.encode(DEFAULT, keys=20_000, bits=bits), 1, off=False)
    assert snapshot.coded(frozenset({b"zstd", b"gzip"})) == (b"", snapshot.body)


def test_hostile_codings_name_nothing() -> None:
    for text in (b"gzip;q=2", b"gzip;q=", b"gzip;x=1", b"\xff\xfe", b"gzip\x00", b"gzip," * 500):
        assert acceptable([(b"accept-encoding", text)]) == frozenset()


async def test_head_and_other_methods() -> None:
    site = site_with_sketch()
    head = await site.client.head(PATH)
    assert (head.status_code, head.content) == (200, b"")
    assert said(head)["made"] == site.engine.clock.now_ms
    refused = await site.client.delete(PATH)
    assert (refused.status_code, refused.headers["allow"], refused.headers["cache-control"]) == (
        405,
        "GET, HEAD",
        "no-store",
    )


async def test_after_a_loss_it_names_everything_until_every_copy_is_dead() -> None:
    """After a loss the copies handed out are unknown, so the sketch names everything until the last of them is dead."""
    site = site_with_sketch()
    now_ms = site.engine.clock.now_ms
    await site.engine.sketch.saturate(now_ms + 60_000)
    assert (await site.get(PATH)).content == wire_format.saturated(DEFAULT)
    site.engine.clock.now_ms += 59_999
    assert (await site.get(PATH)).content == wire_format.saturated(DEFAULT)
    site.engine.clock.now_ms += 1_000
    assert not any((await site.get(PATH)).content[40:])


async def test_clients_can_be_switched_off() -> None:
    """The switch works while a part of the grid lags; a client that ignores the switch finds everything in the sketch."""
    site = site_with_sketch(sketch_off=True)
    site.engine.registry.behind = True
    answer = await site.get(f"{PATH}?nonce=5")
    assert said(answer) == {"made": site.engine.clock.now_ms, "delta": 10, "nonce": 5, "off": True}
    assert answer.content == wire_format.saturated(DEFAULT)


async def test_it_sets_no_cookie_and_needs_none() -> None:
    site = site_with_sketch()
    answers = await asyncio.gather(*(site.get(PATH, cookie=f"session={n}") for n in range(3)), site.get(PATH))
    assert len({(answer.content, answer.headers["quaestor-sketch"]) for answer in answers}) == 1
    assert not any("set-cookie" in answer.headers for answer in answers)

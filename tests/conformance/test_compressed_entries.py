"""Large entries in Redis: smaller there, the same when they are read, and no bomb."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import zstandard

from quaestor.model import CachedResponse
from quaestor.observability.telemetry import Telemetry
from quaestor.redis.clients import SharedClient
from quaestor.store import compression, entry_codec
from quaestor.store.redis import MAX_FIELDS_BYTES, RedisStore

pytestmark = pytest.mark.anyio

TEXT = b'{"name": "a rather ordinary record", "value": 17}, ' * 2_000
SMALL = CachedResponse(
    key="http://a/x", status=200, headers=((b"content-type", b"application/json"),), body=b"{}", etag=b'"e"',
    stored_at_ms=1, fresh_until_ms=2, registrations=("o:1",), tags=("t",), resource="/x",
)  # fmt: skip
LARGE = replace(SMALL, body=TEXT)


@pytest.mark.parametrize("body", [TEXT, TEXT * 10], ids=["on the loop", "in a thread"])
async def test_a_large_entry_takes_less_room_and_comes_back_as_it_was(
    client: SharedClient, prefix: str, body: bytes
) -> None:
    telemetry = Telemetry()
    store = RedisStore(client, deployment=prefix, telemetry=telemetry)
    large = replace(LARGE, body=body)
    await store.put(large, ttl_ms=60_000)
    stored_bytes = await client.strlen(store.name(LARGE.key))
    assert stored_bytes < len(body) / 10
    assert await store.get(LARGE.key) == large
    count = telemetry.families.registry.get_sample_value
    assert count("quaestor_stored_bytes_total", {"form": "plain"}) == len(entry_codec.encode(large))
    assert count("quaestor_stored_bytes_total", {"form": "sent"}) == stored_bytes


async def test_workers_with_other_settings_read_each_other(client: SharedClient, prefix: str) -> None:
    never = RedisStore(client, deployment=prefix, compression_level=0)
    always = RedisStore(client, deployment=prefix, compress_above_bytes=0, compression_level=9)
    await always.put(LARGE, ttl_ms=60_000)
    assert await never.get(LARGE.key) == LARGE
    await never.put(LARGE, ttl_ms=60_000)
    assert await client.strlen(never.name(LARGE.key)) > len(TEXT)
    assert await always.get(LARGE.key) == LARGE


async def test_small_or_incompressible_bodies_are_kept_as_they_are(client: SharedClient, prefix: str) -> None:
    store = RedisStore(client, deployment=prefix)
    noise = replace(SMALL, key="http://a/noise", body=random.Random(1).randbytes(50_000))
    for response in (SMALL, noise):
        await store.put(response, ttl_ms=60_000)
        assert await client.getrange(store.name(response.key), 0, 1) == b"QE"
        assert await store.get(response.key) == response


async def test_a_compressed_entry_is_evicted_and_its_successor_spared(client: SharedClient, prefix: str) -> None:
    store = RedisStore(client, deployment=prefix)
    successor = replace(LARGE, registrations=("o:2",))
    await store.put(successor, ttl_ms=60_000)
    await store.evict([LARGE])
    assert await store.get(LARGE.key) == successor
    await store.evict([successor])
    assert await store.get(LARGE.key) is None


async def test_an_entry_above_the_limit_is_neither_stored_nor_read(client: SharedClient, prefix: str) -> None:
    telemetry = Telemetry()
    narrow = RedisStore(client, deployment=prefix, max_body_bytes=100, telemetry=telemetry)
    large = replace(SMALL, body=b"x" * (MAX_FIELDS_BYTES + 100))
    await narrow.put(large, ttl_ms=60_000)
    assert not await client.exists(narrow.name(SMALL.key))
    assert telemetry.families.registry.get_sample_value("quaestor_uncacheable_total", {"reason": "too-large"}) == 1
    for level in (0, 3):
        wide = RedisStore(client, deployment=prefix, compression_level=level)
        await wide.put(large, ttl_ms=60_000)
        assert await wide.get(SMALL.key) == large
        assert await narrow.get(SMALL.key) is None


async def test_a_bomb_is_no_entry_and_is_not_unpacked(client: SharedClient, prefix: str) -> None:
    """Two gigabytes of zeros in 65 kB are no entry: write access to Redis does not suffice to take the app's memory."""
    store = RedisStore(client, deployment=prefix, max_body_bytes=1_000_000)
    packer = zstandard.ZstdCompressor(level=1).compressobj(size=2 << 30)
    bomb = b"".join(packer.compress(b"\0" * (1 << 24)) for _ in range(128)) + packer.flush()
    packed = compression.pack(entry_codec.encode(LARGE), level=1)
    prefix_bytes = entry_codec.IDENTITY_RANGE[1] + 1
    start = packed[:prefix_bytes]
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(entry_codec.encode(LARGE))
    for frame in (bomb, unsized, b"", b"garbage", packed[prefix_bytes:-5]):
        await client.set(store.name(LARGE.key), start + frame)
        assert await store.get(LARGE.key) is None
    await client.set(store.name(LARGE.key), packed)
    assert await store.get(LARGE.key) == LARGE


def test_a_frame_that_lies_about_its_size_is_refused() -> None:
    entry = entry_codec.encode(LARGE)
    packed = bytearray(compression.pack(entry, level=3))
    assert compression.unpack(bytes(packed), max_bytes=len(entry)) == entry
    assert compression.unpack(bytes(packed), max_bytes=len(entry) - 1) is None
    at = packed.index(len(entry).to_bytes(4, "little"), entry_codec.IDENTITY_RANGE[1] + 1)
    packed[at : at + 4] = (100).to_bytes(4, "little")
    assert compression.unpack(bytes(packed), max_bytes=len(entry)) is None

"""The Cache Sketch: false positives against theory, what reports cost beside bare Redis commands, what serving costs.

False positives: 1,000 to 40,000 outdated resources in the default filter of 14,600 bytes; counted with other resources, read off
the bits, and by the two formulas (the classic one, and ours with the bias of the modulo). Means of several sets of resources,
because one differs from another by some tenths of a per cent, and the range of what was counted. Aim: at most 6.5 % at 20,000.

Reports: microseconds of the server's own time for each resource, from its command statistics, so other work on the machine
counts little; and wall-clock microseconds of the whole call, which it does not spare. One at a time, and as many as a script
takes (writes) or as go out side by side (reads). Bare: a ZADD with the same key, the least that could remember a report.

Serving: CPU microseconds of the process for each answer of the endpoint, without a server around it.
Result: benchmarks/results/sketch.json and .svg. Run: python -m benchmarks.sketch (1 minute)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from statistics import mean
from typing import Any, Final, cast

from redis.asyncio import BlockingConnectionPool, Redis

from benchmarks import harness
from quaestor import Quaestor
from quaestor.cache_sketch import MemoryCacheSketch, RedisCacheSketch, wire_format
from quaestor.cache_sketch.counting import CountingFilter
from quaestor.cache_sketch.fill import fill_of
from quaestor.cache_sketch.sizing import BODY_BYTES, DEFAULT, false_positive_rate
from quaestor.client.flat_sketch import FlatSketch
from quaestor.middleware.interface import Engine
from quaestor.middleware.sketch_endpoint import SketchEndpoint
from quaestor.testing import servers

ENTRIES: Final = (1_000, 2_000, 5_000, 10_000, 15_000, 20_000, 30_000, 40_000)
SETS: Final = 10
OTHERS: Final = 20_000
CALLS: Final = 1_000
BATCH: Final = 200
ANSWERS: Final = 1_000
NOW_MS: Final = 1_700_000_000_000
LIFETIME_MS: Final = 60_000


def false_positives() -> list[dict[str, Any]]:
    """The share of other resources that are named, by how many are in the filter."""
    counted: dict[int, list[float]] = {entries: [] for entries in ENTRIES}
    measured: dict[int, list[float]] = {entries: [] for entries in ENTRIES}
    for number in range(SETS):
        filled = CountingFilter(DEFAULT)
        others = [wire_format.digest(f"/other/{number}/{n}") for n in range(OTHERS)]
        for entries in ENTRIES:
            for n in range(filled.keys, entries):
                filled.add(wire_format.digest(f"/items/{number}/{n}"))
            body = wire_format.encode(DEFAULT, keys=filled.keys, bits=filled.bits)
            flat = FlatSketch.read(body)
            assert flat is not None
            counted[entries].append(sum(map(flat.holds, others)) / OTHERS)
            measured[entries].append(fill_of(body, DEFAULT).measured)
    return [
        {
            "entries": entries,
            "counted": round(mean(counted[entries]), 5),
            "counted_of_one_set": [round(min(counted[entries]), 5), round(max(counted[entries]), 5)],
            "by_the_bits": round(mean(measured[entries]), 5),
            "theory": round(DEFAULT.false_positive_rate(entries), 5),
            "theory_ideal_hashes": round(false_positive_rate(entries, DEFAULT.size_bits, DEFAULT.slices), 5),
        }
        for entries in ENTRIES
    ]


async def costs(
    client: Redis, call: Callable[[int], Awaitable[object]], times: int, each: int, *, side_by_side: int = 1
) -> Any:
    """Costs of a call that reports `each` resources, by resource: the server's time and wall clock, in microseconds."""
    await asyncio.gather(*(call(0) for _ in range(side_by_side)))  # connections, the script
    await client.config_resetstat()
    begun = time.perf_counter()
    for start in range(1, times + 1, side_by_side):
        await asyncio.gather(*(call(n) for n in range(start, start + side_by_side)))
    wall_s = time.perf_counter() - begun
    stats = await client.info("commandstats")
    own = {"cmdstat_evalsha", "cmdstat_zadd"} & stats.keys()
    server_us = stats["cmdstat_evalsha" if "cmdstat_evalsha" in own else "cmdstat_zadd"]["usec"]
    reported = len(range(1, times + 1, side_by_side)) * side_by_side * each
    return {"server_us": round(server_us / reported, 2), "wall_us": round(wall_s * 1e6 / reported, 1)}


async def reports(url: str) -> dict[str, Any]:
    """The costs of reports, and of bare commands."""
    client = Redis.from_pool(BlockingConnectionPool.from_url(url, max_connections=50))
    sketch = RedisCacheSketch(client, deployment="benchmark")

    def read(n: int) -> Awaitable[object]:
        return sketch.report_read(f"/items/{n}", expires_at_ms=NOW_MS + LIFETIME_MS, now_ms=NOW_MS)

    def write(n: int) -> Awaitable[object]:
        return sketch.report_write([f"/items/{n}"], now_ms=NOW_MS)

    def write_batch(n: int) -> Awaitable[object]:
        return sketch.report_write([f"/items/{m}" for m in range(n * BATCH, (n + 1) * BATCH)], now_ms=NOW_MS)

    def bare(n: int) -> Awaitable[object]:
        return cast(Awaitable[object], client.zadd("bare", {wire_format.digest(f"/items/{n}"): NOW_MS}))

    figures = {
        "bare_zadd": await costs(client, bare, CALLS, 1),
        "bare_zadd_side_by_side": await costs(client, bare, CALLS, 1, side_by_side=50),
        "report_read": await costs(client, read, CALLS, 1),
        "report_read_side_by_side": await costs(client, read, CALLS, 1, side_by_side=50),
        "report_write": await costs(client, write, CALLS // 2, 1),
        "report_write_batch": await costs(client, write_batch, CALLS // BATCH, BATCH),
    }
    await client.aclose()
    return figures


async def serving() -> dict[str, Any]:
    """The costs of an answer: whole, compressed, unchanged (304); and of making the snapshot once a second."""
    quaestor = Quaestor(trust_new_sketch=True)
    sketch = cast(MemoryCacheSketch, quaestor.sketch)
    for n in range(1_000):
        await sketch.report_read(f"/items/{n}", expires_at_ms=NOW_MS + LIFETIME_MS, now_ms=NOW_MS)
    await sketch.report_write([f"/items/{n}" for n in range(1_000)], now_ms=NOW_MS)

    class Fixed:
        """A Quaestor whose grid is never behind, because none runs."""

        settings, telemetry, sketch = quaestor.settings, quaestor.telemetry, quaestor.sketch

        class read_path:  # noqa: N801  the attribute's name
            clock = staticmethod(lambda: NOW_MS)

        class registry:  # noqa: N801  the attribute's name
            caught_up = staticmethod(lambda *, now_ms: True)

    endpoint, sent = SketchEndpoint(cast(Engine, Fixed()), "/quaestor/sketch"), []

    async def send(message: Any) -> None:
        sent.append(message)

    async def answer(*headers: tuple[bytes, bytes]) -> float:
        scope = {"method": "GET", "query_string": b"", "headers": list(headers)}
        await endpoint(scope, "/quaestor/sketch", send)
        sent.clear()
        begun = time.process_time()
        for _ in range(ANSWERS):
            await endpoint(scope, "/quaestor/sketch", send)
        return round((time.process_time() - begun) * 1e6 / ANSWERS, 1)

    times = {"whole_us": await answer(), "compressed_us": await answer((b"accept-encoding", b"zstd"))}
    etag = next(value for name, value in sent[-2]["headers"] if name == b"etag")
    times["unchanged_us"] = await answer((b"accept-encoding", b"zstd"), (b"if-none-match", etag))
    begun = time.process_time()
    for _ in range(200):
        await sketch.snapshot(now_ms=NOW_MS)
    times["snapshot_us"] = round((time.process_time() - begun) * 1e6 / 200, 1)
    return times


def lookups_per_s() -> int:
    """Look-ups of digests in the servers' own filter, by CPU time; clients have their own code."""
    filled, keys = CountingFilter(DEFAULT), [wire_format.digest(f"/items/{n}") for n in range(20_000)]
    for key in keys[:10_000]:
        filled.add(key)
    begun = time.process_time()
    for key in keys:
        _ = key in filled
    return round(len(keys) / (time.process_time() - begun))


def draw(path: Path, points: list[dict[str, Any]]) -> None:
    """Write the plot of the false positives. Raises ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "quaestor"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4))
    entries = [point["entries"] for point in points]
    axes.plot(entries, [100 * point["counted"] for point in points], marker="o", linestyle="", label="counted")
    axes.plot(entries, [100 * point["theory"] for point in points], label="theory, with the modulo's bias")
    axes.plot(
        entries, [100 * point["theory_ideal_hashes"] for point in points], linestyle="--", label="theory, ideal hashes"
    )
    axes.axhline(6.5, linewidth=0.5, color="grey")
    axes.set(
        xlabel="outdated resources", ylabel="false positives, %", title=f"{BODY_BYTES:,} bytes, {DEFAULT.slices} hashes"
    )
    axes.legend()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Measure everything and keep the result."""
    points = false_positives()
    with servers.running(servers.redis_server, "redis") as server:
        reported = asyncio.run(reports(server.url))
    result = {
        "false_positives": points,
        "at_20000": {"aim": 0.065} | next(point for point in points if point["entries"] == 20_000),
        "reports": reported,
        "serving": asyncio.run(serving()),
        "server_lookups_per_s": lookups_per_s(),
    }
    path = harness.save("sketch", result)
    with suppress(ImportError):
        draw(path.with_suffix(".svg"), points)


if __name__ == "__main__":
    main()

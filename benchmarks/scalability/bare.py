"""A bare Redis round trip: one process appends with XADD, another reads with XREAD, nothing in between.

Same payloads' size, same pacing and batches, same two processes' priorities as the grid's client; the plain driver, no
event layer. The result is a lower bound for data that passes Redis once; a notification passes Redis twice.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
from multiprocessing.connection import Connection
from typing import Any, Final

import redis

_STREAM: Final = "bare"
_PERIOD_NS: Final = 1_000_000
_SIZE: Final = 260
_SPAWN: Final = multiprocessing.get_context("spawn")


def round_trips(redis_url: str, *, rate_hz: int, seconds: float) -> tuple[list[float], float]:
    """Milliseconds from before XADD to the entry's arrival at the reader, of each entry; and the rate achieved."""
    ours, child_end = _SPAWN.Pipe()
    total = int(rate_hz * seconds)
    reader = _SPAWN.Process(target=_read, args=(redis_url, total, child_end), daemon=True)
    reader.start()
    assert ours.poll(30)
    ours.recv()
    try:
        achieved_hz = _write(redis_url, rate_hz, total)
        latencies: list[float] = ours.recv() if ours.poll(30) else []
    finally:
        reader.join(10)
        if reader.is_alive():
            reader.kill()
            reader.join()
    return latencies, achieved_hz


def _write(redis_url: str, rate_hz: int, total: int) -> float:
    padding = b"x" * (_SIZE - 8)
    with redis.Redis.from_url(redis_url) as server:
        server.delete(_STREAM)
        server.xadd(_STREAM, {"p": b""})
        gc.collect()
        begun_ns = time.monotonic_ns()
        done, one_ns = 0, 1_000_000_000 / rate_hz
        while done < total:
            now_ns = time.monotonic_ns()
            due = min(total, int((now_ns - begun_ns) / one_ns) + 1, done + 1_000)
            if due > done:
                payload = time.monotonic_ns().to_bytes(8, "big") + padding
                if due == done + 1:
                    server.xadd(_STREAM, {"p": payload})
                else:
                    pipeline = server.pipeline(transaction=True)
                    for _ in range(due - done):
                        pipeline.xadd(_STREAM, {"p": payload})
                    pipeline.execute()
                done = due
            wake_ns = begun_ns + int(done * one_ns)
            if one_ns < _PERIOD_NS:
                wake_ns = max(wake_ns, now_ns + _PERIOD_NS)
            pause_ns = wake_ns - time.monotonic_ns()
            if pause_ns > 0:
                time.sleep(pause_ns / 1e9)
        achieved = total / max((time.monotonic_ns() - begun_ns) / 1e9, total / rate_hz)
        return float(achieved)


def _read(redis_url: str, total: int, pipe: Connection) -> None:
    latencies: list[float] = []
    with redis.Redis.from_url(redis_url) as server:
        server.delete(_STREAM)
        after: Any = "0"
        pipe.send("reading")
        quiet_s = time.monotonic() + 10
        while len(latencies) < total and time.monotonic() < quiet_s:
            for _, entries in server.xread({_STREAM: after}, count=1_000, block=1_000) or ():
                for entry_id, fields in entries:
                    after = entry_id
                    if payload := fields[b"p"]:
                        latencies.append((time.monotonic_ns() - int.from_bytes(payload[:8], "big")) / 1e6)
                quiet_s = time.monotonic() + 10
    pipe.send(latencies)

"""The measuring client: one process that writes, one that reads notifications, as plain as an app server's are.

Latency is measured as in the papers: from before a write is appended to its pipeline until its notification has been read and
decoded. The clock is the monotonic one that all processes of a machine share. The writer is paced; above 1,000 writes/s it
appends everything that is due once a millisecond, as ingest appends what the change stream has delivered.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final

from benchmarks.scalability import workload
from benchmarks.scalability.workload import Load
from quaestor.event_layer import streams
from quaestor.event_layer.codec import decode_notification
from quaestor.event_layer.redis import RedisEventLayer
from quaestor.model import Invalidated

_PERIOD_NS: Final = 1_000_000
_TICK_NS: Final = 250_000_000
_MOST_AT_ONCE: Final = 1_000
_READ_AT_ONCE: Final = 1_000
_LEAD_S: Final = 0.3
_GRACE_S: Final = 3.0
_SPAWN: Final = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True)
class Outcome:
    """latencies_ms: of arrived notifications. lost: notifications that had not arrived some seconds after the last write."""

    latencies_ms: list[float]
    lost: int
    achieved_hz: float


class Client:
    """Both processes of one client, kept from experiment to experiment."""

    def __init__(self, redis_url: str, deployment: str) -> None:
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        for target in (_writer, _listener):
            ours, child_end = _SPAWN.Pipe()
            process = _SPAWN.Process(target=target, args=(redis_url, deployment, child_end), daemon=True)
            process.start()
            child_end.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def run(self, load: Load, *, instead: Connection | None = None) -> Outcome:
        """One experiment; its measured queries are active already. instead: of another writer."""
        writer, listener = self._pipes
        writer = instead or writer
        listener.send(load)
        listener.recv()
        writer.send(load)
        sent, achieved_hz = writer.recv()
        listener.send("all sent")
        seen: dict[int, int] = listener.recv()
        latencies = [(at - sent[index]) / 1e6 for index, at in seen.items()]
        return Outcome(latencies, len(sent) - len(seen), achieved_hz)

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()


@contextmanager
def client(redis_url: str, deployment: str) -> Iterator[Client]:
    made = Client(redis_url, deployment)
    try:
        yield made
    finally:
        made.close()


def _writer(redis_url: str, deployment: str, pipe: Connection) -> None:
    with closing(RedisEventLayer(redis_url, deployment)) as layer:
        layer.get("warm")
        while (load := _received(pipe)) is not None:
            pipe.send(_write(layer, deployment, load))


def _received(pipe: Connection) -> Any:
    try:
        return pipe.recv()
    except EOFError:
        return None  # the starting process is gone


def _write(layer: RedisEventLayer, deployment: str, load: Load) -> tuple[list[int], float]:
    """When each measured write was sent (monotonic ns), and writes per second."""
    pipelines = [streams.writes(deployment, part) for part in range(load.write_partitions)]
    lead_s = _LEAD_S + load.writes * 40e-6  # to make the payloads in
    start_ms, start_ns = int((time.time() + lead_s) * 1000), time.monotonic_ns() + int(lead_s * 1e9)
    prepared = list(workload.writes(load, start_ms=start_ms))
    gc.collect()
    gc.freeze()
    gc.disable()
    sent = [0] * load.measured
    done, total = 0, len(prepared)
    one_ns = 1_000_000_000 / load.rate_hz
    period_ns = max(one_ns, _PERIOD_NS)
    next_tick_ns = begun_ns = start_ns
    if time.monotonic_ns() > start_ns:
        next_tick_ns = begun_ns = start_ns = time.monotonic_ns()
    batches: list[list[bytes]] = [[] for _ in pipelines]
    while done < total:
        now_ns = time.monotonic_ns()
        due = min(total, int((now_ns - start_ns) / one_ns) + 1, done + _MOST_AT_ONCE) if now_ns >= start_ns else 0
        if due > done:
            hits = []
            for write in prepared[done:due]:
                batches[write.partition].append(write.payload)
                if write.measured >= 0:
                    hits.append(write.measured)
            if now_ns >= next_tick_ns:
                next_tick_ns += _TICK_NS
                payload = workload.tick()
                for batch in batches:
                    batch.append(payload)
            at_ns = time.monotonic_ns()
            for pipeline, batch in zip(pipelines, batches, strict=True):
                if batch:
                    layer.append(pipeline, batch)
                    batch.clear()
            for index in hits:
                sent[index] = at_ns
            done = due
        wake_ns = start_ns + int(max(done * one_ns, 0))
        if period_ns == _PERIOD_NS:
            wake_ns = max(wake_ns, now_ns + _PERIOD_NS)
        pause_ns = wake_ns - time.monotonic_ns()
        if pause_ns > 0:
            time.sleep(pause_ns / 1e9)
    took_s = (time.monotonic_ns() - begun_ns) / 1e9
    gc.enable()
    return sent, total / max(took_s, total / load.rate_hz)


def _listener(redis_url: str, deployment: str, pipe: Connection) -> None:
    with closing(RedisEventLayer(redis_url, deployment)) as layer:
        while (load := _received(pipe)) is not None:
            pipe.send(_listen(layer, deployment, load, pipe))


def _listen(layer: RedisEventLayer, deployment: str, load: Load, pipe: Connection) -> dict[int, int]:
    """When the notification for each measured query was read (monotonic ns)."""
    now_ms = int(time.time() * 1000)
    after = {
        stream: layer.offset_at(stream, now_ms)
        for stream in workload.notification_pipelines(deployment, load.collections)
    }
    wanted = {
        workload.registration_id(workload.measured_number(load.experiment, index), load.collections): index
        for index in range(load.measured)
    }
    seen: dict[int, int] = {}
    give_up_s = float("inf")
    gc.collect()
    gc.freeze()
    pipe.send("listening")
    while len(seen) < len(wanted) and time.monotonic() < give_up_s:
        for entry in layer.read(after, count=_READ_AT_ONCE, block_ms=200):
            after[entry.stream] = entry.offset
            event = decode_notification(entry.payload)
            at_ns = time.monotonic_ns()
            if isinstance(event, Invalidated):
                for registration_id in event.registration_ids:
                    index = wanted.get(registration_id)
                    if index is not None:
                        seen.setdefault(index, at_ns)
        if give_up_s == float("inf") and pipe.poll():
            _received(pipe)
            give_up_s = time.monotonic() + _GRACE_S
    if give_up_s == float("inf"):
        _received(pipe)
    return seen

"""Proxies on loopback that hand on every byte later: distance between machines, for benchmarks.

Each direction takes half of the round trip, however much is under way, and nothing overtakes. Not modelled: the cost of a new
connection (each opens at once), bandwidth, loss, and back pressure (waiting bytes are held in memory).
Run: python -m benchmarks.query_caching.delaying_proxy PORT:TARGET_PORT:ROUND_TRIP_MS ...
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from subprocess import Popen
from typing import cast

import uvloop

from benchmarks import harness
from quaestor.testing.servers import HOST, free_port

_BACKLOG = 2_048


class DelayLine:
    """One direction: what is put in comes out `delay_s` later by the loop's clock, and in order."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._loop = asyncio.get_running_loop()
        self._under_way: deque[tuple[float, Callable[[], None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def put(self, arrive: Callable[[], None]) -> None:
        """Call arrive() when the way is over."""
        due_s = self._loop.time() + self._delay_s
        self._under_way.append((due_s, arrive))
        if self._timer is None:
            self._timer = self._loop.call_at(due_s, self._arrived)

    def _arrived(self) -> None:
        now_s = self._loop.time()
        while self._under_way and self._under_way[0][0] <= now_s:
            self._under_way.popleft()[1]()
        self._timer = self._loop.call_at(self._under_way[0][0], self._arrived) if self._under_way else None


class _End(asyncio.Protocol):
    """One end of a proxied connection: what it receives leaves at the other end, later.

    waits: whether it reads nothing before `begin`.
    """

    def __init__(self, delay_s: float, ends: set[_End], *, waits: bool) -> None:
        self._line = DelayLine(delay_s)
        self._ends, self._waits = ends, waits
        self._transport: asyncio.Transport | None = None
        self._over = False
        self.made = asyncio.Event()
        self.other: _End | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is there."""
        self._transport = cast(asyncio.Transport, transport)
        self._ends.add(self)
        if self._waits:
            self._transport.pause_reading()
        self.made.set()

    def data_received(self, data: bytes) -> None:
        """Bytes set out."""
        self._line.put(lambda: self._beyond(lambda transport: transport.write(data)))

    def eof_received(self) -> bool:
        """No more bytes come from here; answers may still go back."""
        self._over = True
        self._line.put(lambda: self._beyond(self._end))
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """This end is gone: so will be the other."""
        self._ends.discard(self)
        self._line.put(lambda: self._beyond(lambda transport: transport.close()))

    def begin(self) -> None:
        """Read from now on."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        """Close this end, when what was written has left."""
        if self._transport is not None:
            self._transport.close()

    def _beyond(self, act: Callable[[asyncio.Transport], None]) -> None:
        transport = self.other._transport if self.other is not None else None
        if transport is not None and not transport.is_closing():
            act(transport)

    def _end(self, transport: asyncio.Transport) -> None:
        if self.other is not None and self.other._over:
            transport.close()
        else:
            transport.write_eof()


class DelayingProxy:
    """Proxy in front of one server: a round trip through it takes `round_trip_ms` longer."""

    def __init__(self, port: int, target_port: int, *, round_trip_ms: float) -> None:
        self._port, self._target_port, self._half_s = port, target_port, round_trip_ms / 2_000
        self._connecting: set[asyncio.Task[None]] = set()
        self._ends: set[_End] = set()

    async def serve(self) -> None:
        """Serve until cancelled; then all connections end."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._accepted, HOST, self._port, backlog=_BACKLOG)
        try:
            await server.serve_forever()
        finally:
            for end in list(self._ends):
                end.close()

    def _accepted(self) -> _End:
        near = _End(self._half_s, self._ends, waits=True)
        far = _End(self._half_s, self._ends, waits=False)
        near.other, far.other = far, near
        task = asyncio.get_running_loop().create_task(self._connect(near, far))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        return near

    async def _connect(self, near: _End, far: _End) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: far, HOST, self._target_port)
        except OSError:
            await near.made.wait()
            near.close()
            return
        await near.made.wait()
        near.begin()


@contextmanager
def distances(*ways: tuple[int, float]) -> Iterator[tuple[Popen[bytes], Sequence[int]]]:
    """One process of delaying proxies, and the port of each.

    ways: port of a server, and the round trip's time in ms.
    """
    ports = [free_port() for _ in ways]
    said = [f"{port}:{target}:{ms}" for port, (target, ms) in zip(ports, ways, strict=True)]
    process = Popen([sys.executable, "-m", "benchmarks.query_caching.delaying_proxy", *said])
    try:
        harness.until(lambda: all(map(harness.accepts, ports)), timeout_s=60)
        yield process, ports
    finally:
        process.terminate()
        process.wait(10)


async def _serve(ways: Sequence[str]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for way in ways:
            port, target_port, ms = way.split(":")
            tasks.create_task(DelayingProxy(int(port), int(target_port), round_trip_ms=float(ms)).serve())


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1:]))

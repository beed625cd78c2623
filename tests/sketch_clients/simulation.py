"""A server with the real expiring sketch, a cache before it that loses purges and restarts, and clients, on one virtual clock.

The rules of the Python client run as they are; only what carries them (sockets, clocks) is virtual. Requests of all clients and
writes interleave at every hop, in an order that the seed decides.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.utils import formatdate

import httpx

from quaestor.cache_sketch.expiring import ExpiringSketch
from quaestor.cache_sketch.sizing import Geometry
from quaestor.cache_sketch.wire_format import digest
from quaestor.client.exchange import Exchanges
from quaestor.client.levels import Level
from quaestor.client.server_time import Moment
from quaestor.client.steps import Answer, Ask

START_MS = 1_700_000_000_000
GEOMETRY = Geometry(slices=4, bits_per_slice=1024, capacity=100, error_rate=0.01)
TTL_S = 600
PARTITIONS = ("", "even", "odd")
"""Of the sketch; a third of the resources is in the whole sketch only."""
NODES = 2
"""Number of nodes of the cache before the server; each request reaches one of them."""


@dataclass(frozen=True)
class Read:
    """One read that was answered.

    version: what it showed.
    """

    client: int
    resource: int
    begun_ms: float
    ended_ms: float
    version: int
    source: str


@dataclass
class Message:
    """An answer that is being sent."""

    status: int
    headers: httpx.Headers
    body: bytes
    until_ms: float = 0.0


@dataclass
class World:
    """Everything except the clients.

    lossy: share of purges that never arrive.
    lost_refreshes: share of loads of a sketch that fail.
    hostile: whether the cache keeps sketches for ever, ignores their queries, and drops fields now and then.
    notified: whether the cache overlooks `no-cache` where a request has a condition, because it receives all writes.
    memory_bytes: of each client.
    cdn_ms: how long the cache before the server keeps an answer without a purge.
    """

    seed: int
    resources: int = 6
    lossy: float = 0.5
    lost_refreshes: float = 0.2
    hostile: bool = False
    notified: bool = False
    memory_bytes: int = 1_000_000
    cdn_ms: int = 400_000
    now_ms: float = START_MS
    written: dict[int, list[float]] = field(default_factory=dict)
    reads: list[Read] = field(default_factory=list)
    own: list[tuple[int, int, float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.sketch = ExpiringSketch(GEOMETRY)
        self.epoch = ""
        self.cdn: dict[str, Message] = {}
        self.purges: list[tuple[float, str]] = []
        self.latest_purge_ms = 0.0
        self.written = {number: [0.0] for number in range(self.resources)}

    def pass_time(self, ms: float) -> None:
        self.now_ms += ms
        due = [purge for purge in self.purges if purge[0] <= self.now_ms]
        for purge in due:
            self.purges.remove(purge)
            self.cdn.pop(purge[1], None)

    def write(self, resource: int) -> int:
        """Write once: the sketch learns of it at once, the cache before the server later or never."""
        self.written[resource].append(self.now_ms)
        name = f"/r{resource}"
        self.sketch.report_write([self.key(resource)], now_ms=int(self.now_ms))
        for node in range(NODES):
            if self.chance.random() >= self.lossy:
                delay_ms = self.chance.expovariate(1 / 3000)
                self.latest_purge_ms = max(self.latest_purge_ms, delay_ms)
                self.purges.append((self.now_ms + delay_ms, f"{node} {name}"))
        return len(self.written[resource]) - 1

    def origin(self, name: str) -> Message:
        resource = int(name[2:])
        version = len(self.written[resource]) - 1
        at_ms = int(self.now_ms) - self.early_ms()
        self.sketch.report_read(self.key(resource), expires_at_ms=at_ms + TTL_S * 1000, now_ms=int(self.now_ms))
        partition = self.partition(resource)
        life = f"{TTL_S};at={at_ms}" + (f";sketch={partition}" if partition else "")
        headers = httpx.Headers({"etag": f'"{version}"', "quaestor-ttl": life})
        return Message(200, headers, b"%d" % version, self.now_ms + self.cdn_ms)

    def early_ms(self) -> int:
        """How much earlier than it leaves an answer says that it left."""
        return self.chance.randrange(100)

    def answer(self, name: str, requested: httpx.Headers) -> Message:
        """Return the answer to a request: from the cache unless the request forbids it."""
        node = f"{self.chance.randrange(NODES)} {name}"
        kept = self.cdn.get(node)
        past = "no-cache" in requested.get("cache-control", "") and not (self.notified and "if-none-match" in requested)
        if kept is None or kept.until_ms < self.now_ms or past:
            kept = self.cdn[node] = self.origin(name)
        headers = httpx.Headers(kept.headers)
        if self.hostile and self.chance.random() < 0.05 and "no-cache" not in requested.get("cache-control", ""):
            del headers["quaestor-ttl"]
        if requested.get("if-none-match") == headers["etag"]:
            return Message(304, headers, b"")
        return Message(200, headers, kept.body)

    def restart(self) -> None:
        """A node of the cache before the server forgets all that it keeps, the purges that it waits for too."""
        node = f"{self.chance.randrange(NODES)} "
        self.cdn = {key: kept for key, kept in self.cdn.items() if not key.startswith(node)}
        self.purges = [purge for purge in self.purges if not purge[1].startswith(node)]

    def partition(self, resource: int) -> str:
        return self.epoch + PARTITIONS[resource % 3]

    def key(self, resource: int) -> bytes:
        return digest(f"/r{resource}") + self.partition(resource).encode()

    def sketch_answer(self, partition: str, nonce: int) -> Message:
        if self.chance.random() < self.lost_refreshes:
            return Message(503, httpx.Headers(), b"<html>later</html>")
        key = f"sketch {partition}" + ("" if self.hostile and self.chance.random() < 0.5 else f"?{nonce}")
        kept = self.cdn.get(key)
        if kept is not None and (self.hostile or kept.until_ms >= self.now_ms):
            return kept
        self.sketch.sweep(int(self.now_ms))
        said = f"made={int(self.now_ms)}, delta=30" + (f", nonce={nonce}" if nonce else "")
        headers = httpx.Headers(
            {"quaestor-sketch": said, "date": formatdate(self.now_ms // 1000, usegmt=True), "etag": f'"{self.now_ms}"'}
        )
        made = Message(200, headers, self.sketch.snapshot(int(self.now_ms), partition), self.now_ms + 1000)
        if not nonce or self.hostile:
            self.cdn[key] = made
        return made


class Crashing(World):
    """The server keeps its sketch in its memory, and is killed now and then. Nobody hears of a write while none runs."""

    crashes = 0

    def restart(self) -> None:
        super().restart()
        self.crashes += 1
        self.written[self.chance.randrange(self.resources)].append(self.now_ms)
        self.sketch, self.epoch = ExpiringSketch(GEOMETRY), self.new_epoch()
        self.sketch.saturate(int(self.now_ms) + TTL_S * 1000, earlier=True)

    def new_epoch(self) -> str:
        return f"{self.chance.getrandbits(64):016x}"


class Client:
    """One client, whose clocks are wrong: the wall clock by a constant, both by speed; the monotonic one stops in its sleep."""

    def __init__(self, world: World, number: int, level: Level) -> None:
        self.world, self.number, self.level = world, number, level
        self.exchanges = Exchanges(level, world.memory_bytes)
        chance = world.chance
        self._offset_ms = chance.uniform(-1e7, 1e7)
        self._speed = chance.uniform(0.9995, 1.0005)
        self._slept_ms = 0.0
        self._stepped_ms = 0.0

    def moment(self) -> Moment:
        gone = (self.world.now_ms - START_MS) * self._speed
        return Moment(START_MS + gone + self._offset_ms - self._stepped_ms, gone - self._slept_ms)

    def sleep(self, ms: float) -> None:
        """The machine is suspended: only its wall clock goes on, which was not corrected since the client last looked at it."""
        self.exchanges.sketches.time.latest_ms(self.moment())
        self._slept_ms += ms * self._speed
        self.world.pass_time(ms)

    def step_back(self, ms: float) -> None:
        """Somebody corrects the wall clock; not before the client has looked at it since the machine slept."""
        self.exchanges.sketches.time.latest_ms(self.moment())
        self._stepped_ms += ms

    def read(self, resource: int) -> Iterator[None]:
        world, name = self.world, f"/r{resource}"
        headers = httpx.Headers({"host": "shop"})
        begun_ms = world.now_ms
        step = self.exchanges.begin(name.encode(), headers, self.level, self.moment())
        loads = self.exchanges.to_load()
        while isinstance(step, Ask):
            fields = httpx.Headers([*headers.raw, *((n.encode(), v.encode()) for n, v in step.fields)])
            yield
            message = world.answer(name, fields)
            yield
            step = self.exchanges.answered(step, message.status, message.headers, message.headers.raw, self.moment())
        assert isinstance(step, Answer)
        body = step.copy.body if step.copy is not None else message.body
        if step.keep is not None:
            yield  # its body is on its way
            self.exchanges.keep(step.keep, message.headers.raw, body)
        loads += self.exchanges.to_load()
        world.reads.append(Read(self.number, resource, begun_ms, world.now_ms, int(body), step.source))
        for partition in loads:
            yield from self.load(partition)

    def load(self, partition: str, *, proof: bool = False) -> Iterator[None]:
        relied: bool | None = None
        while relied is None:
            nonce = self.world.chance.randrange(1, 2**32)
            ask = self.exchanges.ask_sketch(partition, nonce=nonce, now=self.moment(), proof=proof)
            yield
            message = self.world.sketch_answer(partition, ask.nonce)
            yield
            relied = self.exchanges.sketch_answered(ask, message.status, message.headers, message.body, self.moment())
            proof = True

    def write(self, resource: int) -> Iterator[None]:
        yield
        version = self.world.write(resource)
        yield
        self.exchanges.wrote(self.moment())
        self.world.own.append((self.number, resource, self.world.now_ms, version))


def run(
    world: World, level: Level, *, clients: int, operations: int, client_type: type[Client] = Client
) -> list[Client]:
    """Operations of several clients, interleaved."""
    chance = world.chance
    everybody = [client_type(world, number, level) for number in range(clients)]
    running: list[Iterator[None]] = []
    started = 0
    while running or started < operations:
        if started < operations and (not running or (len(running) < clients and chance.random() < 0.4)):
            started += 1
            client = chance.choice(everybody)
            kind, resource = chance.random(), chance.randrange(world.resources)
            if kind < 0.02:
                client.sleep(chance.uniform(0, 100_000))
            elif kind < 0.03:
                client.step_back(chance.uniform(0, 100_000))
            elif kind < 0.035:
                world.restart()
            elif kind < 0.10:
                running.append(client.write(resource))
            else:
                running.append(client.read(resource))
            world.pass_time(chance.expovariate(1 / 700))
        else:
            chosen = chance.choice(running)
            if next(chosen, chosen) is chosen:
                running.remove(chosen)
            world.pass_time(chance.expovariate(1 / 20))
    return everybody

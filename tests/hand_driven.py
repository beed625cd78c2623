"""Parts of a Quaestor that a test drives by hand, for events that a real grid makes too rarely or too fast.

A clock, a registry whose registrations die on command, a sketch that fails on command. The stores and the index are
real.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from quaestor.cache_sketch import MemoryCacheSketch
from quaestor.capture import current
from quaestor.capture.commands import Understood
from quaestor.capture.recorder import ReadInProgress
from quaestor.errors import SketchError
from quaestor.model import CapturedRead, Dependent, Operation, Query, Version
from quaestor.observability.telemetry import Telemetry
from quaestor.observability.tracing import Tracing
from quaestor.ports import CdnAdapter, DependencyIndex, Leases, Registered, SketchState
from quaestor.read_path.local_store import EntryStorage, LocalStore
from quaestor.read_path.service import ReadPath
from quaestor.runtime.supervision.process_context import ProcessContext
from quaestor.settings import Settings, switched
from quaestor.store.index_memory import MemoryIndex
from quaestor.store.memory import MemoryStore

START_MS = 1_700_000_000_000


class HandClock:
    def __init__(self) -> None:
        self.now_ms = START_MS

    def __call__(self) -> int:
        return self.now_ms


class HandRegistry:
    """Every registration is active at once and lives until kill(). before_register runs first and may raise.

    up: something is fresh. behind: something is not.
    """

    def __init__(self) -> None:
        self.newest: Version = 1
        self.up = True
        self.behind = False
        self.dead: set[str] = set()
        self.registered: list[tuple[Sequence[CapturedRead], Version]] = []
        self.leases: dict[str, int] = {}
        self.before_register: Callable[[], Awaitable[None]] | None = None
        self._counter = itertools.count(1)

    def kill(self, *registration_ids: str) -> None:
        self.dead.update(registration_ids or self.leases)

    def watermark(self) -> Version:
        return self.newest

    async def register(self, reads: Sequence[CapturedRead], *, since: Version, expires_at_ms: int) -> Registered:
        if self.before_register is not None:
            await self.before_register()
        self.registered.append((reads, since))
        ids = tuple(f"test:{next(self._counter)}" for _ in reads)
        self.leases.update(dict.fromkeys(ids, expires_at_ms))
        return Registered(
            ids=ids,
            query_ids=tuple(str(read.query.filter) for read in reads),
            tags=(f"q-{ids[0]}",),
            write_rate_hz=0.0,
            widened=(),
            queries=tuple(read.query for read in reads),
        )

    def held(self, registration_ids: Sequence[str]) -> bool:
        return False

    def renewals(self, registration_ids: Sequence[str]) -> int:
        return 0

    async def settled(self, registration_ids: Sequence[str]) -> None: ...

    def lease(self, registration_ids: Sequence[str], *, until_ms: int, cost_ms: int = 0) -> None:
        self.leases.update(dict.fromkeys(registration_ids, until_ms))

    def live(self, registration_ids: Sequence[str], *, now_ms: int) -> bool:
        return self.up and self.dead.isdisjoint(registration_ids)

    known_since_ms = 0

    def lagging(self, registration_ids: Sequence[str], *, now_ms: int) -> bool:
        return not self.up

    def caught_up(self, *, now_ms: int) -> bool:
        return self.up and not self.behind

    def serving(self, *, now_ms: int) -> bool:
        return self.up


LIFETIME_MS = 60_000


class FixedEstimator:
    def __init__(self, ttl_ms: int = LIFETIME_MS) -> None:
        self.ttl_ms = ttl_ms

    def estimate_ms(self, query_ids: Sequence[str], *, write_rate_hz: float, now_ms: int, kind: str = "") -> int:
        return self.ttl_ms

    def observe_read(
        self,
        query_ids: Sequence[str],
        *,
        now_ms: int,
        ttl_ms: int | None = None,
        given_ms: int | None = None,
        write_rate_hz: float = 0.0,
        kind: str = "",
    ) -> None: ...

    def observe_invalidation(self, query_id: str, *, now_ms: int) -> None: ...

    def observe_withdrawal(self, query_id: str, *, now_ms: int) -> None: ...


class HandSketch:
    epoch = ""

    def __init__(self) -> None:
        self.reads: dict[str, int] = {}
        self.snapshots = 0
        self.off = False
        self.down = False

    def _check(self) -> None:
        if self.down:
            raise SketchError("the sketch is down")

    async def report_read(self, resource: str, *, expires_at_ms: int, now_ms: int) -> None:
        self._check()
        self.reads[resource] = max(expires_at_ms, self.reads.get(resource, 0))

    async def report_write(self, resources: Sequence[str], *, now_ms: int) -> list[int]:
        self._check()
        return [max(0, self.reads.get(resource, 0) - now_ms) for resource in resources]

    async def saturate(self, until_ms: int, *, earlier: bool = False) -> None: ...

    async def state(self, *, now_ms: int) -> SketchState:
        return SketchState(off=self.off)

    async def switch(self, *, off: bool) -> None:
        self.off = off

    async def snapshot(self, *, now_ms: int, partition: str = "") -> bytes:
        self.snapshots += 1
        self._check()
        return b"sketch %d" % self.snapshots


class FilledSketch(HandSketch):
    """One whose snapshots are real: clients can rely on them."""

    def __init__(self) -> None:
        super().__init__()
        self._filled = MemoryCacheSketch()

    async def report_read(self, resource: str, *, expires_at_ms: int, now_ms: int) -> None:
        await super().report_read(resource, expires_at_ms=expires_at_ms, now_ms=now_ms)
        await self._filled.report_read(resource, expires_at_ms=expires_at_ms, now_ms=now_ms)

    async def report_write(self, resources: Sequence[str], *, now_ms: int) -> list[int]:
        return await self._filled.report_write(resources, now_ms=now_ms)

    async def snapshot(self, *, now_ms: int, partition: str = "") -> bytes:
        await super().snapshot(now_ms=now_ms, partition=partition)
        return await self._filled.snapshot(now_ms=now_ms, partition=partition)


class TaggingCdn:
    """A CDN adapter that tags answers and notes its purges."""

    name = "tagging"

    def __init__(self) -> None:
        self.purged: list[str] = []

    def response_headers(self, tags: Sequence[str]) -> list[tuple[bytes, bytes]]:
        return [(b"xkey", " ".join(tags).encode())]

    async def purge(self, *, tags: Sequence[str], urls: Sequence[str]) -> None:
        self.purged += [*tags, *urls]

    async def aclose(self) -> None: ...


class HandEngine:
    """The interface that QuaestorMiddleware needs of a Quaestor, made of the parts above."""

    def __init__(
        self,
        *,
        store: LocalStore | None = None,
        index: DependencyIndex | None = None,
        registry: HandRegistry | None = None,
        leases: Leases | None = None,
        clock: HandClock | None = None,
        sketch: HandSketch | None = None,
        **settings: Any,
    ) -> None:
        self.settings = switched(Settings(**{"verification": False, "ttl_max_ms": LIFETIME_MS} | settings), os.environ)
        self.telemetry = Telemetry(tracing=Tracing(enabled=self.settings.observability.tracing))
        self.clock = clock or HandClock()
        self.registry = registry or HandRegistry()
        self.estimator = FixedEstimator()
        self.sketch = sketch or HandSketch()
        memory = MemoryStore(budget_bytes=self.settings.store.memory_bytes, on_left=self.telemetry.stores.left)
        self.store = memory if store is None else store
        self.index = MemoryIndex() if index is None else index
        self.cdn: list[CdnAdapter] = []
        self.life: list[str] = []
        self.purged_again: list[Dependent] = []
        self.read_path = ReadPath(
            self.registry,
            EntryStorage(store=self.store, index=self.index, sketch=self.sketch, leases=leases),
            self.estimator,
            ProcessContext.of(self.settings, telemetry=self.telemetry, clock=self.clock),
        )

    def add_cdn(self, adapter: CdnAdapter) -> None:
        self.cdn.append(adapter)

    def purge_again(self, dependent: Dependent) -> None:
        self.purged_again.append(dependent)

    async def start(self) -> None:
        self.life.append("start")

    async def stop(self) -> None:
        self.life.append("stop")

    def count(self, name: str, **labels: str) -> float:
        """The value of one counter."""
        self.telemetry.requests.flush()
        return self.telemetry.families.registry.get_sample_value(f"quaestor_{name}_total", labels) or 0.0


def reads(value: Any = 1, *, namespace: str = "shop.items") -> None:
    """Called in a handler: what the driver's listener would have recorded for `find({"value": value})`."""
    recorder = current()
    if recorder is None:
        return
    query = Query(namespace=namespace, operation=Operation.FIND, filter={"value": value})
    request = object()
    recorder.begin(
        request,
        ReadInProgress(
            understood=Understood(query=query, keeps_records=True, description="find on shop.items"),
            operation_id=None,
            primary=True,
            ids=[],
        ),
    )
    recorder.replied(request, read_at=7, ids=[value], cursor=None, cursor_id=0, duration_ms=1.0)

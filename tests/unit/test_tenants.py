"""Several apps on one grid: each app learns of its own registrations only, and reads nothing of another's in Redis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from quaestor import Quaestor
from quaestor.clock import system_clock
from quaestor.errors import ConfigurationError
from quaestor.event_layer import streams
from quaestor.event_layer.bounds import measured
from quaestor.event_layer.codec import decode_notification, encode_image
from quaestor.event_layer.connecting import event_layer
from quaestor.event_layer.loop_context import LoopContext
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.event_layer.tenancy import by_tenant, origin_of, tenant_of
from quaestor.invalidation.grid.cell_loop import CellLoop
from quaestor.invalidation.grid.cell_outbox import CellOutbox
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.invalidation.registry.grid_events import Consequences
from quaestor.invalidation.registry.registry import Registry
from quaestor.model import (
    Activated,
    AfterImage,
    CachedResponse,
    CapturedRead,
    Cell,
    GridShape,
    Heartbeat,
    Invalidated,
    MatchType,
    Notification,
    Operation,
    Query,
    WriteKind,
)
from quaestor.ports import EventLayer
from quaestor.runtime.supervision.process_context import ProcessContext
from quaestor.settings import Settings
from tests.support import PATIENT, eventually, running

CELL = Cell(query_partition=0, write_partition=0)
SHAPE = GridShape(query_partitions=1, write_partitions=1)


def test_an_id_says_whose_it_is() -> None:
    assert tenant_of(f"{origin_of('shop', 'd', 'abc')}:1", "d") == "shop"
    assert tenant_of(f"{origin_of('d', 'd', 'abc')}:1", "d") == "d"
    assert by_tenant(["x:1", "shop~y:2", "x:3"], "d") == {"d": ["x:1", "x:3"], "shop": ["shop~y:2"]}


@pytest.mark.parametrize("tenant", ["a b", "a:b", "a{b", "a~b", "a@b", "x" * 65])
def test_a_name_that_could_be_taken_for_two_is_refused(tenant: str) -> None:
    with pytest.raises(ConfigurationError, match="tenant"):
        Settings(tenant=tenant)


def test_the_app_named_like_the_deployment_is_the_default() -> None:
    assert Settings(deployment="d").scope == Settings(deployment="d", tenant="d").scope == "d"
    assert Settings(deployment="d", tenant="shop").scope == "d@shop"
    with pytest.raises(ConfigurationError, match="@"):
        Settings(deployment="d@x", tenant="shop")
    with pytest.raises(ConfigurationError, match="@"):
        Settings(deployment="d@shop")  # is what tenant shop of deployment d has in Redis


def read(layer: EventLayer, stream: str) -> list[Notification]:
    return [decode_notification(entry.payload) for entry in layer.read({stream: "0"}, count=1000, block_ms=0)]


def invalidated(*ids: str) -> Invalidated:
    return Invalidated(
        registration_ids=ids, query_id="q", match_type=MatchType.ADD, version=1, key=1, written_at_ms=1, source=CELL
    )


def beat(at_ms: int) -> Heartbeat:
    return Heartbeat(cell=CELL, shape=SHAPE, at_ms=at_ms, fresh_as_of_ms=at_ms, watermark=1, registrations=0, writes=0)


def test_a_heartbeat_is_appended_after_earlier_findings_of_all_tenants() -> None:
    """The order holds also if an append fails in between: repetitions keep it."""
    order: list[str] = []

    class Recording(MemoryEventLayer):
        def append(self, stream: str, payloads: object) -> None:
            order.append(stream)

    out = CellOutbox(Recording(), "d")
    out.add([beat(1), invalidated("shop~a:1", "b:1"), Activated(registration_id="toys~c:1", cell=CELL)])
    out.send()
    assert order[-2:] == [streams.notifications("d"), streams.heartbeats("d")]
    assert set(order[:-2]) == {streams.notifications("d", "shop"), streams.notifications("d", "toys")}
    assert not out


def test_a_query_of_two_tenants_tells_each_only_of_its_own() -> None:
    layer = MemoryEventLayer()
    out = CellOutbox(layer, "d")
    out.add([invalidated("shop~a:1", "b:1", "shop~a:2")])
    out.send()
    assert read(layer, streams.notifications("d", "shop")) == [invalidated("shop~a:1", "shop~a:2")]
    assert read(layer, streams.notifications("d")) == [invalidated("b:1")]


def look_after(layer: MemoryEventLayer, out: CellOutbox, *, before_ms: int, now_ms: int) -> None:
    """As upkeep does it."""
    said = out.streams
    measured(layer, dict.fromkeys(said, before_ms))
    out.trimmed(said, before_ms=before_ms, now_ms=now_ms)


def test_pipelines_of_tenants_are_trimmed_until_nothing_is_left_in_them() -> None:
    now_ms = 1_000
    layer = MemoryEventLayer(clock=lambda: now_ms)
    out = CellOutbox(layer, "d")
    out.add([invalidated("shop~a:1")])
    out.send()
    for now_ms in (2_000, 3_000, 4_000, 5_000):
        look_after(layer, out, before_ms=now_ms - 2_000, now_ms=now_ms)
    assert read(layer, streams.notifications("d", "shop")) == []
    assert out._known == {}


def test_many_tenants_cost_a_cell_few_round_trips_a_second_and_none_is_forgotten() -> None:
    now_ms = 1_000
    requests: list[str] = []

    class Recording(MemoryEventLayer):
        def trim(self, stream: str, *, before_ms: int) -> None:
            requests.append(stream)
            super().trim(stream, before_ms=before_ms)

    layer = Recording(clock=lambda: now_ms)
    out = CellOutbox(layer, "d")
    tenants = [f"t{number}" for number in range(100)]
    out.add([invalidated(f"{tenant}~a:1") for tenant in tenants])
    out.add([invalidated("t77~a:2"), invalidated("t77~a:3")])
    out.send()
    look_after(layer, out, before_ms=0, now_ms=now_ms)
    assert streams.notifications("d", "t77") in requests
    for now_ms in range(10_000, 100_000, 1_000):
        requests.clear()
        look_after(layer, out, before_ms=now_ms - 5_000, now_ms=now_ms)
        assert len(requests) <= 10
    assert all(read(layer, streams.notifications("d", tenant)) == [] for tenant in tenants)
    assert out._known == out._grown == {}


class App:
    def __init__(self, layer: EventLayer, deployment: str, tenant: str) -> None:
        self.invalidated: list[Invalidated] = []
        self.registry = Registry(
            layer,
            ProcessContext.of(Settings(deployment=deployment, tenant=tenant, **PATIENT | {"heartbeat_ms": 20})),
            Consequences(invalidated=self.invalidated.extend, reset=lambda why: None),
        )

    async def register(self, version: int) -> tuple[str, ...]:
        query = Query(namespace="db.c", operation=Operation.FIND, filter={"a": 1})
        captured = CapturedRead(query=query, read_at=version, ids=())
        registered = await self.registry.register([captured], since=version, expires_at_ms=system_clock() + 600_000)
        return registered.ids


@contextmanager
def cell(layer: EventLayer, deployment: str) -> Iterator[None]:
    node = MatchingNode(CELL, SHAPE, retention_ms=60_000)
    loop = CellLoop(node, layer, CELL, SHAPE, LoopContext(deployment=deployment, heartbeat_ms=20, retention_ms=60_000))
    with running(loop.run):
        yield


@pytest.mark.anyio
async def test_two_apps_on_one_grid_hear_of_the_grid_and_of_their_own(shared_url: str, prefix: str) -> None:
    """On a real Valkey and a cluster: one query, registered by both, dies for both by one write, each in its own pipeline."""
    layer, cells = event_layer(shared_url, prefix), event_layer(shared_url, prefix)
    apps = [App(layer, prefix, ""), App(layer, prefix, "shop"), App(layer, prefix, "toys")]

    def append(image: AfterImage) -> None:
        layer.append(streams.writes(prefix, 0), [encode_image(image)])

    def tick() -> bool:
        append(AfterImage(namespace="*", kind=WriteKind.TICK, version=5, wall_ms=system_clock()))
        return all(app.registry.serving(now_ms=system_clock()) for app in apps)

    with closing(cells), cell(cells, prefix):
        for app in apps:
            app.registry.start()
        try:
            await eventually(tick)
            ids = [await app.register(5) for app in apps[:2]]
            assert ids[1][0].startswith("shop~")
            append(
                AfterImage(
                    namespace="db.c", kind=WriteKind.INSERT, version=6, key=1, after={"_id": 1, "a": 1},
                    after_exact=True, wall_ms=system_clock(),
                )
            )  # fmt: skip
            await eventually(lambda: all(app.invalidated for app in apps[:2]))
            assert [notification.registration_ids for app in apps for notification in app.invalidated] == ids
            await eventually(lambda: all(app.registry.watermark() == 6 for app in apps))
        finally:
            for app in apps:
                app.registry.stop()
    said = read(layer, streams.notifications(prefix, "shop"))
    assert {type(message) for message in said} == {Activated, Invalidated}, "its own only"
    layer.close()


@pytest.mark.anyio
@pytest.mark.usefixtures("patient_redis")
async def test_one_app_never_sees_anothers_entries(shared_url: str, prefix: str) -> None:
    """The same key in the same deployment on the same Redis: found by the tenant that stored it, and by nobody else."""
    apps = [
        Quaestor(redis_url=shared_url, deployment=prefix, tenant=tenant, grid=False, trust_new_sketch=True)
        for tenant in ("shop", "toys")
    ]
    now_ms = system_clock()
    response = CachedResponse(
        key="GET http://x/", status=200, headers=(), body=b"shop's", etag=b'"1"', stored_at_ms=now_ms,
        fresh_until_ms=now_ms + 60_000, registrations=(), tags=("t",), resource="http://x/",
    )  # fmt: skip
    for app in apps:
        await app.start()
    try:
        await apps[0].read_path.store.put(response, ttl_ms=60_000)
        await apps[0].sketch.report_read("http://x/", expires_at_ms=now_ms + 60_000, now_ms=now_ms)
        results = [await app.read_path.store.get("GET http://x/") for app in apps]
        assert results == [response, None]
        assert await apps[1].sketch.report_write(["http://x/"], now_ms=now_ms) == [0]
        assert await apps[0].sketch.report_write(["http://x/"], now_ms=now_ms) != [0]
        assert apps[0].redis is not None
        names = {key.decode() async for key in apps[0].redis.scan_iter(match=f"*{prefix}*")}
        entries = [name for name in names if ":entry:" in name]
        assert entries, names
        assert all("@shop" in name for name in entries)
    finally:
        for app in apps:
            await app.stop()

"""Query pipelines are written by the apps of every tenant: cells survive any content,
and other tenants' registrations are safe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import bson
import pytest

from quaestor.clock import system_clock
from quaestor.event_layer import streams
from quaestor.event_layer.codec import decode_notification, encode_image, encode_query_event
from quaestor.event_layer.loop_context import LoopContext
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.invalidation.grid.cell_loop import CellLoop
from quaestor.invalidation.grid.resizing.handover import GridHandover
from quaestor.invalidation.grid.resizing.messages import encode_taken_over
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.model import (
    Activated,
    AfterImage,
    Cancellation,
    Cell,
    GridShape,
    Invalidated,
    Notification,
    Operation,
    Query,
    Refused,
    Registration,
    WriteKind,
)
from quaestor.observability.telemetry import Telemetry

CELL = Cell(query_partition=0, write_partition=0)
SHAPE = GridShape(query_partitions=1, write_partitions=1)
DEPLOYMENT = "d"
LEASED_UNTIL_MS = system_clock() + 86_400_000
WELL = {
    "v": 1, "t": "r", "id": "evil~x:1", "tenant": "evil", "qid": "q", "since": 5, "at": 5, "exp": LEASED_UNTIL_MS,
}  # fmt: skip
QUERY = {"ns": "db.c", "op": "find", "filter": {"a": 1}}


def deep(levels: int) -> bytes:
    """A document in a document in a document, built from the inside: no encoder goes so deep."""
    inner = bson.encode({})
    for _ in range(levels):
        body = b"\x03a\x00" + inner
        inner = (len(body) + 5).to_bytes(4, "little") + body + b"\x00"
    return inner


def hostile(**fields: Any) -> bytes:
    return bson.encode({**WELL, "query": QUERY, **fields})


def nested() -> bytes:
    """A registration whose filter is as deep as a thousand documents."""
    head = bson.encode({**WELL, "query": {"ns": "db.c", "op": "find"}})
    return head[:-1] + b"\x03deep\x00" + deep(20_000) + b"\x00"


INF, NAN = float("inf"), float("nan")
PAYLOADS: Mapping[str, bytes] = {
    "nothing": b"",
    "noise": bytes(range(256)),
    "no type": bson.encode({"v": 1}),
    "type 5": bson.encode({"v": 1, "t": 5}),
    "lease without end": hostile(exp=INF),
    "lease of no number": hostile(exp=NAN),
    "lease of words": hostile(exp="tomorrow"),
    "lease in the past": hostile(exp=-1),
    "lease to the end of time": hostile(exp=(1 << 63) - 1),
    "since without end": hostile(since=INF),
    "since of no number": hostile(since=NAN),
    "since below zero": hostile(since=-(1 << 63)),
    "since in the future": hostile(since=(1 << 63) - 1),
    "read at infinity": hostile(at=INF),
    "an id that is a number": hostile(id=5),
    "an id that is a document": hostile(id={"a": 1}),
    "an id that is nothing": hostile(id=None),
    "an id of a megabyte": hostile(id="x" * 1_000_000),
    "a tenant that is a document": hostile(tenant={}),
    "a tenant that is nothing": hostile(tenant=None),
    "a tenant of a megabyte": hostile(tenant="x" * 1_000_000, id="x" * 1_000_000 + "~y:1"),
    "a query id that is a list": hostile(qid=[1]),
    "a namespace that is a number": hostile(query={**QUERY, "ns": 5}),
    "a namespace without a dot": hostile(query={**QUERY, "ns": ""}),
    "a filter that is a list": hostile(query={**QUERY, "filter": [1]}),
    "a filter that is a number": hostile(query={**QUERY, "filter": 1}),
    "a query that is nothing": hostile(query=None),
    "a skip without end": hostile(query={**QUERY, "skip": INF}),
    "a limit below zero": hostile(query={**QUERY, "limit": -5}),
    "a sort of numbers": hostile(query={**QUERY, "sort": [1, 2]}),
    "a sort by documents": hostile(query={**QUERY, "sort": [[{"a": 1}, 1]]}),
    "a pipeline of numbers": hostile(query={**QUERY, "op": "aggregate", "pipeline": [1]}),
    "members that are a number": hostile(members=5),
    "members that are documents": hostile(members=[{"a": {"b": [NAN]}}]),
    "a last that is a number": hostile(last=5, members=[1], query={**QUERY, "sort": [["a", 1]], "limit": 1}),
    "contributors that are numbers": hostile(by={"ver": 5, "records": [1], "all": True}),
    "digests that are numbers": hostile(by={"ver": 5, "records": [{"_id": 1}], "all": True, "shown": [1 << 40]}),
    "digests without records": hostile(by={"ver": 5, "records": [], "all": True, "shown": [b"x"]}),
    "as deep as it goes": deep(20_000),
    "deep inside": nested(),
    "ids that are documents": bson.encode({"v": 1, "t": "c", "tenant": "evil", "qid": "q", "ids": [{"a": 1}, None, 5]}),
    "ids that are a number": bson.encode({"v": 1, "t": "c", "tenant": "evil", "qid": "q", "ids": 5}),
    "use without end": bson.encode({"v": 1, "t": "u", "tenant": "evil", "q": [["q", INF]], "r": [["x", NAN]]}),
    "use below zero": bson.encode({"v": 1, "t": "u", "tenant": "evil", "q": [["q", -(1 << 62)]], "r": []}),
    "use of nothing": bson.encode({"v": 1, "t": "u", "tenant": "evil", "q": [[None, None]], "r": 5}),
    "a fence of words": bson.encode({"v": 1, "t": "f", "g": "one"}),
    "a fence without end": bson.encode({"v": 1, "t": "f", "g": INF}),
    "taken over: nothing": bson.encode({"v": 1, "t": "t"}),
    "taken over: noise": encode_taken_over(b"noise", 5),
    "taken over: a lease without end": encode_taken_over(hostile(exp=INF), 5),
    "taken over: as of infinity": bson.encode({"v": 1, "t": "t", "as": INF, "r": hostile()}),
    "taken over: an id that is a number": encode_taken_over(hostile(id=5), 5),
    "a subscription of noise": bson.encode({"v": 1, "t": "s"}),
    "a subscription without end": bson.encode({**WELL, "t": "s", "query": QUERY, "exp": INF, "token": "x"}),
}


class Driven:
    """A cell that is driven by hand, on pipelines in memory."""

    def __init__(self) -> None:
        self.layer = MemoryEventLayer()
        self.after: dict[str, str] = {}
        self.write(5, 0)
        self.start()
        self.step()

    def start(self) -> None:
        self.node = MatchingNode(CELL, SHAPE, retention_ms=60_000)
        self.loop = CellLoop(
            self.node, self.layer, CELL, SHAPE, LoopContext(deployment=DEPLOYMENT, heartbeat_ms=1, retention_ms=60_000)
        )
        self.loop.start()

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.loop.parts.periodic.heartbeat_due_s = self.loop.parts.periodic.maintenance_due_s = 0.0
            self.loop.step()
        # A step ends after a tenth of a second, though the machine may have stood still.
        while self.loop.parts.query_intake.waiting:
            self.loop.step()

    def write(self, version: int, key: int, **fields: Any) -> None:
        image = AfterImage(
            namespace="db.c", kind=WriteKind.INSERT, version=version, key=key, after={"_id": key, **fields},
            after_exact=True, wall_ms=system_clock(),
        )  # fmt: skip
        tick = AfterImage(namespace="*", kind=WriteKind.TICK, version=version, wall_ms=system_clock())
        self.layer.append(streams.writes(DEPLOYMENT, 0), [encode_image(image), encode_image(tick)])

    def send(self, *payloads: bytes) -> None:
        self.layer.append(streams.queries(DEPLOYMENT, 0), list(payloads))

    def register(self, name: str, value: int, tenant: str = DEPLOYMENT) -> None:
        self.send(encode_query_event(registration(name, value, tenant)))

    def said(self, tenant: str | None = None) -> list[Notification]:
        stream = streams.notifications(DEPLOYMENT, tenant)
        entries = self.layer.read({stream: "0"}, count=100_000, block_ms=0)
        return [decode_notification(entry.payload) for entry in entries]

    def activated(self, tenant: str | None = None) -> set[str]:
        return {message.registration_id for message in self.said(tenant) if isinstance(message, Activated)}

    def refused(self, tenant: str | None = None) -> set[str]:
        return {message.registration_id for message in self.said(tenant) if isinstance(message, Refused)}

    def dead(self, tenant: str | None = None) -> set[str]:
        return {
            dead
            for message in self.said(tenant)
            if isinstance(message, Invalidated)
            for dead in message.registration_ids
        }


def registration(name: str, value: int, tenant: str = DEPLOYMENT, lease_ms: int = 600_000) -> Registration:
    return Registration(
        id=name, tenant=tenant, query_id=f"q-{value}",
        query=Query(namespace="db.c", operation=Operation.FIND, filter={"a": value}),
        since=5, read_at=5, members=(), last=None, expires_at_ms=system_clock() + lease_ms,
    )  # fmt: skip


@pytest.mark.parametrize("name", PAYLOADS)
def test_no_payload_stops_a_cell_nor_the_one_that_replaces_it(name: str) -> None:
    """Registrations of others before and behind the payload are activated, invalidated when they change,
    and found after a restart.
    """
    driven = Driven()
    driven.register("good:1", 1)
    driven.send(PAYLOADS[name])
    driven.register("good:2", 2)
    driven.step(3)
    assert driven.activated() >= {"good:1", "good:2"}
    driven.start()
    driven.write(6, 1, a=1)
    driven.step(3)
    driven.start()
    driven.write(7, 2, a=2)
    driven.step(3)
    assert driven.dead() >= {"good:1", "good:2"}


def test_no_payload_stops_a_resize() -> None:
    """A payload without meaning is left behind; registrations before and behind it are taken over."""
    driven = Driven()
    for number, payload in enumerate(PAYLOADS.values()):
        driven.register(f"good:{number}", number)
        driven.send(payload)
    driven.step(3)
    new = replace(SHAPE, generation=1)
    handover = GridHandover(
        driven.layer, new, [SHAPE], deployment=DEPLOYMENT, clock=system_clock, telemetry=Telemetry()
    )
    cell = CellLoop(
        MatchingNode(CELL, new, retention_ms=60_000),
        driven.layer,
        CELL,
        new,
        LoopContext(deployment=DEPLOYMENT, heartbeat_ms=1, retention_ms=60_000),
    )
    cell.start()
    cell.step()
    assert handover.begin()
    tick = AfterImage(namespace="*", kind=WriteKind.TICK, version=handover.as_of)
    driven.layer.append(streams.writes(DEPLOYMENT, 0, 1), [encode_image(tick)])
    handover.complete()
    for _ in range(3):
        cell.step()
    assert cell.parts.succession.joined
    image = AfterImage(namespace="db.c", kind=WriteKind.COLLECTION, version=9)
    driven.layer.append(streams.writes(DEPLOYMENT, 0, 1), [encode_image(image)])
    cell.step()
    assert driven.dead() >= {f"good:{number}" for number in range(len(PAYLOADS))}


def test_a_flood_that_cannot_be_read_does_not_stop_tenants_from_taking_turns() -> None:
    driven = Driven()
    driven.send(*list(PAYLOADS.values()) * 20)
    driven.register("good:1", 1)
    driven.step(20)
    assert "good:1" in driven.activated()


def test_nobody_cancels_what_is_anothers() -> None:
    driven = Driven()
    driven.register("good:1", 1)
    driven.register("shop~x:1", 2, "shop")
    driven.step()
    forged = Cancellation(tenant="evil", query_id="q-1", registration_ids=("good:1", "shop~x:1"))
    driven.send(encode_query_event(forged))
    driven.step()
    driven.write(6, 1, a=1)
    driven.write(7, 2, a=2)
    driven.step()
    assert driven.dead() == {"good:1"}
    assert driven.dead("shop") == {"shop~x:1"}


def test_nor_does_a_cell_that_takes_over_believe_it() -> None:
    driven = Driven()
    driven.register("good:1", 1)
    driven.send(encode_query_event(Cancellation(tenant="evil", query_id="q-1", registration_ids=("good:1",))))
    driven.step(2)
    driven.start()
    driven.write(6, 1, a=1)
    driven.step()
    assert driven.dead() == {"good:1"}


def test_an_id_that_is_taken_is_not_confirmed_for_another_query() -> None:
    """An attacker who guesses an id and registers it first, for a query that never changes,
    must not make its owner feel guarded.
    """
    driven = Driven()
    driven.register("good:1", 99)
    driven.register("good:1", 1)
    driven.step()
    assert driven.refused() == {"good:1"}


@pytest.mark.parametrize("tenant", ["shop", "", "d}", "a{b", "x" * 65])
def test_an_id_of_another_tenant_than_it_says_is_not_registered(tenant: str) -> None:
    driven = Driven()
    driven.register("evil~x:1", 1, tenant)
    driven.step()
    assert driven.node.registrations == 0


@pytest.mark.parametrize("tenant", ["", "a}", "{b", "a:b", "a b", "\n", "x" * 65, "a~b"])
def test_no_pipeline_is_made_for_a_tenant_that_cannot_be(tenant: str) -> None:
    driven = Driven()
    known = set(driven.layer._streams)
    driven.register(f"{tenant}~x:1", 1, tenant)
    driven.step()
    assert driven.node.registrations == 0
    assert set(driven.layer._streams) <= known | {streams.queries(DEPLOYMENT, 0)}


def test_a_lease_of_centuries_is_refused_and_does_not_keep_the_pipeline() -> None:
    """A tenant that holds shared entries for ever would fill the event layer."""
    driven = Driven()
    driven.send(encode_query_event(registration("good:1", 1, lease_ms=100 * 365 * 86_400_000)))
    driven.step(2)
    assert driven.refused() == {"good:1"}
    now_ms = system_clock()
    assert driven.loop.parts.leases.needed_since_ms(now_ms) == now_ms

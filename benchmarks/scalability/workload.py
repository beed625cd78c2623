"""The papers' workload (InvaliDB, PVLDB 2020, section 6.1), as payloads for the pipelines.

Records have five strings of ten letters and five integers, one of which, `random`, decides. Query k is
`{random: {$gte: 10 k, $lt: 10 k + 5}}`. Background queries are never matched: writes that match nothing fall between them.
A measured query is matched by exactly one write of one experiment; it has a number of its own above all others.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from quaestor.event_layer import streams
from quaestor.event_layer.codec import encode_image, encode_query_event
from quaestor.event_layer.partitioning import write_partition
from quaestor.event_layer.tenancy import origin_of
from quaestor.model import AfterImage, Cancellation, Operation, Query, Registration, WriteKind

MEASURED_AN_EXPERIMENT: Final = 1_000
"""At most."""
_FIRST_MEASURED: Final = 100_000_000
_STEP: Final = 10
_WIDTH: Final = 5
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_LEASE_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Collections:
    """Everything is spread evenly over `count` collections, each of a tenant of its own, with its own notification pipeline."""

    count: int = 1

    def tenant(self, number: int) -> str:
        return f"app{number % self.count}"

    def namespace(self, number: int) -> str:
        return f"bench{self.count}.records{number % self.count}"


def measured_number(experiment: int, index: int) -> int:
    """The query of this number is matched by one write of this experiment."""
    return _FIRST_MEASURED + experiment * MEASURED_AN_EXPERIMENT + index


def registration_id(number: int, collections: Collections) -> str:
    return f"{origin_of(collections.tenant(number), '', f'bench{collections.count}')}:{number}"


def notification_pipelines(deployment: str, collections: Collections) -> list[str]:
    """Where the notifications of all these tenants are read."""
    return [streams.notifications(deployment, collections.tenant(number)) for number in range(collections.count)]


def query_id(number: int, collections: Collections) -> str:
    return f"{collections.count:08x}{number:024x}"


def now_version() -> int:
    """A cluster time as MongoDB would give it now."""
    return int(time.time()) << 32


def registration(
    number: int, collections: Collections, *, since: int, condition: dict[str, object] | None = None
) -> bytes:
    """For a query pipeline. Leases end spread over an hour, as estimated lifetimes do.

    condition: instead of the papers' range.
    """
    return encode_query_event(
        Registration(
            id=registration_id(number, collections),
            tenant=collections.tenant(number),
            query_id=query_id(number, collections),
            query=Query(
                namespace=collections.namespace(number),
                operation=Operation.FIND,
                filter=condition or {"random": {"$gte": number * _STEP, "$lt": number * _STEP + _WIDTH}},
            ),
            since=since,
            read_at=since,
            members=(-number,),
            last=None,
            expires_at_ms=int(time.time() * 1000) + _LEASE_MS + number * 7919 % _LEASE_MS,
        )
    )


def cancellations(numbers: range, collections: Collections) -> list[bytes]:
    """For every query pipeline: one of each tenant."""
    return [
        encode_query_event(
            Cancellation(
                tenant=collections.tenant(some[0]),
                query_id=query_id(some[0], collections),
                registration_ids=tuple(registration_id(number, collections) for number in some),
            )
        )
        for first in range(collections.count)
        if (some := numbers[first :: collections.count])
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One experiment's writes. measured: how many of them match a query; they are spread evenly."""

    experiment: int
    rate_hz: int
    seconds: float
    background: int
    write_partitions: int
    collections: Collections
    measured: int = MEASURED_AN_EXPERIMENT

    @property
    def writes(self) -> int:
        return int(self.rate_hz * self.seconds)


@dataclass(slots=True)
class Write:
    """measured: the index of the query it matches, -1: none."""

    partition: int
    payload: bytes
    measured: int


def records(load: Load) -> Iterator[tuple[int, dict[str, object], int]]:
    """All records of an experiment in order: (query whose neighbourhood it falls into, record, measured index or -1)."""
    random = Random(load.experiment)
    first_key = load.experiment * 10_000_000
    strings = ["".join(random.choices(_LETTERS, k=10)) for _ in range(997)]
    every = load.writes / load.measured
    due, measured = every / 2, 0
    for number in range(load.writes):
        hit = measured < load.measured and number >= due
        if hit:
            which = measured_number(load.experiment, measured)
            value = which * _STEP + random.randrange(_WIDTH)
            measured, due = measured + 1, due + every
        else:
            which = random.randrange(load.background)
            value = which * _STEP + _WIDTH + random.randrange(_STEP - _WIDTH)
        record: dict[str, object] = {"_id": first_key + number}
        for field in range(5):
            record[f"s{field}"] = strings[(number * 5 + field) % 997]
        for field in range(4):
            record[f"i{field}"] = random.randrange(1_000_000_000)
        record["random"] = value
        yield which, record, measured - 1 if hit else -1


def writes(load: Load, *, start_ms: int) -> Iterator[Write]:
    """All of them, in order, dated as they will be sent from start_ms on; made before anything is measured."""
    seconds = start_ms // 1000
    for number, (which, record, measured) in enumerate(records(load)):
        image = AfterImage(
            namespace=load.collections.namespace(which),
            kind=WriteKind.INSERT,
            version=((seconds + number // load.rate_hz) << 32) + number % load.rate_hz + 1,
            key=record["_id"],
            after=record,
            after_exact=True,
            before_known=True,
            wall_ms=start_ms + int(number * 1000 / load.rate_hz),
        )
        yield Write(write_partition(image.key, load.write_partitions), encode_image(image), measured)


def tick() -> bytes:
    """Ingest's regular message: everything up to here has been appended."""
    moment_ms = int(time.time() * 1000)
    version = max(now_version() - (1 << 32), 1)
    return encode_image(AfterImage(namespace="*", kind=WriteKind.TICK, version=version, wall_ms=moment_ms))

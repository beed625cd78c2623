"""Early writes against a real mongod: in any order of overtaking, an answer that is not invalidated reads the same.

Random bursts of writes come ahead of their turn, all of them or some, and later in order, in slices. Between the
slices, answers are read and registered, dated by the newest write that the node has reported.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pymongo
import pytest

from quaestor.event_layer.partitioning import record_key
from quaestor.invalidation.ingest.record_lookup import RecordLookup, completed, needs_record
from quaestor.model import AfterImage, Invalidated
from tests.oracle import node_generator
from tests.oracle.node_world import MARKS, ImageSource, World, populated

QUERIES = 30
BURSTS = 25
SEEDS = (1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 13)))


@pytest.mark.parametrize("source", [ImageSource.IMAGES, ImageSource.LOOK_UPS])
@pytest.mark.parametrize("seed", SEEDS)
def test_an_answer_that_no_early_write_invalidates_reads_the_same(
    mongo_url: str, prefix: str, seed: int, source: ImageSource
) -> None:
    """If every write comes early, nothing is left for its turn; if some are missing, the turn makes up for them."""
    rng = random.Random(seed)
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        database = client[prefix]
        try:
            world = World(populated(database, source, rng), source, rng)
            with world.watch() as stream:
                invalidated = sum(_burst(world, stream, mark) for mark in range(BURSTS))
        finally:
            client.drop_database(prefix)
    assert invalidated > BURSTS


def _burst(world: World, stream: Any, mark: int) -> int:
    """One backlog, from its first write until it is worked off. Returns how many answers the early writes ended."""
    rng, backlog, ended = world.rng, list[AfterImage](), 0
    for part in range(rng.randrange(1, 4)):
        while len(world.kept) < QUERIES:
            world.register(raced=True)
        for _ in range(rng.randrange(1, 6)):
            node_generator.write(rng, world.records)
        if rng.random() < 0.5:
            world.register(raced=True)  # read here, registered before the node has heard of any of these writes
        world.records.database[MARKS].insert_one({"_id": f"{mark} {part}"})
        images = _looked_up(world, list(_images(world, stream, f"{mark} {part}")))
        missing = rng.random() < 0.2
        early = [image for image in images if not missing or rng.random() < 0.5]
        ended += _overtake(world, early)
        backlog += images
        if not missing:
            _check(world)
        else:
            _in_turn(world, backlog, len(backlog))
            _check(world)
        _in_turn(world, backlog, rng.randrange(len(backlog) + 1))
    _in_turn(world, backlog, len(backlog))
    _check(world)
    return ended


def _images(world: World, stream: Any, mark: str) -> Iterator[AfterImage]:
    for event in stream:
        yield from world._images(event)
        if event["ns"].get("coll") == MARKS and event["documentKey"]["_id"] == mark:
            return


def _looked_up(world: World, images: list[AfterImage]) -> list[AfterImage]:
    """The images with the records that they lack, as ingest reads them."""
    lookup = RecordLookup()
    for image in filter(needs_record, images):
        lookup.want(image.namespace, record_key(image.key), image.version)
    lookup.read(world.records.database.client)
    return [completed(image, lookup) for image in images]


def _overtake(world: World, images: list[AfterImage]) -> int:
    ended = 0
    for image in images:
        for outcome in world.guard.overtake(image):
            _forget(world, outcome)
            ended += 1
    return ended


def _in_turn(world: World, backlog: list[AfterImage], number: int) -> None:
    """Hand the first writes of the backlog to the node."""
    for outcome in world.guard.process(backlog[:number]):
        _forget(world, outcome)
    del backlog[:number]


def _forget(world: World, outcome: Invalidated) -> None:
    for registration_id in outcome.registration_ids:
        world.kept.pop(registration_id, None)


def _check(world: World) -> None:
    """Nothing that is not invalidated has changed; whether an invalidation was needed is asked elsewhere."""
    world.fired.clear()
    world.check()

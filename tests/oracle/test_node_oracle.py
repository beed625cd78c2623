"""The node against a real mongod: a query without a notification would read the same again.

Random queries are read and registered as an application's are. Random writes come back through the real change stream,
with and without pre- and post-images. After every write, each live registration's query is run again.
Where every image is known, no write invalidates an exact query whose answer it leaves unchanged.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pymongo
import pytest

from tests.oracle import node_generator
from tests.oracle.node_world import MARKS, ImageSource, World, populated

QUERIES = 30
WRITES = 60
SLOW_WRITES = 250
SEEDS = (1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12)))


@pytest.mark.parametrize("source", ImageSource)
@pytest.mark.parametrize("seed", SEEDS)
def test_results_that_are_not_invalidated_read_the_same(
    mongo_url: str, prefix: str, seed: int, source: ImageSource
) -> None:
    rng = random.Random(seed)
    writes = WRITES if seed == 1 else SLOW_WRITES
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        database = client[prefix]
        try:
            records = populated(database, source, rng)
            world = World(records, source, rng)
            with world.watch() as stream:
                for mark in range(writes):
                    while len(world.kept) < QUERIES:
                        world.register()
                    node_generator.write(rng, records)
                    if rng.random() < 0.3:
                        world.register(raced=True)  # read before, registered before the node has heard of the write
                    database[MARKS].insert_one({"_id": mark})
                    world.deliver(_up_to(stream, mark))
                    world.check()
        finally:
            client.drop_database(prefix)
    assert world.right > writes / 4


def _up_to(stream: Any, mark: int) -> Iterator[Any]:
    """Every event up to the insertion of this mark."""
    for event in stream:
        yield event
        if event["ns"].get("coll") == MARKS and event["documentKey"]["_id"] == mark:
            return

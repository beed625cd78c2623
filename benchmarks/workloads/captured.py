"""Needless evictions of captured reads, shape by shape: real commands, views, indexes; one write, then every answer is judged."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

import pymongo

from benchmarks.setups.judging import captured_shapes as shapes
from benchmarks.setups.judging.captured_world import CapturedWorld

OF_EACH_SHAPE: Final = 2
_KINDS: Final[Mapping[str, Mapping[str, shapes.Make]]] = {"exact": shapes.EXACT, "widened": shapes.WIDENED}


def results(
    url: str, client: pymongo.MongoClient[dict[str, Any]], database: str, *, writes: int, seed: int
) -> dict[str, Any]:
    """The figures by kind of plan, by what is known of a write, and whether queries are run again before anything is evicted."""
    values: dict[str, Any] = {}
    for kind, named in _KINDS.items():
        for images in (True, False):
            for contributors in (True, False):
                for recheck in ("auto", "off"):
                    name = ", ".join(
                        (
                            "with images" if images else "without images",
                            "contributors known" if contributors else "contributors not read yet",
                            "rechecked" if recheck == "auto" else "not rechecked",
                        )
                    )
                    client.drop_database(database)
                    items = shapes.populate(client[database], random.Random(seed), images=images, indexes=True)
                    world = CapturedWorld(url, items, contributors=contributors, recheck=recheck)
                    try:
                        values.setdefault(kind, {})[name] = _run(world, items, named, writes=writes, seed=seed)
                    finally:
                        client.drop_database(database)
    return values


def _run(
    world: CapturedWorld, items: Any, named: Mapping[str, shapes.Make], *, writes: int, seed: int
) -> dict[str, Any]:
    rng = random.Random(seed)
    with world:
        for shape, make in named.items():
            for _ in range(OF_EACH_SHAPE):
                world.cache(shape, make(rng))
        writer = shapes.Writer(items, rng)
        for write, images in world.written(writer.write, times=writes):
            world.deliver(images, write)
    evicted, vain = world.evicted.total(), world.vain.total()
    return {
        "missed": world.missed.total(),
        "evictions": evicted,
        "in_vain": vain,
        "share": round(vain / evicted, 4) if evicted else 0.0,
        "rechecked": world.rechecked.total(),
        "kept": world.kept.total(),
        "by_shape": {
            shape: [world.vain[shape, exact], number] for (shape, exact), number in sorted(world.evicted.items())
        },
    }

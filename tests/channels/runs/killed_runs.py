"""Feed and runs of a channel, killed at each durable step: a program that forks, kills its child at one `fsync`, and goes on.

Prints one JSON object: by kill, the records that the subscriber has in the end, and those of each run's page.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from functools import partial
from pathlib import Path

from quaestor.channels.datasets import Dataset, Position
from quaestor.channels.rewriting.compilation import compile_channel
from quaestor.channels.rewriting.definition import ChannelDefinition, Parameter, Shape
from quaestor.channels.runs.run import create_tables
from quaestor.channels.runs.stored_pages import StoredPages
from tests.channels.world import TWEETS, World
from tests.continuous.runs.killed_at_each_step import in_child, kill_at

LOCAL = ChannelDefinition(
    name="c",
    body="SELECT t.tid FROM Tweets t WHERE is_new(t) AND t.area_code = area",
    parameters=(Parameter("area"),),
)


def prepare(folder: Path) -> None:
    """Make a dataset, a channel and a subscription, with a first batch and run."""
    world = World(folder)
    Dataset.create(world.catalogue, "Tweets", TWEETS)
    create(world)
    world.subscribe("A")
    feed_and_run(world, 1)


def create(world: World) -> None:
    """Make the channel of the program, or compile it again in another process."""
    world.channels["c"] = compile_channel(LOCAL, world.shapes())
    if "c_results" not in world.catalogue.names():
        create_tables(world.catalogue, world.channels["c"])


def work(folder: Path) -> None:
    """Feed the second batch and run the channel, from wherever the process before was."""
    world = World(folder)
    create(world)
    feed_and_run(world, 2)


def feed_and_run(world: World, batch: int) -> None:
    """Write a batch of a feed, and run the channel after it."""
    world.now = batch * 10 - 5
    records = [{"tid": batch * 10 + number, "area_code": "A"} for number in range(2)]
    world.dataset("Tweets").insert(records, feed=Position("f", batch, str(batch)))
    world.run(at=batch * 10)


def keep_state(folder: Path) -> None:
    """Write the deliveries for the parent."""
    world = World(folder)
    create(world)
    pages = StoredPages(world.catalogue).after("c", "b", 0, 1000)
    state = {
        "delivered": [record["tid"] for _, record in world.delivered()],
        "runs": [page.run for page in pages],
        "records": len(world.dataset("Tweets").records()),
    }
    folder.with_suffix(".state").write_text(json.dumps(state))


def strike(prepared: Path, folder: Path, step: int) -> bool:
    """Kill a process that works in a copy of a folder at a step; return whether it came that far."""
    shutil.copytree(prepared, folder)

    def struck() -> None:
        kill_at(step)
        work(folder)

    status = in_child(struck)
    assert status == 0 or os.WIFSIGNALED(status), status
    return status != 0


def go_on(folder: Path) -> None:
    """Work as the process after the killed one."""
    work(folder)
    keep_state(folder)


def main(root: Path) -> None:
    """Kill at each step, and let another process go on, until a process ends by itself."""
    compile_channel(LOCAL, {"Tweets": Shape(TWEETS)})  # loads in the parent what every child would load
    ended = []
    assert in_child(partial(prepare, root / "prepared")) == 0
    step = 1
    while strike(root / "prepared", folder := root / str(step), step):
        assert in_child(partial(go_on, folder)) == 0
        ended.append(json.loads(folder.with_suffix(".state").read_text()))
        step += 1
    print(json.dumps(ended))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Feed from a file, killed at each durable step: a program that forks, kills its child at one `fsync`, and goes on.

Prints one JSON object for each kill: the records and the dead letters in the end.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path

from quaestor.channels.feeds.sources import FileSource
from tests.channels.feeds.world import World
from tests.continuous.runs.killed_at_each_step import in_child, kill_at


def prepare(folder: Path) -> None:
    """Make a feed whose file has a repeated key in its second batch, and a rest behind it."""
    world = World(folder, partitions=2)
    world.define(type="files", path="x")
    numbers = [1, 2, 3, 1, 4]
    (folder / "x").write_text("".join(json.dumps({"id": number, "text": "a"}) + "\n" for number in numbers))


def work(folder: Path, most: int) -> None:
    """Read the file to its end. most: records of a batch; another process may take larger batches."""
    feed, source = World(folder).feed(), FileSource(folder / "x")
    while feed.step(source, most):
        pass


def keep_state(folder: Path) -> None:
    """Write the state for the parent."""
    world = World(folder)
    letters = [json.loads(data)["id"] for data, _ in world.letters()]
    rows = sorted(row["id"] for row in world.notes.records())
    instants = sum(file.rows for table in world.notes.partitions for file in table.snapshot().files.values())
    (folder / "state").write_text(json.dumps({"records": rows, "letters": letters, "stored": instants}))


def strike(folder: Path, step: int) -> bool:
    """Prepare a folder, and kill a process that works in it at a step; return whether it came that far."""
    folder.mkdir()
    assert in_child(partial(prepare, folder)) == 0

    def struck() -> None:
        kill_at(step)
        work(folder, 2)

    status = in_child(struck)
    assert status == 0 or os.WIFSIGNALED(status), status
    return status != 0


def main(root: Path) -> None:
    """Kill at each step, and let another process go on, until a process ends by itself."""
    step = 1
    while strike(folder := root / str(step), step):
        assert in_child(partial(work, folder, 5)) == 0
        assert in_child(partial(keep_state, folder)) == 0
        print((folder / "state").read_text())
        step += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]))

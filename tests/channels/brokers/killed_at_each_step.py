"""Delivery to a broker, killed at each durable step: a program that forks, kills its child at one `fsync`, and goes on.

Arguments: folder, port of the broker. The broker sees the number of the step as the path. Prints the number of kills.
"""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from pathlib import Path

from tests.channels.brokers.world import KEY, World
from tests.continuous.runs.killed_at_each_step import in_child, kill_at

RUNS = 2


def prepare(folder: Path, port: int, step: int) -> None:
    """Make three runs for one broker."""
    world = World(folder)
    url = f"http://127.0.0.1:{port}/{step}"
    world.brokers.register("a", url, options={"key": KEY, "lease": "PT1H"})
    for number in range(1, RUNS + 1):
        world.run(number, ("a", ["s"], number))


def work(folder: Path) -> None:
    """Deliver what is missing, a quarter of the lease later."""
    world = World(folder, attempts=1)
    world.clock.ms += 1_000_000
    asyncio.run(world.delivery.deliver("offers", push=True))


def strike(folder: Path, port: int, step: int) -> bool:
    """Prepare a folder, and kill a process that delivers from it at a step; return whether it came that far."""
    folder.mkdir()
    assert in_child(partial(prepare, folder, port, step)) == 0

    def struck() -> None:
        kill_at(step)
        work(folder)

    status = in_child(struck)
    assert status == 0 or os.WIFSIGNALED(status), status
    return status != 0


def main(root: Path, port: int) -> None:
    """Kill at each step, and let another process go on, until a process ends by itself."""
    step = 1
    while strike(folder := root / str(step), port, step):
        assert in_child(partial(work, folder)) == 0
        step += 1
    print(step - 1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

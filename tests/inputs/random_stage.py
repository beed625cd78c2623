"""A stage for stories: their world in a thread with a loop of its own, for tests that are no coroutines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

from anyio.from_thread import start_blocking_portal

from tests.inputs.random_handlers import Story
from tests.inputs.random_world import World


class Stage:
    """A world in a thread with a loop of its own."""

    def __init__(self, world: World, portal: Any) -> None:
        self.world = world
        self._portal = portal

    def play(self, story: Story) -> None:
        self._portal.call(self.world.play, story)


@contextmanager
def stage(world: Any, *args: Any, **settings: Any) -> Iterator[Stage]:
    """A stage, whose world is made and closed in its own loop. world: the class."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(_opened(partial(world, *args, **settings))) as made,
    ):
        yield Stage(made, portal)


@asynccontextmanager
async def _opened(make: Any) -> AsyncIterator[World]:
    world = make()
    try:
        await world.open()
        yield world
    finally:
        await world.close()

"""Service of channels in an application: runs, deliveries and feeds. The libraries are loaded once there is a definition."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from quaestor.errors import ConfigurationError
from quaestor.runtime.parts import Parts
from quaestor.runtime.services import Stop, nothing

_DEFINITIONS: Final = "_definitions"
"""Folder that the first definition makes (quaestor/channels/definitions.py)."""
_LOOK_S: Final = 1.0


async def channels(parts: Parts) -> Stop:
    """Channels and feeds below `continuous_folder`, in one of the processes that share the folder; posts in each of them.

    Raises ConfigurationError for a route of feeds without a folder.
    """
    folder = parts.process.settings.continuous.continuous_folder
    if not folder:
        if parts.channels.takes_posts:
            raise ConfigurationError("feeds need a folder: set continuous_folder (QUAESTOR_CONTINUOUS_FOLDER)")
        return nothing

    async def run() -> None:
        await _defined(Path(folder))
        running = await asyncio.to_thread(parts.channels.running)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(running.keep_running(parts.channels.published))
            if parts.channels.takes_posts:
                tasks.create_task(running.posts.keep_running())

    return parts.process.supervisor.keep("channels", run).aclose


async def _defined(folder: Path) -> None:
    """Wait until there is a definition."""
    while True:
        if await asyncio.to_thread((folder / _DEFINITIONS).exists):
            return
        await asyncio.sleep(_LOOK_S)

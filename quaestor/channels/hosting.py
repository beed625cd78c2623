"""Hosting of channels in a process: the service under the lock of its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from quaestor.channels.service import ChannelParts, ChannelService
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.continuous.folder_lock import folder_lock

_LOCK: Final = ".channels"
_AGAIN_S: Final = 1.0


def executor_of_channel(channel: str) -> DuckDbExecutor:
    """Return an executor in this process for one channel: a slow channel delays no other."""
    return DuckDbExecutor(threads=1)


async def hosted(folder: Path, parts: ChannelParts) -> None:
    """Run the channels of a folder until cancelled, as soon as no other process does. Raises nothing that a channel can cause."""
    while True:
        with folder_lock(folder, _LOCK) as is_ours:
            if is_ours:
                parts.telemetry.event("channels.began", folder=str(folder))
                await ChannelService(parts).keep_running()
        await parts.pause(_AGAIN_S)

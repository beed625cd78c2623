"""Hosting of channels in a process: channels, feeds, retention and periodic procedures, under the lock of their folder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from quaestor.channels.brokers.health import BrokerHealth, HealthParts
from quaestor.channels.feeds.service import FeedParts, FeedService
from quaestor.channels.procedure_service import ProcedureParts, ProcedureService
from quaestor.channels.retention import Retention, RetentionParts
from quaestor.channels.service import ChannelParts, ChannelService
from quaestor.continuous.executors.choice import executor_of
from quaestor.continuous.executors.executor import Executor
from quaestor.continuous.folder_lock import folder_lock
from quaestor.settings.continuous import ContinuousSettings

_LOCK: Final = ".channels"
_AGAIN_S: Final = 1.0
_LOOK_S: Final = 1.0


def is_hosted(folder: Path) -> bool:
    """Whether a process runs the channels of a folder at present."""
    with folder_lock(folder, _LOCK) as is_ours:
        return not is_ours


def executors_of(settings: ContinuousSettings) -> Callable[[str], Executor]:
    """Return a function that makes the executor of one channel, as the settings choose it. Spark starts at the first run.

    A slow channel delays no other channel.
    """
    limit_s = settings.continuous_limit_s
    return lambda _: executor_of(
        settings.continuous_executor, settings.continuous_spark_master, limit_s=limit_s, threads=1
    )


async def hosted(
    folder: Path,
    parts: ChannelParts,
    feeds: FeedParts | None = None,
    retention: RetentionParts | None = None,
    procedures: ProcedureParts | None = None,
    health: HealthParts | None = None,
) -> None:
    """Run the channels and feeds of a folder until cancelled, as soon as no other process does.

    feeds: None: no feeds run.
    retention: None: nothing is dropped.
    procedures: None: no procedure is repeated.
    health: None: no broker is checked.

    Raises nothing that a channel or a feed can cause.
    """
    while True:
        with folder_lock(folder, _LOCK) as is_ours:
            if is_ours:
                parts.telemetry.event("channels.began", folder=str(folder))
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(ChannelService(parts, look_s=_LOOK_S).keep_running())
                    if feeds is not None:
                        tasks.create_task(FeedService(feeds, look_s=_LOOK_S).keep_running())
                    if retention is not None:
                        tasks.create_task(Retention(retention).keep_running())
                    if procedures is not None:
                        tasks.create_task(ProcedureService(procedures, look_s=_LOOK_S).keep_running())
                    if health is not None:
                        tasks.create_task(BrokerHealth(health).keep_running())
        await parts.pause(_AGAIN_S)

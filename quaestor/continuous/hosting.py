"""Hosting of continuous queries in a process: the parts from the settings, and the service under the lock of its folder."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache, partial
from pathlib import Path
from typing import Final

from quaestor.clock import Clock, system_clock
from quaestor.continuous.administration import Administration
from quaestor.continuous.announcements import unheard
from quaestor.continuous.delivery.addresses import sink_of
from quaestor.continuous.delivery.courier import Courier
from quaestor.continuous.delivery.dead_letters import DeadLetters
from quaestor.continuous.delivery.sink import Sink
from quaestor.continuous.executors.choice import executor_of
from quaestor.continuous.folder_lock import folder_lock
from quaestor.continuous.functions import PREFIX, DeclaredQueries
from quaestor.continuous.service import ContinuousService, ServiceParts
from quaestor.continuous.sql_engine import SqlEngine
from quaestor.errors import ConfigurationError
from quaestor.observability.telemetry import Telemetry
from quaestor.settings.continuous import ContinuousSettings
from quaestor.tables.catalogue import Catalogue

_LOCK: Final = ".runner"
_AGAIN_S: Final = 1.0
_LOOK_S: Final = 1.0


def administration_of(settings: ContinuousSettings, *, clock: Clock = system_clock) -> Administration:
    """Return the administration of the folder in the settings. Raises ConfigurationError if there is none."""
    if not settings.continuous_folder:
        raise ConfigurationError("no folder of continuous queries: set continuous_folder (QUAESTOR_CONTINUOUS_FOLDER)")
    catalogue = Catalogue(Path(settings.continuous_folder), clock=clock)
    executor = executor_of(
        settings.continuous_executor, settings.continuous_spark_master, limit_s=settings.continuous_limit_s
    )
    return Administration(settings, catalogue, SqlEngine(catalogue, executor), clock=clock)


def sinks_of(settings: ContinuousSettings, declared: DeclaredQueries | None) -> Callable[[str], Sink | None]:
    """Return the function that returns the sink of an address. See ServiceParts."""

    @cache
    def file_sink(address: str) -> Sink:
        return sink_of(address, settings)  # a sink reads its file once, then what is new

    def sink(address: str) -> Sink | None:
        if address.startswith(PREFIX):
            return None if declared is None else declared.sink_of(address)
        return file_sink(address) if address.startswith("file:") else sink_of(address, settings)

    return sink


async def hosted(
    administration: Administration,
    telemetry: Telemetry,
    *,
    declared: DeclaredQueries | None = None,
    clock: Clock = system_clock,
    published: Callable[[str], Awaitable[object]] | None = None,
) -> None:
    """Run the queries of a folder until cancelled, as soon as no other process does. Raises DependencyError.

    declared: queries of this application, installed at the beginning.
    published: see ServiceParts.
    """
    settings, catalogue = administration.settings, administration.catalogue
    folder = Path(settings.continuous_folder)

    administration.engine.orders.report = partial(telemetry.failure, "continuous", "continuous.order_broken")
    if declared is not None:
        await asyncio.to_thread(declared.install, administration.installed, now=clock() * 1_000)
    service = ContinuousService(
        ServiceParts(
            catalogue=catalogue,
            installed=administration.installed,
            engine=administration.engine,
            courier=Courier(DeadLetters(catalogue.root), telemetry, attempts=settings.delivery_attempts),
            sink_of=sinks_of(settings, declared),
            telemetry=telemetry,
            clock=clock,
            published=published or unheard,
        ),
        look_s=_LOOK_S,
    )
    while True:
        with folder_lock(folder, _LOCK) as is_ours:
            if is_ours:
                telemetry.event("continuous.began", folder=str(folder))
                await service.keep_running()
        await asyncio.sleep(_AGAIN_S)

"""Services of continuous queries in an application: their runs, and the filling of their tables."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from quaestor.capture.clients import WatchClient
from quaestor.errors import ConfigurationError
from quaestor.runtime.parts import Parts
from quaestor.runtime.services import Stop, nothing

if TYPE_CHECKING:
    from quaestor.settings import Settings
    from quaestor.tables.filled import FilledTable


async def continuous_queries(parts: Parts) -> Stop:
    """Runs of the queries below `continuous_folder`, in one of the processes that share the folder.

    Raises ConfigurationError for declared queries or filled tables without a folder, and for a malformed declaration.
    """
    settings = parts.process.settings.continuous
    filled = _filled(parts.process.settings)
    if not settings.continuous_folder:
        if parts.continuous.declared:
            raise ConfigurationError(
                f"the continuous query {parts.continuous.declared[0].name!r} needs a folder: set continuous_folder"
            )
        return nothing
    from quaestor.continuous.functions import DeclaredQueries
    from quaestor.continuous.hosting import hosted

    declared = DeclaredQueries()
    for query in parts.continuous.declared:
        declared.add(query.text, every=query.every, name=query.name, at_most=query.at_most, function=query.function)
    administration = await asyncio.to_thread(parts.continuous.administration)
    if filled:
        from quaestor.tables.filling import create_declared

        await asyncio.to_thread(create_declared, filled, administration.catalogue)
    run = partial(
        hosted, administration, parts.process.telemetry,
        declared=declared, clock=parts.process.clock, published=parts.continuous.published,
    )  # fmt: skip
    return parts.process.supervisor.keep("continuous", run).aclose


async def table_filling(parts: Parts, client: WatchClient) -> Stop:
    """Filling of tables from the collections in `filled_tables`, in one process of the deployment."""
    settings, process = parts.process.settings, parts.process
    tables = _filled(settings)
    if not tables:
        return nothing
    from quaestor.tables.catalogue import Catalogue
    from quaestor.tables.filling import LEASE_S, Filling, FillingParts

    lease = None
    if settings.redis_url is not None:
        from quaestor.runtime.shared_services import filling_lease  # drivers of Redis: see parts

        lease = filling_lease(settings.redis_url, settings.deployment, lease_s=LEASE_S)
    filling = Filling(
        tables,
        FillingParts(
            client=client,
            catalogue=Catalogue(Path(settings.continuous.continuous_folder), clock=process.clock),
            telemetry=process.telemetry,
            supervisor=process.supervisor,
            held=(lambda: True) if lease is None else lease.held,
            keep_days=settings.tables.table_days,
            clock=process.clock,
        ),
    )
    thread = process.supervisor.thread("filling", filling.run)

    async def stop() -> None:
        await thread.aclose()
        if lease is not None:
            await asyncio.to_thread(lease.end)

    return stop


def _filled(settings: Settings) -> tuple[FilledTable, ...]:
    if not settings.tables.filled_tables:
        return ()
    from quaestor.tables.filled import filled_tables

    tables = filled_tables(settings.tables.filled_tables)
    if not settings.continuous.continuous_folder:
        raise ConfigurationError("filled_tables needs a folder: set continuous_folder (QUAESTOR_CONTINUOUS_FOLDER)")
    return tables

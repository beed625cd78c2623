"""Service of continuous queries in an application."""

from __future__ import annotations

import asyncio
from functools import partial

from quaestor.errors import ConfigurationError
from quaestor.runtime.parts import Parts
from quaestor.runtime.services import Stop


async def continuous_queries(parts: Parts) -> Stop:
    """Runs of the queries below `continuous_folder`, in one of the processes that share the folder.

    Raises ConfigurationError for declared queries without a folder, or a malformed declaration.
    """
    settings = parts.process.settings.continuous
    if not settings.continuous_folder:
        if parts.continuous.declared:
            raise ConfigurationError(
                f"the continuous query {parts.continuous.declared[0].name!r} needs a folder: set continuous_folder"
            )
        return _nothing
    from quaestor.continuous.functions import DeclaredQueries
    from quaestor.continuous.hosting import hosted

    declared = DeclaredQueries()
    for query in parts.continuous.declared:
        declared.add(query.text, every=query.every, name=query.name, at_most=query.at_most, function=query.function)
    administration = await asyncio.to_thread(parts.continuous.administration)
    run = partial(hosted, administration, parts.process.telemetry, declared=declared, clock=parts.process.clock)
    return parts.process.supervisor.keep("continuous", run).aclose


async def _nothing() -> None:
    """End a service that was not begun."""

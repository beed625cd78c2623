"""Administration of channels: the interpreter of statements over the folder in the settings."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from quaestor.channels.brokers.registry import Brokers
from quaestor.channels.definitions import Definitions
from quaestor.channels.feeds.definitions import Feeds
from quaestor.channels.interpreter import Interpreter
from quaestor.channels.parts import StatementParts
from quaestor.channels.procedures import Procedures
from quaestor.channels.quotas import SubscriptionCounts
from quaestor.channels.registries import Analyst
from quaestor.channels.runs.queries import Queries
from quaestor.clock import Clock, system_clock
from quaestor.continuous.delivery.networks import Networks
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.errors import ConfigurationError
from quaestor.settings.continuous import ContinuousSettings
from quaestor.tables.catalogue import Catalogue

QUERY_LIMIT_S: Final = 60.0
"""Longest time of a query of an analyst, by default: analysts of one process take turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Channels:
    """Channels of one folder."""

    interpreter: Interpreter
    parts: StatementParts
    brokers: Brokers
    feeds: Feeds


class TurnTaking:
    """Queries of analysts from several threads take turns."""

    def __init__(self, queries: Analyst) -> None:
        self._queries = queries
        self._lock = threading.Lock()

    def rows(self, text: str) -> Any:
        """Return the rows of a query as an Arrow table. Raises QueryRefusedError, DependencyError."""
        with self._lock:
            return self._queries.rows(text)


def channels_of(
    settings: ContinuousSettings, *, clock: Clock = system_clock, query_limit_s: float = QUERY_LIMIT_S
) -> Channels:
    """Return the channels of the folder in the settings. Raises ConfigurationError if there is none.

    query_limit_s: longest time of a query of an analyst.
    """
    if not settings.continuous_folder:
        raise ConfigurationError("no folder of datasets: set continuous_folder (QUAESTOR_CONTINUOUS_FOLDER)")
    catalogue = Catalogue(Path(settings.continuous_folder), clock=clock)
    brokers = Brokers(catalogue.root, networks=Networks(settings.webhook_networks), clock=clock)
    feeds = Feeds(catalogue.root, clock=clock)
    parts = StatementParts(
        catalogue=catalogue,
        definitions=Definitions(catalogue.root, clock=clock),
        brokers=brokers,
        feeds=feeds,
        analyst=TurnTaking(Queries(catalogue, DuckDbExecutor(limit_s=query_limit_s), clock=clock)),
        counts=SubscriptionCounts(catalogue),
        procedures=Procedures(catalogue.root, clock=clock),
        python_modules=settings.function_modules,
    )
    return Channels(interpreter=Interpreter(parts), parts=parts, brokers=brokers, feeds=feeds)

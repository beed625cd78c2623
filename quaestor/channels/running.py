"""Running of channels in a process: runs, deliveries and feeds of a folder, and the results for readers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from quaestor.channels.administration import Channels
from quaestor.channels.brokers.acknowledgements import Acknowledgements
from quaestor.channels.brokers.delivery import BrokerDelivery, DeliveryParts, letters_of
from quaestor.channels.brokers.health import HealthParts
from quaestor.channels.brokers.serving import ServedResults
from quaestor.channels.definitions import Definitions
from quaestor.channels.feeds.definitions import SOURCES
from quaestor.channels.feeds.enrichment import PythonEnrichment
from quaestor.channels.feeds.feed import Enrichment
from quaestor.channels.feeds.service import FeedParts, FeedService
from quaestor.channels.feeds.sql_enrichment import SqlEnrichment
from quaestor.channels.hosting import executors_of, hosted
from quaestor.channels.procedure_service import ProcedureParts
from quaestor.channels.retention import RetentionParts
from quaestor.channels.rewriting.definition import Parameter
from quaestor.channels.runs.stored_pages import StoredPages
from quaestor.channels.service import ChannelParts
from quaestor.channels.statements.model import CreateFunction, Kind
from quaestor.clock import Clock, system_clock
from quaestor.continuous.announcements import unheard
from quaestor.continuous.delivery.courier import Courier, Replayed
from quaestor.continuous.delivery.networks import Networks
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.errors import ConfigurationError
from quaestor.observability.telemetry import Telemetry
from quaestor.settings.continuous import ContinuousSettings
from quaestor.tables.catalogue import Catalogue

_POSTED: Final = frozenset({"http"})
"""Types of sources that any number of processes take records from."""
_DAY_S: Final = 86_400


class RunningChannels:
    """Channels of a folder in one process.

    urls: see FeedParts.

    results: results for the endpoint of readers; of any number of processes.
    posts: feeds that take HTTP posts; of any number of processes.
    """

    def __init__(
        self,
        channels: Channels,
        settings: ContinuousSettings,
        telemetry: Telemetry,
        *,
        clock: Clock = system_clock,
        urls: Mapping[str, str] | None = None,
    ) -> None:
        self._channels = channels
        self._settings = settings
        self._telemetry = telemetry
        self._clock = clock
        self._urls = dict(urls or {})
        self._networks = Networks(settings.webhook_networks)
        catalogue = channels.parts.catalogue
        self._pages = StoredPages(catalogue)
        self._acknowledgements = Acknowledgements(catalogue.root, clock=clock)
        self.results = ServedResults(self._pages, channels.brokers, self._acknowledgements)
        self.posts = FeedService(self._feeds(_POSTED))

    async def keep_running(self, published: Callable[[str], Awaitable[object]] = unheard) -> None:
        """Run channels and feeds until cancelled, as soon as no other process does, and deliver results to brokers.

        published: see ChannelParts.
        """
        delivery, parts = self._delivery(), self._channels.parts

        async def deliver(channel: str, push: bool) -> int:
            return await delivery.deliver(channel, push=push)

        async def deliver_all() -> None:
            for channel in await asyncio.to_thread(parts.definitions.channels):
                await delivery.deliver(channel.name, push=channel.push)

        await hosted(
            Path(self._settings.continuous_folder),
            ChannelParts(
                catalogue=parts.catalogue,
                channels=parts.definitions.channels,
                executor_of=executors_of(self._settings),
                telemetry=self._telemetry,
                deliver=deliver,
                published=published,
                clock=self._clock,
            ),
            self._feeds(frozenset(SOURCES) - _POSTED),
            RetentionParts(
                catalogue=parts.catalogue,
                definitions=parts.definitions,
                brokers=self._channels.brokers,
                acknowledgements=self._acknowledgements,
                pages=self._pages,
                telemetry=self._telemetry,
                keep_s=self._settings.channel_days * _DAY_S,
                clock=self._clock,
            ),
            ProcedureParts(
                definitions=parts.definitions,
                procedures=parts.procedures,
                interpreter=self._channels.interpreter,
                telemetry=self._telemetry,
                clock=self._clock,
            ),
            HealthParts(
                brokers=self._channels.brokers,
                networks=self._networks,
                telemetry=self._telemetry,
                recovered=deliver_all,
                clock=self._clock,
            ),
        )

    async def replay(self, channel: str) -> Replayed:
        """Send the dead letters of a channel again, each once. Raises ConfigurationError, DependencyError."""
        definition = await asyncio.to_thread(self._channels.parts.definitions.get, Kind.CHANNEL, channel)
        return await self._delivery().replay(definition.name)

    def discard(self, channel: str) -> int:
        """Drop the dead letters of a channel; return their number. Raises ConfigurationError, DependencyError."""
        parts = self._channels.parts
        letters = letters_of(parts.catalogue.root)
        listed = list(letters.list(parts.definitions.get(Kind.CHANNEL, channel).name))
        for letter in listed:
            letters.remove(letter)
        return len(listed)

    def _delivery(self) -> BrokerDelivery:
        settings, root = self._settings, self._channels.parts.catalogue.root
        return BrokerDelivery(
            DeliveryParts(
                brokers=self._channels.brokers,
                pages=self._pages,
                acknowledgements=self._acknowledgements,
                courier=Courier(letters_of(root), self._telemetry, attempts=settings.delivery_attempts),
                telemetry=self._telemetry,
                networks=self._networks,
                timeout_s=settings.delivery_timeout_ms / 1_000,
                clock=self._clock,
            )
        )

    def _feeds(self, kinds: frozenset[str]) -> FeedParts:
        settings = self._settings
        return FeedParts(
            catalogue=self._channels.parts.catalogue,
            feeds=self._channels.feeds,
            telemetry=self._telemetry,
            folder=Path(settings.feed_folder) if settings.feed_folder else None,
            urls=self._urls,
            functions=partial(_enrichment, self._channels.parts.definitions, self._channels.parts.catalogue),
            kinds=kinds,
            locks=Path(settings.continuous_folder),
            networks=self._networks,
        )


def _enrichment(definitions: Definitions, catalogue: Catalogue, name: str) -> Enrichment:
    """Return the enrichment of a function by its name. Raises ConfigurationError, QueryRefusedError."""
    function = definitions.get(Kind.FUNCTION, name).statement
    if not isinstance(function, CreateFunction):
        raise ConfigurationError(f"{name!r} is no function")
    if function.python:
        return PythonEnrichment(function.body.text)
    parameters = [Parameter(entry.name, entry.type) for entry in function.parameters]
    return SqlEnrichment(catalogue, function.body.text, parameters, DuckDbExecutor(threads=1))

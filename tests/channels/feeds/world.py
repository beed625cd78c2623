"""World of feeds: real datasets and dead letters below one folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette

from quaestor.channels.datasets import Dataset, Mode
from quaestor.channels.feeds.dead_letters import FeedLetters
from quaestor.channels.feeds.definitions import FeedDefinition, Feeds
from quaestor.channels.feeds.feed import Enrichment, Feed
from quaestor.channels.feeds.service import FeedParts, FeedService
from quaestor.observability.telemetry import Telemetry
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.schema import Column, Schema, Type
from tests.end_to_end.scripted_origin import serving

SCHEMA = Schema((Column("id", Type.BIGINT), Column("text", Type.TEXT)), ("id",))


class World:
    """Dataset `notes` and the feed `f`."""

    def __init__(self, folder: Path, *, partitions: int = 1) -> None:
        self.folder = folder
        self.catalogue = Catalogue(folder / "tables")
        self.telemetry = Telemetry()
        self.seen: list[str] = []
        self.telemetry.hooks.failures.append(lambda failure: self.seen.append(failure.name))
        self.feeds = Feeds(self.catalogue.root)
        if "notes" not in self.catalogue.names():
            Dataset.create(self.catalogue, "notes", SCHEMA, partitions=partitions)

    @property
    def notes(self) -> Dataset:
        return Dataset.open(self.catalogue, "notes")

    def define(self, mode: Mode = Mode.INSERT, function: str = "", **source: Any) -> None:
        """Create, connect and start the feed."""
        self.feeds.create("f", source)
        self.feeds.connect("f", "notes", mode=mode, function=function)
        self.feeds.start("f")

    def feed(self, enrichment: Enrichment | None = None) -> Feed:
        definition = self.feeds.get("f")
        letters = FeedLetters(self.catalogue, definition)
        return Feed(definition, self.notes, letters, self.telemetry, enrichment=enrichment)

    def service(self, **parts: Any) -> FeedService:
        folder = self.folder / "sources"
        folder.mkdir(exist_ok=True)
        return FeedService(
            FeedParts(catalogue=self.catalogue, feeds=self.feeds, telemetry=self.telemetry, folder=folder, **parts),
            look_s=0.05,
        )

    def records(self) -> dict[int, str]:
        return {row["id"]: row["text"] for row in self.notes.records()}

    def letters(self) -> list[tuple[bytes, str]]:
        return [(row["bytes"], row["reason"]) for row in FeedLetters(self.catalogue, FeedDefinition(name="f")).all()]


@asynccontextmanager
async def running(service: FeedService) -> AsyncIterator[None]:
    """Run a service, and end it as a process's end does."""
    task = asyncio.create_task(service.keep_running())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


@asynccontextmanager
async def posting(service: FeedService) -> AsyncIterator[httpx.AsyncClient]:
    """Serve the HTTP sources of a service."""
    app = Starlette(routes=service.routes())
    async with (
        serving(uvicorn.Config(app, ws="none")) as url,
        httpx.AsyncClient(base_url=url, timeout=30) as client,
    ):
        yield client

"""Service of feeds: started feeds take records until they are stopped, also after a restart of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from quaestor.channels.datasets import Dataset
from quaestor.channels.feeds.channel_source import ChannelSource
from quaestor.channels.feeds.dead_letters import FeedLetters
from quaestor.channels.feeds.definitions import SOURCES, FeedDefinition, Feeds
from quaestor.channels.feeds.enrichment import PythonEnrichment
from quaestor.channels.feeds.feed import Enrichment, Feed, OffsetSource, Taken
from quaestor.channels.feeds.http import HttpSource
from quaestor.channels.feeds.records import SourceLostError
from quaestor.channels.feeds.sources import FileSource, MongoSource, RedisSource
from quaestor.channels.feeds.tcp import TcpSource
from quaestor.continuous.delivery.networks import Networks
from quaestor.continuous.folder_lock import folder_lock
from quaestor.errors import ConfigurationError, QuaestorError
from quaestor.observability.telemetry import Telemetry
from quaestor.tables.catalogue import Catalogue

_REST_S: Final = 0.05
_AGAIN_S: Final = 1.0
_BEGINS_S: Final = 10.0
"""Time for which a post waits for the beginning of its feed."""
_MOST_WAITING: Final = 100
"""Posts that wait at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedParts:
    """Parts of the service.

    folder: below which sources of type files lie; None: there are none.
    urls: by type of source, the address that a feed without an own address uses.
    functions: returns the enrichment of a name; by default the name is `module:name` in Python.
    kinds: types of the sources that this process takes records from.
    networks: private networks in which channels of other instances may be.
    locks: folder by which processes take turns in writing the posts of a feed; None: this is the only process.
    """

    catalogue: Catalogue
    feeds: Feeds
    telemetry: Telemetry
    folder: Path | None = None
    urls: Mapping[str, str] = field(default_factory=dict)
    functions: Callable[[str], Enrichment] = PythonEnrichment
    kinds: frozenset[str] = frozenset(SOURCES)
    locks: Path | None = None
    networks: Networks = field(default_factory=Networks)


class FeedService:
    """Feeds of one place. One process at a time runs them; any number of processes may take posts.

    look_s: seconds between two looks at the definitions.
    """

    def __init__(self, parts: FeedParts, *, look_s: float = 1.0) -> None:
        self._parts = parts
        self._look_s = look_s
        self._running: dict[str, tuple[FeedDefinition, asyncio.Task[None], asyncio.Event]] = {}
        self._posts: dict[str, HttpSource] = {}
        self._beginnings = asyncio.Condition()
        self._waiting = 0
        self.tcp: dict[str, TcpSource] = {}

    def routes(self, path: str = "/feeds") -> list[BaseRoute]:
        """Return the route of the sources of type http."""
        return [Route(f"{path}/{{feed}}", self.answer, methods=["POST"])]

    async def keep_running(self) -> None:
        """Run started feeds until cancelled. The end drains them: taken records are written."""
        async with asyncio.TaskGroup() as tasks:
            try:
                while True:
                    await self.look(tasks)
                    await asyncio.sleep(self._look_s)
            finally:
                await self._stop(list(self._running))

    async def look(self, tasks: asyncio.TaskGroup) -> None:
        """Begin feeds that were started, and end feeds that were stopped or changed."""
        try:
            defined = {feed.name: feed for feed in await asyncio.to_thread(self._parts.feeds.all)}
        except QuaestorError as error:
            self._parts.telemetry.failure("feeds", "feeds.definitions_unread", error)
            return
        await self._stop([name for name, (feed, _, _) in self._running.items() if defined.get(name) != feed])
        for name, feed in defined.items():
            if feed.is_started and feed.source["type"] in self._parts.kinds and name not in self._running:
                stop = asyncio.Event()
                self._running[name] = (feed, tasks.create_task(self._run(feed, stop)), stop)

    def feed(self, definition: FeedDefinition) -> Feed:
        """Return the feed of a definition. Raises ConfigurationError, DependencyError."""
        parts = self._parts
        letters = FeedLetters(parts.catalogue, definition)
        enrichment = parts.functions(definition.function) if definition.function else None
        sink = Dataset.open(parts.catalogue, definition.dataset)
        return Feed(definition, sink, letters, parts.telemetry, enrichment=enrichment, turn=self._turn(definition))

    def _turn(self, definition: FeedDefinition) -> Callable[[], AbstractContextManager[object]] | None:
        if definition.source["type"] != "http" or self._parts.locks is None:
            return None
        return partial(folder_lock, self._parts.locks, f".feed-{definition.name}", waits=True)

    def replay(self, name: str) -> Taken:
        """Write the dead letters of a stopped feed again. Raises ConfigurationError, DependencyError."""
        definition = self._parts.feeds.get(name)
        if definition.is_started:
            raise ConfigurationError(f"the feed {name!r} runs: stop it before you replay its dead letters")
        return self.feed(definition).replay()

    async def _stop(self, names: list[str]) -> None:
        """End feeds, and return when their taken records are written."""
        for name in names:
            self._running[name][2].set()
        for name in names:
            await asyncio.shield(self._running[name][1])
            del self._running[name]

    async def _run(self, definition: FeedDefinition, stop: asyncio.Event) -> None:
        """Run one feed until it is stopped. A failure is reported, and the feed begins again."""
        runs: Mapping[str, Callable[[FeedDefinition, asyncio.Event], Awaitable[None]]] = {
            "http": self._take_posts,
            "tcp": self._take_lines,
        }
        while not stop.is_set():
            try:
                await runs.get(str(definition.source["type"]), self._take_read)(definition, stop)
            except SourceLostError as error:
                self._parts.telemetry.failure("feeds", "feeds.source_lost", error, lasting=True, feed=definition.name)
                await stop.wait()
            except Exception as error:  # a feed must not end the others, whatever a driver raises
                self._parts.telemetry.failure("feeds", "feeds.failed", error, feed=definition.name)
                await _stopped(stop, _AGAIN_S)

    async def _take_posts(self, definition: FeedDefinition, stop: asyncio.Event) -> None:
        feed = await asyncio.to_thread(self.feed, definition)
        source = HttpSource(feed, self._parts.telemetry)
        self._posts[definition.name] = source
        async with self._beginnings:
            self._beginnings.notify_all()
        try:
            await stop.wait()
        finally:
            del self._posts[definition.name]
        await source.stop()
        feed.close()

    async def _take_lines(self, definition: FeedDefinition, stop: asyncio.Event) -> None:
        feed = await asyncio.to_thread(self.feed, definition)
        source = TcpSource(feed, str(definition.source["address"]), self._parts.telemetry)
        await source.start()
        self.tcp[definition.name] = source
        await stop.wait()
        del self.tcp[definition.name]
        await source.stop()
        feed.close()

    async def _take_read(self, definition: FeedDefinition, stop: asyncio.Event) -> None:
        feed = await asyncio.to_thread(self.feed, definition)
        source = await asyncio.to_thread(self._source, definition.source)
        try:
            while not stop.is_set():
                if not await asyncio.to_thread(feed.step, source):
                    await _stopped(stop, _REST_S)
        finally:
            await asyncio.to_thread(source.close)
            feed.close()

    def _source(self, source: Mapping[str, Any]) -> OffsetSource:
        kind = source["type"]
        if kind == "files":
            return FileSource(self._path(str(source["path"])))
        url = source.get("url") or self._parts.urls.get(kind)
        if not url:
            raise ConfigurationError(f"a source of type {kind} needs a url")
        if kind == "channel":
            return ChannelSource(url, source["subscription"], networks=self._parts.networks)
        if kind == "redis":
            return RedisSource(url, source["stream"], start=source.get("from", "beginning"))
        if kind == "kafka":
            return _kafka_source(url, source["topic"], start=source.get("from", "beginning"))
        return MongoSource(url, source["database"], source["collection"], start=source.get("from", "now"))

    def _path(self, name: str) -> Path:
        if self._parts.folder is None:
            raise ConfigurationError("there is no folder for sources of type files")
        folder = self._parts.folder.resolve()
        path = (folder / name).resolve()
        if not path.is_relative_to(folder):
            raise ConfigurationError(f"{name!r} lies outside the folder of sources")
        return path

    async def answer(self, request: Request) -> Response:
        """Answer a post to the feed that the path names. A post to a feed that is about to begin waits for its beginning."""
        name = request.path_params["feed"]
        if name not in self._posts:
            if not await asyncio.to_thread(self._is_about_to_begin, name):
                return JSONResponse({"error": "no such feed takes requests now"}, status_code=404)
            await self._begun(name)
        source = self._posts.get(name)
        if source is None:
            return JSONResponse({"error": "the feed begins"}, status_code=503, headers={"retry-after": "1"})
        return await source.answer(request)

    def _is_about_to_begin(self, name: str) -> bool:
        """Whether a feed was started that this process has not begun yet."""
        try:
            feed = self._parts.feeds.get(name)
        except ConfigurationError:
            return False
        except QuaestorError:
            return True
        return feed.is_started and feed.source["type"] == "http"

    async def _begun(self, name: str) -> None:
        """Wait until a feed takes posts, at most for a while."""
        if self._waiting >= _MOST_WAITING:
            return
        self._waiting += 1
        try:
            async with asyncio.timeout(_BEGINS_S):
                async with self._beginnings:
                    await self._beginnings.wait_for(lambda: name in self._posts)
        except TimeoutError:
            return
        finally:
            self._waiting -= 1


def _kafka_source(url: str, topic: str, *, start: str) -> OffsetSource:
    try:
        from quaestor.channels.feeds.kafka_source import KafkaSource
    except ImportError as error:
        raise ConfigurationError("a source of type kafka needs kafka-python: pip install 'quaestor[kafka]'") from error
    return KafkaSource(url, topic, start=start)


async def _stopped(stop: asyncio.Event, within_s: float) -> None:
    """Wait for the stop, at most so long."""
    try:
        async with asyncio.timeout(within_s):
            await stop.wait()
    except TimeoutError:
        return

"""An app that mounts the REST router behind the middleware, and the database as another client would write to it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pymongo
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from fastapi import FastAPI
from pymongo import AsyncMongoClient
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent
from starlette.middleware import Middleware

from quaestor import Quaestor
from quaestor.caching import Declaration
from quaestor.middleware import QuaestorMiddleware
from quaestor.rest import Access, Limits, QuaestorRouter
from quaestor.rest.etags import record_etag
from tests.support import PATIENCE_S, PATIENT, eventually

Database = pymongo.database.Database[dict[str, Any]]


def limits(**given: Any) -> Limits:
    """With patience: where time is not the subject, a database that stands still for some seconds is no 503."""
    return Limits(**{"time_ms": int(1_000 * PATIENCE_S)} | given)


class Heard(CommandListener):
    """commands: (name, command) in order; clear it to hear only what is new."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, Any]] = []

    def started(self, event: CommandStartedEvent) -> None:
        self.commands.append((event.command_name, event.command))

    def succeeded(self, event: CommandSucceededEvent) -> None:
        pass

    def failed(self, event: CommandFailedEvent) -> None:
        pass

    def finds(self) -> list[Any]:
        """The filters of the finds."""
        return [command["filter"] for name, command in self.commands if name == "find"]


class RestSite:
    """other: a client of the same database that the app knows nothing of. heard: the commands that the app sent."""

    def __init__(
        self,
        mongo_url: str,
        database: str,
        *,
        threads: bool = False,
        inner: Sequence[Middleware] = (),
        routes: Mapping[str, Declaration] | None = None,
        **options: Any,
    ) -> None:
        # Nothing expires by itself either: what was just written is otherwise expected to change again within a second.
        self.quaestor = Quaestor(debug_header=True, ttl_min_ms=600_000, **PATIENT)
        client = pymongo.MongoClient if threads else AsyncMongoClient
        self.heard = Heard()
        self.client: Any = client(mongo_url, event_listeners=[self.quaestor.capture, self.heard])
        self._outside: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(mongo_url)
        self.other: Database = self._outside[database]
        self.app = FastAPI(middleware=inner)
        self.app.add_middleware(QuaestorMiddleware, quaestor=self.quaestor, routes=routes)
        self.app.include_router(
            QuaestorRouter(
                self.client[database],
                **{"access": Access.public(), "quaestor": self.quaestor, "limits": limits(), **options},
            )
        )
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://site")

    async def close(self) -> None:
        await self.http.aclose()
        await self.quaestor.stop()
        closing = self.client.close()
        if closing is not None:
            await closing
        self._outside.close()

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        """body: bytes as they are, anything else as JSON. headers: with _ for -."""
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        content = body
        if body is not None and not isinstance(body, bytes):
            content = json.dumps(body).encode()
        if body is not None:
            fields.setdefault("content-type", "application/json")
        return await self.http.request(method, "/db" + path, content=content, headers=fields)

    def etag(self, key: Any, collection: str = "items") -> str:
        """Of a record as the database has it at this moment."""
        options: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)
        record = self.other.get_collection(collection, codec_options=options).find_one({"_id": key})
        assert record is not None
        return record_etag(record.raw)

    async def find(self, collection: str = "items", **parameters: Any) -> httpx.Response:
        """parameters: of the list; anything but text is sent as JSON."""
        given = {name: value if isinstance(value, str) else json.dumps(value) for name, value in parameters.items()}
        return await self.http.get(f"/db/{collection}", params=given)

    async def warm(self, path: str) -> Any:
        """Ask until it is a hit; the JSON of that."""
        answer: Any = None

        async def hit() -> bool:
            nonlocal answer
            response = await self.http.get("/db" + path)
            assert response.status_code in (200, 404), response.text
            answer = response.json()
            return is_hit(response)

        await eventually(hit)
        return answer


def is_hit(response: httpx.Response) -> bool:
    return "; hit" in response.headers.get("cache-status", "")


@asynccontextmanager
async def rest_site(mongo_url: str, database: str, **options: Any) -> AsyncIterator[RestSite]:
    """The collection `items` holds {_id: 0..9, group: "a" | "b", rank: 0..9}."""
    site = RestSite(mongo_url, database, **options)
    site.other.items.insert_many([{"_id": i, "group": "ab"[i % 2], "rank": i} for i in range(10)])
    try:
        await site.http.get("/")  # starts it
        read_path = site.quaestor.read_path
        await eventually(lambda: read_path.serving(read_path.clock()))
        yield site
    finally:
        site.other.client.drop_database(database)
        await site.close()

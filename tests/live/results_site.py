"""An application with the results of continuous queries, served by uvicorn on a real MongoDB, and its queries' service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from quaestor import ContinuousResults, Quaestor, QuaestorMiddleware, public
from quaestor.continuous.installed import InstalledQuery
from quaestor.tables.schema import Column, Schema, Type
from quaestor.testing.serving import serving
from tests.support import PATIENT

ORDERS = Schema((Column("id", Type.BIGINT), Column("open", Type.BOOL)))


@dataclass(frozen=True, slots=True)
class ResultsSite:
    """A running application whose queries `open_orders` and `empty` are due each second."""

    url: str
    quaestor: Quaestor
    client: httpx.Client

    def add(self, *ids: int) -> None:
        """Publish orders in one entry of their table."""
        table = self.quaestor.parts.continuous.administration().catalogue.open("orders")
        table.append([{"id": identity, "open": True} for identity in ids])

    def get(self, path: str, status: int = 200, **headers: str) -> httpx.Response:
        """Get a path below the endpoint."""
        answer = self.client.get(f"/continuous/{path}", headers=headers)
        assert answer.status_code == status, answer.text
        return answer


@contextmanager
def results_site(mongo_url: str, folder: Path, **options: Any) -> Iterator[ResultsSite]:
    """Serve an application. options: of ContinuousResults."""
    quaestor = Quaestor(mongo_url=mongo_url, continuous_folder=str(folder), **PATIENT)
    administration = quaestor.parts.continuous.administration()
    administration.catalogue.create("orders", ORDERS)
    for name, text in (
        ("open_orders", "SELECT id FROM orders WHERE open"),
        ("empty", "SELECT id FROM orders WHERE id < 0"),
    ):
        administration.install(InstalledQuery(name=name, text=text, every="1s"), "beginning")
    mongo: AsyncMongoClient[Any] = AsyncMongoClient(mongo_url, event_listeners=[quaestor.capture])

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await mongo.aconnect()
        yield
        await mongo.close()

    app = FastAPI(lifespan=lifespan)
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    app.include_router(ContinuousResults(quaestor, **({"scope": public()} | options)))
    with serving(app) as url, httpx.Client(base_url=url, timeout=30) as client:
        yield ResultsSite(url, quaestor, client)

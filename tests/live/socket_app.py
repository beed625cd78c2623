"""An application with live queries, for a process of its own: MONGO_URL, DATABASE and, shared, REDIS_URL."""

from __future__ import annotations

import os

from fastapi import FastAPI
from pymongo import AsyncMongoClient

from quaestor import Quaestor, QuaestorMiddleware
from quaestor.live.websocket.endpoint import LiveQueries
from quaestor.rest.access import Access


def create_app() -> FastAPI:
    """The application, for uvicorn's --factory."""
    quaestor = Quaestor.from_env(verification=False)
    client = AsyncMongoClient(os.environ["MONGO_URL"], event_listeners=[quaestor.capture])
    app = FastAPI()
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    app.include_router(LiveQueries(client[os.environ["DATABASE"]], quaestor=quaestor, access=Access.public_read()))
    return app

"""The app with an embedded Quaestor."""

from __future__ import annotations

import os

from fastapi import FastAPI
from pymongo import AsyncMongoClient

from benchmarks.idling.routes import with_items
from quaestor import Quaestor
from quaestor.middleware import QuaestorMiddleware


def app() -> FastAPI:
    """The app, for uvicorn."""
    made, quaestor = FastAPI(), Quaestor()
    made.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    return with_items(made, AsyncMongoClient(os.environ["MONGO_URL"], event_listeners=[quaestor.capture]))

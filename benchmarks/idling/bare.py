"""The app without Quaestor."""

from __future__ import annotations

import os

from fastapi import FastAPI
from pymongo import AsyncMongoClient

from benchmarks.idling.routes import with_items


def app() -> FastAPI:
    """The app, for uvicorn."""
    return with_items(FastAPI(), AsyncMongoClient(os.environ["MONGO_URL"]))

"""App for several workers without a Redis. X-Worker names the process that answers: each process caches for itself."""

from __future__ import annotations

import os
from typing import Any

from fastapi import FastAPI, Response
from pymongo import AsyncMongoClient, ReturnDocument

from quaestor import Quaestor, QuaestorMiddleware

quaestor = Quaestor()
client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(os.environ["MONGO_URL"], event_listeners=[quaestor.capture])
counters = client[os.environ["DATABASE"]].counters

app = FastAPI()
app.add_middleware(QuaestorMiddleware, quaestor=quaestor)


@app.get("/counters/{name}")
async def counter(name: str, response: Response) -> int:
    """Return the value of a counter."""
    response.headers["x-worker"] = str(os.getpid())
    document = await counters.find_one({"_id": name})
    return document["n"] if document else 0


@app.post("/counters/{name}")
async def increment(name: str, response: Response) -> int:
    """Add 1, and return the new value."""
    response.headers["x-worker"] = str(os.getpid())
    added: dict[str, Any] = {"$inc": {"n": 1}}
    after = ReturnDocument.AFTER
    document = await counters.find_one_and_update({"_id": name}, added, upsert=True, return_document=after)
    return int(document["n"]) if document else 0

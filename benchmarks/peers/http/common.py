"""The list that every peer serves: 100 objects out of MongoDB. Runs in the peer's own environment, without Quaestor."""

from __future__ import annotations

import os
from typing import Any

from pymongo import AsyncMongoClient

DATABASE = "http_peers"
OBJECTS = 100
TTL_S = 600


def reader() -> Any:
    """An async function that reads the list, as a handler does."""
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(os.environ["MONGO_URL"])

    async def read() -> list[dict[str, Any]]:
        return await client[DATABASE].items.find({"group": 1}).sort("_id", 1).limit(OBJECTS).to_list()

    return read

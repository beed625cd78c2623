"""Cache hits per second through uvicorn, beside a bare ASGI app that returns the same bytes (aim: at least 0.7 of it).

One worker, uvloop and httptools for both, wrk from outside, rounds interleaved. Embedded mode on a real mongod: the hit is
the answer of a handler that read 100 flights. Run: python -m benchmarks.hit_throughput
"""

from __future__ import annotations

import os
from typing import Any

import httpx
import pymongo
from fastapi import FastAPI
from pymongo import AsyncMongoClient

from benchmarks import harness
from quaestor import Quaestor
from quaestor.middleware import QuaestorMiddleware
from quaestor.testing import servers

OBJECTS = 100
ROUNDS = 5
DATABASE = "hit_throughput"


def cached_app() -> FastAPI:
    """FastAPI behind the middleware line."""
    app = FastAPI()
    quaestor = Quaestor()
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
        os.environ["MONGO_URL"], event_listeners=[quaestor.capture]
    )
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)

    @app.get("/items")
    async def items() -> list[dict[str, Any]]:
        return await client[DATABASE].items.find({"group": 1}).sort("_id", 1).limit(OBJECTS).to_list()

    return app


def uncached_app() -> FastAPI:
    """The same handler without the middleware."""
    app = FastAPI()
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(os.environ["MONGO_URL"])

    @app.get("/items")
    async def items() -> list[dict[str, Any]]:
        return await client[DATABASE].items.find({"group": 1}).sort("_id", 1).limit(OBJECTS).to_list()

    return app


def main() -> None:
    given = harness.arguments(__doc__)
    with servers.mongo_url() as url:
        with pymongo.MongoClient[dict[str, Any]](url) as client:
            client.drop_database(DATABASE)
            client[DATABASE].items.insert_many(
                [
                    {
                        "_id": i,
                        "group": 1,
                        "name": f"item {i}",
                        "price": i * 1.25,
                        "tags": ["a", "b"],
                        "stock": {"n": i},
                    }
                    for i in range(OBJECTS)
                ]
            )
        environment = {"MONGO_URL": url}
        with (
            harness.uvicorn("benchmarks.hit_throughput:cached_app", environment=environment) as cached,
            harness.uvicorn("benchmarks.hit_throughput:uncached_app", environment=environment) as uncached,
        ):
            target = f"{cached.url}/items"

            def hits() -> bool:
                return "; hit" in httpx.get(target).headers.get("cache-status", "")

            harness.until(hits)
            bare_environment = environment | {"BARE_FROM": target}
            with harness.uvicorn("benchmarks.harness:bare_app", environment=bare_environment) as bare:
                rounds: dict[str, list[dict[str, float]]] = {"bare": [], "hit": [], "uncached": []}
                for _ in range(ROUNDS):
                    rounds["bare"].append(harness.wrk(f"{bare.url}/items"))
                    rounds["hit"].append(harness.wrk(target))
                    rounds["uncached"].append(harness.wrk(f"{uncached.url}/items", seconds=2))
                assert hits(), "the response left the cache while it was measured"
        with pymongo.MongoClient[dict[str, Any]](url) as client:
            client.drop_database(DATABASE)
    best = {name: max(runs, key=lambda run: run["requests_per_s"]) for name, runs in rounds.items()}
    harness.report(
        "hit_throughput",
        {
            "what": f"GET of {OBJECTS} objects as JSON, one uvicorn worker, wrk with 32 connections, best of {ROUNDS} rounds",
            "best": best,
            "rounds": rounds,
            "hit_over_bare": round(best["hit"]["requests_per_s"] / best["bare"]["requests_per_s"], 3),
            "hit_over_uncached": round(best["hit"]["requests_per_s"] / best["uncached"]["requests_per_s"], 1),
            "aim": "hit_over_bare >= 0.7",
        },
        keep=not given.no_save,
    )


if __name__ == "__main__":
    main()

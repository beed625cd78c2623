"""Applications with middlewares on both sides of the cache, without a cache, and one that does not start."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from pymongo import AsyncMongoClient
from starlette.authentication import AuthenticationBackend
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from quaestor import Quaestor
from quaestor.middleware import QuaestorMiddleware
from tests.support import PATIENT


class Nobody(AuthenticationBackend):
    async def authenticate(self, conn: Any) -> None:
        return None


quaestor = Quaestor(**PATIENT)
client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(os.environ["MONGO_URL"], event_listeners=[quaestor.capture])
app = FastAPI()
app.add_middleware(GZipMiddleware)
app.add_middleware(AuthenticationMiddleware, backend=Nobody())


@app.middleware("http")
async def named(request: Request, handle: Callable[[Request], Awaitable[Response]]) -> Response:
    return await handle(request)


app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
app.add_middleware(TrustedHostMiddleware, allowed_hosts=["localhost"])


@app.get("/items")
async def items() -> int:
    return await client[os.environ["ORDERED_DATABASE"]].items.count_documents({})


bare = FastAPI()


@asynccontextmanager
async def out_of_order(app: FastAPI) -> AsyncIterator[None]:
    raise RuntimeError("out of order")
    yield


broken = FastAPI(lifespan=out_of_order)

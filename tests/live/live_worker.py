"""One app process with a live page, for tests of several: python -m tests.live.live_worker MONGO_URL REDIS_URL DEPLOYMENT PORT.

REDIS_URL may be empty: the process is alone then. Each run of the handler is a line on standard error.
"""

from __future__ import annotations

import sys
from typing import Any

import pymongo
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from quaestor import Quaestor, QuaestorMiddleware, cached


def main(mongo_url: str, redis_url: str, deployment: str, port: str) -> None:
    quaestor = Quaestor(mongo_url=mongo_url, redis_url=redis_url or None, deployment=deployment, verification=False)
    items = pymongo.MongoClient[Any](mongo_url, event_listeners=[quaestor.capture])[deployment].items

    @cached(live=True)
    async def page(request: Request) -> Response:
        print("run", file=sys.stderr, flush=True)
        tag = request.path_params["tag"]
        found = await run_in_threadpool(lambda: list(items.find({"tag": tag}, {"_id": 0}).sort("n", -1).limit(3)))
        return JSONResponse(found)

    app = Starlette(routes=[Route("/items/{tag}", page)])
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="error", ws="none")


if __name__ == "__main__":
    main(*sys.argv[1:])

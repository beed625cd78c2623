"""FastAPI without a cache."""

import gc
import os
from typing import Any

from common import reader
from fastapi import FastAPI


def create_app() -> FastAPI:
    app, read = FastAPI(), reader()

    @app.get("/items")
    async def items(n: int = 0) -> list[dict[str, Any]]:
        return await read()

    if os.environ.get("BENCHMARK_EASE"):  # as Quaestor does at an app's start
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, *gc.get_threshold()[1:])
    return app

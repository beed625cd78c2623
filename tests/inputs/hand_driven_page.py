"""A cached page behind middlewares of a test's choice, its engine driven by hand."""

from __future__ import annotations

from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.routing import Route

from quaestor.middleware import QuaestorMiddleware
from tests.hand_driven import HandEngine


def client_of(
    page: Any, *, engine: HandEngine | None = None, middleware: Any = (), **options: Any
) -> httpx.AsyncClient:
    """options: address: of the client."""
    app = Starlette(routes=[Route("/{rest:path}", page)], middleware=list(middleware))
    address = options.pop("address", ("1.1.1.1", 1))
    cached = QuaestorMiddleware(app, quaestor=engine or HandEngine(), **options)
    return httpx.AsyncClient(transport=httpx.ASGITransport(cached, client=address), base_url="http://site")  # type: ignore[arg-type]

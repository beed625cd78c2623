"""Fixtures of the Python client: a shop over loopback, and a synchronous client of it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from quaestor import QuaestorSyncTransport
from tests.sketch_clients.http_server import Shop, serving


@pytest.fixture(params=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def url(shop: Shop) -> Iterator[str]:
    with serving(shop) as address:
        yield address


@pytest.fixture
def transport(url: str) -> QuaestorSyncTransport:
    return QuaestorSyncTransport(url)


@pytest.fixture
def client(url: str, transport: QuaestorSyncTransport) -> Iterator[httpx.Client]:
    transport.refresh()
    with httpx.Client(transport=transport, base_url=url) as made:
        yield made


def source(response: httpx.Response) -> object:
    return response.extensions.get("quaestor")

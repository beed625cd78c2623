"""Real servers shared by the whole run. Each test takes a database, prefix or port of its own on them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from quaestor.demo import servers


@pytest.fixture(scope="session")
def mongo_url() -> Iterator[str]:
    """A replica set of one real mongod."""
    with servers.mongo_url() as url:
        yield url


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """A real Valkey."""
    with servers.redis_url() as url:
        yield url


@pytest.fixture
def prefix() -> str:
    """A name of this test's own, for key prefixes, databases and tenants."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow families may take an hour on a busy machine, unless they say otherwise themselves."""
    for item in items:
        if item.get_closest_marker("slow") is not None and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(3_600))

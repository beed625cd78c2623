"""Plug-in of pytest: `pytest_plugins = ["quaestor.testing.plugin"]` in the conftest.py of an application (docs/testing.md)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import pytest

_CLOCK_PARTS: Final = "QUAESTOR_CLOCK_PARTS"


def pytest_configure(config: pytest.Config) -> None:
    """Switch off the search for parts of the present time. A small number may equal the second by chance, and its answer then
    lives only for a short time.

    A variable that is set already stays as it is.
    """
    if _CLOCK_PARTS not in os.environ:
        variable = pytest.MonkeyPatch()
        variable.setenv(_CLOCK_PARTS, "0")
        config.add_cleanup(variable.undo)


@pytest.fixture
def quaestor() -> Any:
    """The application's Quaestor. To be overridden in its conftest.py."""
    raise pytest.UsageError("define a fixture `quaestor` in conftest.py that returns the Quaestor of your app")


@pytest.fixture
def settle(quaestor: Any) -> Callable[[], None]:
    """Function that waits until every write so far has taken effect; for tests without an event loop."""
    settled: Callable[[], None] = quaestor.settled_sync
    return settled


@pytest.fixture(scope="session")
def quaestor_mongo_url() -> Iterator[str]:
    """URL of a replica set for the session: `MONGO_URL` if set, else a mongod of its own with its data in a temporary folder."""
    from quaestor.testing import servers

    with servers.mongo_url(journal_ms=10) as url:
        yield url


@pytest.fixture(scope="session")
def quaestor_redis_url() -> Iterator[str]:
    """URL of a Redis for the session: `REDIS_URL` if set, else a server of its own with its data in a temporary folder."""
    from quaestor.testing import servers

    with servers.redis_url() as url:
        yield url


@pytest.fixture
def quaestor_server() -> Iterator[Callable[[Any], str]]:
    """Function that serves an ASGI application under uvicorn until the test ends, and returns its URL."""
    from quaestor.testing.serving import serving

    with ExitStack() as servers:
        yield lambda app: servers.enter_context(serving(app))

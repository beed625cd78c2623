"""Plug-in of pytest: `pytest_plugins = ["quaestor.testing.plugin"]` in the conftest.py of an application (docs/testing.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def quaestor() -> Any:
    """The application's Quaestor. To be overridden in its conftest.py."""
    raise pytest.UsageError("define a fixture `quaestor` in conftest.py that returns the Quaestor of your app")


@pytest.fixture
def settle(quaestor: Any) -> Callable[[], None]:
    """Function that waits until every write so far has taken effect; for tests without an event loop."""
    settled: Callable[[], None] = quaestor.settled_sync
    return settled

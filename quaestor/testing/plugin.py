"""Plug-in of pytest: `pytest_plugins = ["quaestor.testing.plugin"]` in the conftest.py of an application (docs/testing.md)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

import pytest

_CLOCK_PARTS: Final = "QUAESTOR_CLOCK_PARTS"


def pytest_configure(config: pytest.Config) -> None:
    """Take no constant for a part of the present time: by chance a small number equals the second, and its answer is short-lived.

    A variable that is set already counts.
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

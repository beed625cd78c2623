"""End by force of a test that stands still: its process prints where each of its threads stands, and ends.

pytest-timeout raises an exception in the main thread, once. A test can stand still nevertheless: if the exception met
an
unawaited task, in a thread, or in the teardown. pytest withdraws its limits as soon as a part of a test has failed.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Generator

import pytest

GRACE = "ended_by_force_after"
GRACE_S = 400
"""How long a test may go on after its own timeout, and how long a teardown may take."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the limit's name."""
    parser.addini(GRACE, "seconds after its timeout, and of its teardown, when a test is ended with its process")


def pytest_configure(config: pytest.Config) -> None:
    """Watch the tests of this process."""
    config.pluginmanager.register(EndedByForce(config), "ended-by-force")


class EndedByForce:
    """One limit at a time: of a whole test, of its teardown, of the end of the process."""

    def __init__(self, config: pytest.Config) -> None:
        self._stderr = os.dup(2)  # before what tests write is captured
        self._timeout_s = float(config.getini("timeout") or 0)
        self._grace_s = float(config.getini(GRACE) or GRACE_S)
        self._worker = hasattr(config, "workerinput")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Limit the whole test."""
        marker = item.get_closest_marker("timeout")
        timeout_s = self._timeout_s
        if marker is not None:
            timeout_s = float(marker.args[0] if marker.args else marker.kwargs.get("timeout", timeout_s))
        self._within(timeout_s + self._grace_s)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None, object, object]:
        """Limit the teardown, which nobody does any more when the test has failed."""
        self._within(self._grace_s)
        return (yield)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Limit the rest: threads that Python waits for. The process that started a worker ends it."""
        if not self._worker:
            self._within(self._grace_s)

    def _within(self, seconds: float) -> None:
        faulthandler.dump_traceback_later(seconds, exit=True, file=self._stderr)

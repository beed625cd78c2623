"""Failures of a run, printed as they happen: a run that is broken off has already printed its failures."""

from __future__ import annotations

import pytest

_MOST_LINES = 60


def pytest_configure(config: pytest.Config) -> None:
    """Register the printer, in the process that collects the reports of pytest-xdist's workers."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailuresAtOnce(config), "failures-at-once")


class FailuresAtOnce:
    """Printer of each failed phase of a test."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Name, phase, seconds and the end of the report."""
        if not report.failed:
            return
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.ensure_newline()
            terminal.write_line(f"{report.nodeid}: {report.when} failed after {report.duration:.0f} s", red=True)
            terminal.write_line("\n".join(report.longreprtext.splitlines()[-_MOST_LINES:]))

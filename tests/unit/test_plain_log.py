"""Log lines without structlog: the same text as with it, and structlog where it would add something."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from importlib.metadata import version
from typing import Any

import pytest
import structlog
from packaging.version import Version

from quaestor.observability import plain_log
from tests.architecture.sources import ROOT

pytestmark = pytest.mark.skipif(
    Version(version("structlog")) < Version("26.1.0"),
    reason="the text is that of the newest structlog; older ones quote no values",
)
_AT = "2026-11-28 12:00:00"
_FIELDS: list[dict[str, Any]] = [
    {},
    {"mode": "embedded"},
    {"error": "no answer: refused", "part": "mongodb", "repeated": 3},
    {"text": 'a "b"', "equals": "a=b", "lines": "a\nb", "tab": "a\tb", "quote": "a'b"},
    {"number": 1.5, "none": None, "list": ["a"], "bytes": b"a", "empty": "", "umlaut": "ü"},
    {"error": "boom", "stack": "Traceback\n  line 1\nValueError: boom\n", "service": "ingest"},
]
_EVENTS = """
import sys
{first}
from quaestor.observability.telemetry import Telemetry
telemetry = Telemetry()
telemetry.event("quaestor.started", mode="embedded")
telemetry.failure("mongodb", "ingest.stream_failed", "no answer", stack="a\\nb")
print("structlog" in sys.modules)
"""


@pytest.mark.parametrize("fields", _FIELDS, ids=lambda fields: ",".join(fields) or "none")
@pytest.mark.parametrize("level", ["info", "warning"])
@pytest.mark.parametrize("name", ["quaestor.started", "a.name.that.is.longer.than.the.column.of.names"])
def test_a_line_is_the_one_that_structlog_writes(level: str, name: str, fields: dict[str, Any]) -> None:
    renderer = structlog.dev.ConsoleRenderer(colors=False)
    expected = renderer(None, level, {"timestamp": _AT, "level": level, "event": name, **fields})
    assert plain_log.line(_AT, level, name, fields) == expected


def output_of(first: str, *, terminal: bool = False, **environment: str) -> str:
    """Return the print of two events in a fresh interpreter, without the time; at the end whether structlog was loaded."""
    known = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    command = [sys.executable, "-c", _EVENTS.format(first=first)]
    if not terminal:
        run = subprocess.run(command, cwd=ROOT, env=known | environment, capture_output=True, text=True, check=True)
        text = run.stdout
    else:
        ours, theirs = pty.openpty()
        with subprocess.Popen(command, cwd=ROOT, env=known | environment, stdout=theirs) as process:
            os.close(theirs)
            text = _read_to_end(ours)
        assert process.returncode == 0
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "now", text)


def _read_to_end(descriptor: int) -> str:
    parts = []
    with open(descriptor, "rb", buffering=0) as terminal:
        try:
            while part := terminal.read(4096):
                parts.append(part)
        except OSError:  # so a terminal ends when the last writer is gone
            pass
    return b"".join(parts).decode()


def test_events_are_written_without_structlog_where_nothing_is_coloured() -> None:
    """A process whose output is a file or a pipe loads no structlog for its log, and the log is the same."""
    plain = output_of("")
    assert plain.endswith("False\n")
    assert plain.removesuffix("False\n") == output_of("import structlog").removesuffix("True\n")
    assert "quaestor.started" in plain


@pytest.mark.parametrize(
    ("terminal", "environment"), [(True, {}), (False, {"FORCE_COLOR": "1"})], ids=["terminal", "FORCE_COLOR"]
)
def test_coloured_lines_stay_coloured(terminal: bool, environment: dict[str, str]) -> None:
    """On a terminal, and where the environment asks for colours, an application need not import structlog to get them."""
    coloured = output_of("", terminal=terminal, **environment)
    assert coloured == output_of("import structlog", terminal=terminal, **environment)
    assert "\x1b[" in coloured


def test_no_color_holds_on_a_terminal() -> None:
    """NO_COLOR gives plain lines, as it does with structlog."""
    plain = output_of("", terminal=True, NO_COLOR="1")
    assert "\x1b[" not in plain
    assert plain.replace("False", "True") == output_of("import structlog", terminal=True, NO_COLOR="1")


def test_a_configured_structlog_writes_the_events() -> None:
    """The application's configuration decides, also if it comes after Quaestor's import."""
    configured = output_of(
        "import quaestor.observability.telemetry, structlog\n"
        "structlog.configure(processors=[structlog.processors.JSONRenderer(sort_keys=True)])"
    )
    assert '{"event": "quaestor.started", "mode": "embedded"}' in configured

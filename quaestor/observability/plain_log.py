"""Log lines without colours, in an application that does not import structlog.

The library costs 7 MB, most of it for coloured output. A line here equals the line of an unconfigured structlog
whose output is no terminal. As soon as the application imports structlog, structlog writes the lines.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

_LEVEL_WIDTH: Final = len("exception")
_EVENT_WIDTH: Final = 30
_QUOTED: Final = frozenset(" \t=\r\n\"'")
"""Characters that put a text in quotes."""

_writing = threading.Lock()


def suffices() -> bool:
    """Return whether structlog would now write a plain line."""
    return "structlog" not in sys.modules and not _coloured()


def write(level: str, name: str, fields: Mapping[str, Any]) -> None:
    """Write one line to standard output. Thread-safe. Raises OSError and ValueError, like print."""
    text = line(time.strftime("%Y-%m-%d %H:%M:%S"), level, name, fields)
    with _writing:
        print(text, flush=True)


def line(at: str, level: str, name: str, fields: Mapping[str, Any]) -> str:
    """Return the line of an event, followed by the call stack in field `stack`, if any."""
    columns = [at, f"[{level:{_LEVEL_WIDTH}}]", f"{name:{_EVENT_WIDTH}}"]
    columns += [f"{key}={_shown(value)}" for key, value in sorted(fields.items()) if key != "stack"]
    text = " ".join(columns).rstrip(" ")
    stack = fields.get("stack")
    return text if stack is None else f"{text}\n{stack}"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) and _QUOTED.isdisjoint(value) else repr(value)


def _coloured() -> bool:
    """Return whether structlog colours its lines: on a terminal, unless NO_COLOR or FORCE_COLOR is set."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (sys.stdout is not None and sys.stdout.isatty())

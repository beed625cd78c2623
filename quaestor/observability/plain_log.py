"""Log lines without colours, in an application that does not import structlog.

The library costs 7 MB, most of it for coloured output. A line here is the line that structlog writes without configuration
where its output is no terminal. As soon as the application imports structlog, structlog writes the lines.
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
"""Characters of a text that make it stand in quotes."""

_writing = threading.Lock()


def suffices() -> bool:
    """Whether structlog would now write a plain line."""
    return "structlog" not in sys.modules and not _coloured()


def write(level: str, name: str, fields: Mapping[str, Any]) -> None:
    """Write one line to the standard output. Several threads may call. Raises OSError and ValueError, as print does."""
    text = line(time.strftime("%Y-%m-%d %H:%M:%S"), level, name, fields)
    with _writing:
        print(text, flush=True)


def line(at: str, level: str, name: str, fields: Mapping[str, Any]) -> str:
    """Return the line of an event, and below it the call stack if `fields` holds one as `stack`."""
    columns = [at, f"[{level:{_LEVEL_WIDTH}}]", f"{name:{_EVENT_WIDTH}}"]
    columns += [f"{key}={_shown(value)}" for key, value in sorted(fields.items()) if key != "stack"]
    text = " ".join(columns).rstrip(" ")
    stack = fields.get("stack")
    return text if stack is None else f"{text}\n{stack}"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) and _QUOTED.isdisjoint(value) else repr(value)


def _coloured() -> bool:
    """Whether structlog colours its lines: on a terminal, unless one of two variables decides."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (sys.stdout is not None and sys.stdout.isatty())

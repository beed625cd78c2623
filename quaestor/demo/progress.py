"""Progress lines while the demo starts: one line a step, on stderr, rewritten in place on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_NAME_WIDTH = 22


class Progress:
    """Progress on stderr: `✓ mongod  1.9 s  note` for every finished step. On a terminal, a running step is shown too."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._terminal = self._stream.isatty()

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """Line for one step, marked as done or failed at its end."""
        step = Step(self, name)
        step.note("")
        try:
            yield step
        except BaseException:
            self._line(f"✗ {name:{_NAME_WIDTH}} {step.text}", final=True)
            raise
        self._line(f"✓ {name:{_NAME_WIDTH}} {step.elapsed_s:5.1f} s  {step.text}", final=True)

    def say(self, text: str) -> None:
        """Print a remark on a line of its own."""
        self._line(text, final=True)

    def _line(self, text: str, *, final: bool) -> None:
        if self._terminal:
            self._stream.write(f"\r\x1b[2K{text}" + ("\n" if final else ""))
        elif final:
            self._stream.write(text + "\n")
        self._stream.flush()


class Step:
    """Step of the start, with its line."""

    def __init__(self, progress: Progress, name: str) -> None:
        self._progress = progress
        self._name = name
        self._started_s = time.monotonic()
        self.text = ""

    @property
    def elapsed_s(self) -> float:
        """Time since the step began."""
        return time.monotonic() - self._started_s

    def note(self, text: str) -> None:
        """Show the present state of the step, or its result."""
        self.text = text
        self._progress._line(f"· {self._name:{_NAME_WIDTH}} {self.elapsed_s:5.1f} s  {text}", final=False)

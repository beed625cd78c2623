"""Pipe to the writer, which is a process of its own, from the script's side."""

from __future__ import annotations

import subprocess
import sys
from types import TracebackType
from typing import Any

from bson import json_util

from quaestor.errors import DatabaseError
from quaestor.testing import writer


class OtherProcess:
    """Running writer on one collection, in a process of its own; a context manager."""

    def __init__(self, mongo_url: str, database: str, collection: str = "flights") -> None:
        # -P and the file's name: the writer is a foreign program, not a part of this package.
        self._process = subprocess.Popen(
            [sys.executable, "-P", writer.__file__, mongo_url, database, collection],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def write(self, operation: str, *arguments: Any) -> int:
        """Do one write there, and return the time of its acknowledgement in wall-clock ns. Raises DatabaseError without one."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json_util.dumps({"do": operation, "arguments": arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer = json_util.loads(line) if line else {"error": "the writing process has ended"}
        if "error" in answer:
            raise DatabaseError(f"{operation} failed in the other process: {answer['error']}")
        return int(answer["acknowledged_ns"])

    def __enter__(self) -> OtherProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._process:  # closes the pipes and waits
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._process.kill()

"""What-ifs of one process, and predictions of canaries. One runs at a time, in a child process that ends with its
client."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, Final

from quaestor.admin.request import Refused
from quaestor.dashboard.applying import parameters_of
from quaestor.errors import ConfigurationError
from quaestor.ttl.canary import Prediction
from quaestor.ttl.parameters import TtlParameters

WITHIN_S: Final = 180.0
MOST_CLIENTS: Final = 10_000
DAY_S: Final = 86_400
_LONGEST_LINE: Final = 4 * 1024 * 1024
_SIMULATING: Final = "quaestor.dashboard.simulating"
_PREDICTING: Final = "quaestor.dashboard.predicting"


class WhatIf:
    """What-ifs on traces that processes of this machine record or have recorded.

    traces: names of the traces, `*` for any part of a file's name; empty: there are none.
    delta_s: seconds after which clients fetch the Cache Sketch again, unless a what-if gives another number.
    """

    def __init__(self, traces: str, *, delta_s: float) -> None:
        self._traces = traces
        self.delta_s = delta_s
        self._busy = False

    def trace(self) -> Path | None:
        """Trace to use: the largest of the traces written to within a day of the newest, because it holds most."""
        if not self._traces:
            return None
        pattern = Path(self._traces)
        files: list[tuple[float, int, Path]] = []
        with suppress(OSError, ValueError):
            for path in pattern.parent.glob(pattern.name):
                with suppress(OSError):
                    if path.is_file():
                        about = path.stat()
                        files.append((about.st_mtime, about.st_size, path))
        if not files:
            return None
        since_s = max(written_s for written_s, _, _ in files) - DAY_S
        return max((size, written_s, path) for written_s, size, path in files if written_s >= since_s)[2]

    def asked(self, body: Mapping[str, Any], *, now: TtlParameters) -> dict[str, Any]:
        """Request to the child process. Raises Refused, or ConfigurationError for impossible parameters."""
        if unknown := body.keys() - {"parameters", "clients", "delta_s"}:
            raise Refused(400, f"unknown: {', '.join(sorted(unknown))[:200]}; known: parameters, clients, delta_s")
        chosen = parameters_of(body.get("parameters"))
        clients, delta_s = body.get("clients", 100), body.get("delta_s", self.delta_s)
        if not isinstance(clients, int) or isinstance(clients, bool) or not 1 <= clients <= MOST_CLIENTS:
            raise Refused(400, f"clients is a number from 1 to {MOST_CLIENTS}")
        if not isinstance(delta_s, int | float) or isinstance(delta_s, bool) or not 0.1 <= delta_s <= 3_600:
            raise Refused(400, "delta_s is a number of seconds from 0.1 to 3600")
        return {
            "trace": self._recorded(), "now": now.encoded(), "chosen": chosen.encoded(), "clients": clients,
            "delta_s": delta_s,
        }  # fmt: skip

    async def run(self, request: Mapping[str, Any]) -> AsyncGenerator[bytes, None]:
        """Lines of one what-if. Raises Refused if another one runs. Ends when its reader goes."""
        async with aclosing(self._alone(_SIMULATING, request)) as lines:
            async for line in lines:
                yield line

    async def predicted(
        self, *, now: TtlParameters, chosen: TtlParameters, share: int, delta_ms: int
    ) -> dict[str, Prediction]:
        """Predictions of a canary, by figure. Raises Refused if a what-if or another prediction runs, ConfigurationError for
        a trace that allows no prediction. Ends when it is cancelled.

        share: share of the results, in percent (1..50).
        delta_ms: how old a client's sketch may be.
        """
        request = {
            "trace": self._recorded(), "now": now.encoded(), "chosen": chosen.encoded(), "share": share,
            "delta_ms": delta_ms,
        }  # fmt: skip
        reply: dict[str, Any] = {}
        async with aclosing(self._alone(_PREDICTING, request)) as lines:
            async for line in lines:
                reply = json.loads(line)
        if "problem" in reply:
            raise ConfigurationError(reply["problem"])
        return {name: Prediction(*interval) for name, interval in reply["result"].items()}

    def _recorded(self) -> str:
        trace = self.trace()
        if trace is None:
            raise ConfigurationError(
                "nothing is recorded that this could be tried on: set trace_file (QUAESTOR_TRACE_FILE) and start the app again"
            )
        return str(trace)

    async def _alone(self, program: str, request: Mapping[str, Any]) -> AsyncGenerator[bytes, None]:
        if self._busy:
            raise Refused(429, "another what-if is running in this process: wait until it has ended")
        self._busy = True
        try:
            async with aclosing(_lines(program, request)) as lines:
                async for line in lines:
                    yield line
        finally:
            self._busy = False


async def _lines(program: str, request: Mapping[str, Any]) -> AsyncGenerator[bytes, None]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", program,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, limit=_LONGEST_LINE,
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    ended = False
    try:
        # Standard input stays open, because its end shows the child that this process has ended.
        child.stdin.write(json.dumps(dict(request)).encode() + b"\n")
        async with asyncio.timeout(WITHIN_S):
            async for line in child.stdout:
                ended = not line.startswith(b'{"done"')
                yield line
        if not ended:
            yield _problem("the simulation ended without a result: too little memory?")
    except TimeoutError:
        yield _problem(f"the simulation took longer than {WITHIN_S:g} s: record a smaller share (trace_share)")
    finally:
        with suppress(ProcessLookupError):
            child.kill()
        await child.wait()


def _problem(text: str) -> bytes:
    return json.dumps({"problem": text}).encode() + b"\n"

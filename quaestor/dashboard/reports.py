"""Reports of all processes of an app, exchanged through the shared Redis only while a client looks at a dashboard."""

from __future__ import annotations

import json
from typing import Any, Final

import zstandard
from redis.exceptions import RedisError

from quaestor.dashboard.process_report import VERSION, Report
from quaestor.errors import StoreError
from quaestor.redis.clients import SharedClient

ASKED_FOR_MS: Final = 5_000
"""How long processes report after a client has looked."""
OLDEST_MS: Final = 5_000
"""Greatest age of a report. The process of an older one has ended, or stands still."""
_FORGOTTEN_MS: Final = 60_000
_MOST_BYTES: Final = 4 * 1024 * 1024


class SharedReports:
    """Reports of one app in Redis: `quaestor:{<scope>:dashboard}:reports`, by process. Raises StoreError."""

    def __init__(self, client: SharedClient, *, scope: str) -> None:
        self._client = client
        self._asked = f"quaestor:{{{scope}:dashboard}}:asked"
        self._reports = f"quaestor:{{{scope}:dashboard}}:reports"

    async def ask(self) -> None:
        """Have all processes report for a while."""
        await self._call("SET", self._asked, b"1", "PX", ASKED_FOR_MS)

    async def asked(self) -> bool:
        """Whether a client looks at a dashboard."""
        return bool(await self._call("EXISTS", self._asked))

    async def tell(self, report: Report) -> None:
        """Store the report of this process."""
        packed = zstandard.compress(json.dumps(report).encode())
        await self._call("HSET", self._reports, str(report["process"]), packed)
        await self._call("PEXPIRE", self._reports, _FORGOTTEN_MS)

    async def all(self, *, now_ms: int) -> list[Report]:
        """Reports of all living processes. A report that cannot be read comes from another version."""
        reply = await self._call("HGETALL", self._reports)
        pairs = list(reply.items()) if isinstance(reply, dict) else list(zip(reply[::2], reply[1::2], strict=False))
        reports, forgotten = [], []
        for process, packed in pairs:
            report = _decoded(packed)
            if report is None or now_ms - report["at_ms"] > _FORGOTTEN_MS:
                forgotten.append(process)
            elif now_ms - report["at_ms"] <= OLDEST_MS:
                reports.append(report)
        if forgotten:
            await self._call("HDEL", self._reports, *forgotten)
        return reports

    async def _call(self, *command: str | bytes | int) -> Any:
        try:
            return await self._client.execute_command(*command)
        except RedisError as error:
            raise StoreError(f"the reports of the other processes could not be exchanged: {error}") from error


def _decoded(packed: bytes) -> Report | None:
    try:
        if zstandard.frame_content_size(packed) > _MOST_BYTES:
            return None
        report = json.loads(zstandard.decompress(packed, max_output_size=_MOST_BYTES))
        if report["version"] != VERSION or not isinstance(report["at_ms"], int):
            return None
    except (ValueError, KeyError, TypeError, RecursionError, zstandard.ZstdError):
        return None
    return dict(report)

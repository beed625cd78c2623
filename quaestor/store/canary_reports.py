"""Reports of a canary in the shared Redis: the counts of each process, kept when the process ends."""

from __future__ import annotations

import json
from typing import Any, Final

from redis.exceptions import RedisError

from quaestor.errors import StoreError
from quaestor.redis.clients import SharedClient
from quaestor.ttl.canary_watch import ProcessCounts, process_counts_of

KEPT_MS: Final = 7 * 86_400_000


class RedisCanaryReports:
    """Reports of one app in `quaestor:{<scope>:ttl}:canary:<number>`, by process. Implements CanaryReports."""

    def __init__(self, client: SharedClient, *, scope: str) -> None:
        self._client = client
        self._key = f"quaestor:{{{scope}:ttl}}:canary"

    async def tell(self, number: int, process: str, report: ProcessCounts) -> None:
        """See CanaryReports."""
        key = f"{self._key}:{number}"
        await self._call("HSET", key, process, json.dumps(report.plain()))
        await self._call("PEXPIRE", key, KEPT_MS)

    async def all(self, number: int) -> list[ProcessCounts]:
        """See CanaryReports. Unreadable reports do not count."""
        reports = []
        for text in await self._call("HVALS", f"{self._key}:{number}"):
            try:
                report = process_counts_of(json.loads(text))
            except (ValueError, RecursionError):
                continue
            if report is not None:
                reports.append(report)
        return reports

    async def _call(self, *command: str | int) -> Any:
        try:
            return await self._client.execute_command(*command)
        except RedisError as error:
            raise StoreError(f"the counts of a canary could not be exchanged: {error}") from error

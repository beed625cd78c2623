"""Accounts at providers in Redis, for all processes of all deployments that share it: one script an operation.

A bucket is `quaestor:{bucket:<name>}`, see lua/account_bucket.lua. A month's budget is `quaestor:{budget:<name>}`, a count.
"""

from __future__ import annotations

from typing import Any, Final

from redis.exceptions import RedisError

from quaestor.errors import StoreError
from quaestor.purge_ports import Bucket
from quaestor.redis.clients import SharedClient
from quaestor.redis.scripts import Argument, RedisScript
from quaestor.store.scripts import script

_BUDGETS_KEPT_MS: Final = 62 * 24 * 3_600_000
"""Time for which a month's budget is kept: longer than the longest month, at any clock."""


class RedisAccounts:
    """Accounts at providers in Redis. Implements PurgeAccounts. Costs O(requests under way) a call.

    client: belongs to the caller; it must not decode responses.
    """

    def __init__(self, client: SharedClient) -> None:
        self._client = client
        self._bucket = script(client, "account_bucket", frees=True)
        self._charge = script(client, "account_charge", frees=True)

    async def spend(self, bucket: Bucket, *, tokens: float, payer: str, lease_ms: int, now_ms: int) -> int:
        """See PurgeAccounts. The bucket fills by the server's clock."""
        return await self._on(bucket, "spend", payer, tokens, lease_ms)

    async def settle(self, bucket: Bucket, *, payer: str, sent: bool = True, now_ms: int) -> None:
        """See PurgeAccounts."""
        await self._on(bucket, "sent" if sent else "unsent", payer, 0, 0)

    async def hold(self, bucket: Bucket, *, for_ms: int, now_ms: int) -> None:
        """See PurgeAccounts."""
        await self._on(bucket, "hold", "", 0, max(0, for_ms))

    async def charge(self, budget: str, *, number: int, most: int) -> bool:
        """See PurgeAccounts."""
        return bool(await self._call(self._charge, _budget(budget), [number, most, _BUDGETS_KEPT_MS]))

    async def charged(self, budget: str) -> int:
        """See PurgeAccounts."""
        try:
            return int(await self._client.execute_command("GET", _budget(budget)) or 0)
        except (RedisError, OSError) as error:
            raise StoreError(f"the accounts of CDNs in Redis did not answer: {error}") from error

    async def _on(self, bucket: Bucket, what: str, payer: str, tokens: float, for_ms: int) -> int:
        arguments: list[Argument] = [what, payer, str(tokens), str(bucket.per_s), str(bucket.burst), for_ms]
        return int(await self._call(self._bucket, f"quaestor:{{bucket:{bucket.name}}}", arguments))

    async def _call(self, script: RedisScript, key: str, arguments: list[Argument]) -> Any:
        try:
            return await script(keys=[key], args=arguments)
        except (RedisError, OSError) as error:
            raise StoreError(f"the accounts of CDNs in Redis did not answer: {error}") from error


def _budget(name: str) -> str:
    return f"quaestor:{{budget:{name}}}"

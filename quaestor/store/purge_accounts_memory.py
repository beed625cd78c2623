"""Accounts at providers in this process's memory, for the embedded mode: limits and budgets hold only for this process."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from quaestor.purge_ports import Bucket


@dataclass(slots=True)
class _Level:
    """Level of one bucket.

    paid: tokens of each payer's request under way, and the end of its lease.
    """

    tokens: float
    at_ms: int
    held_until_ms: int = 0
    paid: dict[str, tuple[float, int]] = field(default_factory=dict)

    def fill(self, bucket: Bucket, now_ms: int) -> None:
        """Fill the bucket up to now. Requests under way reduce its room, because the provider may count them only later."""
        under_way = sum(amount for amount, _ in self.paid.values())
        filled = self.tokens + max(0, now_ms - self.at_ms) * bucket.per_s / 1_000
        self.tokens = min(bucket.burst - under_way, filled)
        self.at_ms = max(self.at_ms, now_ms)
        self.paid = {payer: payment for payer, payment in self.paid.items() if payment[1] > now_ms}


class MemoryAccounts:
    """Accounts at providers in memory. Implements PurgeAccounts. Use from one event loop."""

    def __init__(self) -> None:
        self._levels: dict[str, _Level] = {}
        self._charged: dict[str, int] = {}

    async def spend(self, bucket: Bucket, *, tokens: float, payer: str, lease_ms: int, now_ms: int) -> int:
        """See PurgeAccounts."""
        level = self._level(bucket, now_ms)
        if level.held_until_ms > now_ms:
            return level.held_until_ms - now_ms
        if level.tokens < tokens:
            return max(1, math.ceil((tokens - level.tokens) * 1_000 / bucket.per_s))
        level.tokens -= tokens
        level.paid[payer] = tokens, now_ms + lease_ms
        return 0

    async def settle(self, bucket: Bucket, *, payer: str, sent: bool = True, now_ms: int) -> None:
        """See PurgeAccounts."""
        level = self._level(bucket, now_ms)
        amount, _ = level.paid.pop(payer, (0.0, 0))
        if not sent:
            under_way = sum(paid for paid, _ in level.paid.values())
            level.tokens = min(bucket.burst - under_way, level.tokens + amount)

    async def hold(self, bucket: Bucket, *, for_ms: int, now_ms: int) -> None:
        """See PurgeAccounts."""
        level = self._level(bucket, now_ms)
        level.tokens = 0.0
        level.held_until_ms = max(level.held_until_ms, now_ms + for_ms)

    async def charge(self, budget: str, *, number: int, most: int) -> bool:
        """See PurgeAccounts."""
        after = self._charged.get(budget, 0) + number
        if after > most:
            return False
        self._charged[budget] = after
        return True

    async def charged(self, budget: str) -> int:
        """See PurgeAccounts."""
        return self._charged.get(budget, 0)

    def _level(self, bucket: Bucket, now_ms: int) -> _Level:
        level = self._levels.setdefault(bucket.name, _Level(tokens=bucket.burst, at_ms=now_ms))
        level.fill(bucket, now_ms)
        return level

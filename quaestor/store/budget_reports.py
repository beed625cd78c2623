"""Reports of hits to the account of the shared store's entries, every few seconds; no request waits for them."""

from __future__ import annotations

import asyncio
from typing import Final

from redis.exceptions import RedisError

from quaestor.observability.telemetry import Telemetry
from quaestor.store.redis_budget import RedisBudget

EVERY_S: Final = 2.0
"""Pause between two reports; a new entry must survive it without hits in its account."""


async def keep_accounting(budget: RedisBudget, telemetry: Telemetry) -> None:
    """Report until cancelled, and keep the entries within the server's memory.

    A failed report is lost: then another entry may leave than should.
    """
    shared_bytes = telemetry.stores.shared_bytes
    warned = False
    while True:
        try:
            used_bytes = await budget.tell()
            telemetry.stores.shared_evictions.inc(await budget.fit(used_bytes))
        except (RedisError, OSError) as error:
            telemetry.failure("store", "store.not_accounted", error)
        else:
            shared_bytes.labels("used").set(used_bytes)
            shared_bytes.labels("budget").set(budget.limit_bytes)
            if budget.limit_bytes < budget.budget_bytes and not warned:
                warned = True
                telemetry.event(
                    "store.redis_small",
                    usable_bytes=budget.limit_bytes,
                    shared_bytes=budget.budget_bytes,
                    remedy="raise maxmemory of this Redis, or lower shared_bytes",
                )
        await asyncio.sleep(EVERY_S)

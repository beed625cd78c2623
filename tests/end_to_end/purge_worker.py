"""A process that puts purges into the outbox and sends them: `purge_worker REDIS DEPLOYMENT URL PER_S BURST FIRST COUNT`.

Prints how many it has put in, each time that the outbox has them.
"""

from __future__ import annotations

import asyncio
import sys
import time

from cdn_adapters.capabilities import TAG
from cdn_adapters.place import Target
from cdn_adapters.sender import Sender, SenderOptions
from quaestor.redis.clients import shared_client
from quaestor.store.outbox_redis import RedisOutbox
from tests.end_to_end.purge_api import AccountPlace
from tests.support import PATIENCE_S

CHUNK = 50


async def work(redis_url: str, deployment: str, url: str, per_s: float, burst: int, first: int, count: int) -> None:
    client = shared_client(redis_url, timeout_s=PATIENCE_S)
    sender = Sender(
        AccountPlace(url, bucket=deployment, per_s=per_s, burst=burst),
        RedisOutbox(client, deployment=deployment),
        options=SenderOptions(repurge_after_ms=3_600_000, lease_ms=2_000),
    )
    sender.start()
    for start in range(first, first + count, CHUNK):
        targets = [Target(TAG, f"p{n}") for n in range(start, min(start + CHUNK, first + count))]
        await sender.put(targets, until_ms=int(time.time() * 1_000) + 3_600_000)
        print(targets[-1].value, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    redis_url, deployment, url, per_s, burst, first, count = sys.argv[1:]
    asyncio.run(work(redis_url, deployment, url, float(per_s), int(burst), int(first), int(count)))

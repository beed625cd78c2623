"""A process that puts purges into the outbox and sends them: `purge_worker REDIS DEPLOYMENT URL PER_S BURST FIRST COUNT [PACE]`.

The account is the URL's, whatever the deployment. PER_S 0: it has no rates, and takes one purge in a request.
PACE: purges that are put in a second; 0: as fast as it can.
Prints "ready", and then the last that it has put in, each time that the outbox has it.
"""

from __future__ import annotations

import asyncio
import sys
import time

from benchmarks.setups import PATIENCE_S
from benchmarks.setups.purge_api import AccountPlace
from quaestor.cdn_adapters.capabilities import TAG
from quaestor.cdn_adapters.place import Target
from quaestor.cdn_adapters.sender import Sender
from quaestor.cdn_adapters.sender_options import SenderOptions
from quaestor.errors import StoreError
from quaestor.redis.clients import shared_client
from quaestor.store.outbox_redis import RedisOutbox

CHUNK = 50


async def work(
    redis_url: str, deployment: str, url: str, per_s: float, burst: int, first: int, count: int, pace: float
) -> None:
    client = shared_client(redis_url, timeout_s=PATIENCE_S)
    sender = Sender(
        AccountPlace(url, bucket=url, per_s=per_s, burst=burst),
        RedisOutbox(client, deployment=deployment),
        options=SenderOptions(repurge_after_ms=3_600_000, lease_ms=2_000),
    )
    sender.start()
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    for start in range(first, first + count, CHUNK):
        targets = [Target(TAG, f"p{n}") for n in range(start, min(start + CHUNK, first + count))]
        await put(sender, targets)
        print(targets[-1].value, flush=True)
        if pace:
            await asyncio.sleep(began_s + (start + CHUNK - first) / pace - loop.time())
    await asyncio.Event().wait()


async def put(sender: Sender, targets: list[Target]) -> None:
    """Until the outbox has them."""
    while True:
        try:
            await sender.put(targets, until_ms=int(time.time() * 1_000) + 3_600_000)
            return
        except StoreError:
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    redis_url, deployment, url, per_s, burst, first, count, *pace = sys.argv[1:]
    asyncio.run(
        work(
            redis_url, deployment, url, float(per_s), int(burst), int(first), int(count), float(pace[0] if pace else 0)
        )
    )

"""One app process for tests/end_to_end/test_rechecking_across_processes.py: makes an answer, and never ends a recheck of it.

python -m tests.end_to_end.rechecking_worker MONGO_URL REDIS_URL DEPLOYMENT. Prints `stored` when its answer is a hit, and
`rechecking` when its query is being run again; then it waits to be killed.
"""

from __future__ import annotations

import asyncio
import sys

from tests.end_to_end.test_rechecking import Gate, worker
from tests.support import eventually

STARTED_WITHIN_S = 90.0


async def main(mongo_url: str, redis_url: str, deployment: str) -> None:
    async with worker(mongo_url, deployment, redis_url=redis_url, deployment=deployment, recheck_ms=60_000) as process:
        await eventually(process.hit, within_s=STARTED_WITHIN_S)
        gate = Gate(process)
        print("stored", flush=True)
        await eventually(lambda: gate.asked == 1, within_s=STARTED_WITHIN_S)
        print("rechecking", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))

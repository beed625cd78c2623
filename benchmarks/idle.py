"""Cost of a process without requests: an embedded app beside the same app without Quaestor, in the same minute.

    python -m benchmarks.idle

Processor time is that of all threads of the process, by the scheduler's own count. Memory is resident. The app has answered
a few requests before, so everything is loaded that a request needs.
"""

from __future__ import annotations

import argparse
import time
from contextlib import ExitStack
from typing import Any, Final

import httpx
import psutil

from benchmarks import harness
from quaestor.testing import servers

_REQUESTS: Final = 5
_SETTLED_S: Final = 15.0
_AIM_SHARE: Final = 0.005
_AIM_BYTES: Final = 20_000_000


def measured(mongo_url: str, *, seconds: float, settled_s: float) -> dict[str, Any]:
    """The two processes side by side: share of a core, resident bytes and threads, and what the embedded one has more."""
    environment = {"MONGO_URL": mongo_url}
    with ExitStack() as running:
        pids = {}
        for name in ("bare", "embedded"):
            server = running.enter_context(
                harness.uvicorn(f"benchmarks.idling.{name}:app", environment=environment, path="/items")
            )
            for _ in range(_REQUESTS):
                httpx.get(server.url + "/items").raise_for_status()
            pids[name] = server.pid
        time.sleep(settled_s)
        began_s, before = time.monotonic(), {name: harness.processor_s(pid) for name, pid in pids.items()}
        time.sleep(seconds)
        took_s = time.monotonic() - began_s
        figures = {
            name: _figures(pid, (harness.processor_s(pid) - before[name]) / took_s) for name, pid in pids.items()
        }
    more = {name: figures["embedded"][name] - figures["bare"][name] for name in figures["bare"]}
    return {"seconds": seconds, **figures, "more": more | {"core": round(more["core"], 5)}}


def _figures(pid: int, core: float) -> dict[str, Any]:
    process = psutil.Process(pid)
    return {"core": round(core, 5), "rss_bytes": process.memory_info().rss, "threads": process.num_threads()}


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    with servers.mongo_url() as mongo_url:
        result = measured(mongo_url, seconds=arguments.seconds, settled_s=_SETTLED_S)
    harness.save("idle", result | {"aim": {"core": _AIM_SHARE, "rss_bytes": _AIM_BYTES}})


if __name__ == "__main__":
    main()

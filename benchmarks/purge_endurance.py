"""A million purges through the outbox, while every 10 seconds one of the processes that put and send them is killed: is one lost?

    python -m benchmarks.purge_endurance

Real processes, a real Valkey, a provider on loopback that keeps its account's limit to the token. The processes belong to two
deployments that share the account. A process that is killed (kill -9, at random) is replaced. The new process goes on behind
the last purge that the outbox acknowledged to the old one. The result goes to benchmarks/results/purge_endurance.json; the exit
status is 1 if a purge was lost, the provider refused a request, or the backlog was not sent within the announced bound.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks import harness
from benchmarks.setups.purge_api import Account, AccountPlace, purge_api
from quaestor.cdn_adapters.backlog import Backlog
from quaestor.purge_ports import QueueSize
from quaestor.redis.clients import shared_client
from quaestor.store.outbox_redis import RedisOutbox
from quaestor.testing import servers

PROCESSES: Final = 4
DEPLOYMENTS: Final = ("endurance-0", "endurance-1")
LEASES_S: Final = 30.0
"""Longest time that the last one killed may keep the others waiting; added to the announced bound."""
KILLED_WITHIN_S: Final = 30.0
"""Longest time that a killed process may take to be gone, and its last words to be read."""
PROGRESS_EVERY_S: Final = 30.0
AIM: Final = "none lost, none refused, no dead letter, and what was open at the end sent within the announced bound"


@dataclass(slots=True)
class Lane:
    """A range of purges, which one process at a time puts in.

    reached: the first purge that the outbox has not acknowledged.
    ready: whether its process has started; no process is killed before all have started.
    """

    deployment: str
    reached: int
    end: int
    pace: float
    ready: bool = False
    process: subprocess.Popen[str] | None = None
    reader: threading.Thread | None = None

    def start(self, redis_url: str, account: Account) -> None:
        """Start a process that goes on with it."""
        arguments = [
            redis_url, self.deployment, account.url, account.per_s, account.burst, self.reached,
            self.end - self.reached, self.pace,
        ]  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.setups.purge_worker", *map(str, arguments)],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self.reader.start()

    def kill(self) -> None:
        """Kill its process, and hear what it said last."""
        assert self.process is not None
        assert self.reader is not None
        self.process.kill()
        self.process.wait(KILLED_WITHIN_S)
        self.reader.join(KILLED_WITHIN_S)
        self.ready = False

    def require_running(self) -> None:
        """Raises RuntimeError if its process has ended by itself: nothing would come of this lane any more."""
        assert self.process is not None
        status = self.process.poll()
        if status is not None:
            raise RuntimeError(
                f"the process of {self.deployment} from p{self.reached} on has ended by itself: {status}"
            )

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self.ready = True
                if line.startswith("p"):
                    self.reached = int(line[1:]) + 1


@dataclass(slots=True)
class Run:
    """A run and what it has come to.

    size: of all queues together.
    """

    purges: int
    account: Account
    redis_url: str
    kill_every_s: float
    lanes: list[Lane] = field(default_factory=list)
    kills: int = 0

    def size(self) -> QueueSize:
        """Size of both queues together."""
        sizes = asyncio.run(self._sizes())
        return QueueSize(
            waiting=sum(size.waiting for size in sizes),
            taken=sum(size.taken for size in sizes),
            dead=sum(size.dead for size in sizes),
            oldest_ms=min((size.oldest_ms for size in sizes if size.oldest_ms is not None), default=None),
        )

    async def _sizes(self) -> list[QueueSize]:
        client = shared_client(self.redis_url, timeout_s=30.0)
        try:
            outboxes = [RedisOutbox(client, deployment=name) for name in DEPLOYMENTS]
            return [await outbox.size(queue) for outbox in outboxes for queue in await outbox.queues()]
        finally:
            await client.aclose()

    def kill_until(self, done: Callable[[], bool], *, within_s: float) -> float:
        """Kill a process every so often until then; return the seconds it took. Raises TimeoutError or RuntimeError."""
        began_s = killed_s = told_s = time.monotonic()
        while not done():
            now_s = time.monotonic()
            if now_s - began_s > within_s:
                raise TimeoutError(f"{len(self.account.purged)} of {self.purges} purges came within {within_s:.0f} s")
            for lane in self.lanes:
                lane.require_running()
            if now_s - told_s >= PROGRESS_EVERY_S:
                told_s = now_s
                print(
                    f"{len(self.account.purged)} of {self.purges} purged, {self.kills} kills",
                    file=sys.stderr,
                    flush=True,
                )
            if not all(lane.ready for lane in self.lanes):
                killed_s = now_s  # the one before is not replaced yet
            elif now_s - killed_s >= self.kill_every_s:
                killed_s = now_s
                victim = random.choice(self.lanes)
                victim.kill()
                self.kills += 1
                victim.start(self.redis_url, self.account)
            time.sleep(0.2)
        return time.monotonic() - began_s


def run(purges: int, *, per_s: float, burst: int, kill_every_s: float) -> dict[str, Any]:
    """Put and send so many purges; what became of them."""
    with ExitStack() as stack:
        redis = stack.enter_context(servers.running(servers.redis_server, "valkey"))
        account = stack.enter_context(purge_api(per_s=per_s, burst=burst))
        made = Run(purges, account, redis.url, kill_every_s)
        place = AccountPlace(account.url, bucket=account.url, per_s=per_s, burst=burst)
        capacity_per_s = per_s * place.capabilities.batch_of("tag")
        share = purges // PROCESSES
        for n in range(PROCESSES):
            end = purges if n == PROCESSES - 1 else (n + 1) * share
            pace = 1.2 * capacity_per_s / PROCESSES  # more than it takes, so that something always waits
            made.lanes.append(Lane(DEPLOYMENTS[n % len(DEPLOYMENTS)], n * share, end, pace))
        stack.callback(lambda: [lane.kill() for lane in made.lanes])
        for lane in made.lanes:
            lane.start(redis.url, account)
        limit_s = 600 + 3 * purges / capacity_per_s
        putting_s = made.kill_until(lambda: all(lane.reached >= lane.end for lane in made.lanes), within_s=limit_s)
        size = made.size()
        bound_s = (Backlog(place.capabilities).drained_within_s(size) or 0.0) + LEASES_S
        draining_s = made.kill_until(lambda: len(account.purged) >= purges, within_s=limit_s)
        return {
            "purges": purges,
            "lost": purges - len(account.purged),
            "kills": made.kills,
            "processes": PROCESSES,
            "deployments": len(DEPLOYMENTS),
            "account": {"requests_per_s": per_s, "burst": burst},
            "requests": account.requests,
            "refused": account.refused,
            "sent_more_than_once": sum(number > 1 for number in account.purged.values()),
            "dead_letters": size.dead,
            "putting_s": round(putting_s, 1),
            "open_after_the_last": size.waiting + size.taken,
            "announced_bound_s": round(bound_s, 1),
            "drained_after_s": round(draining_s, 1),
        }


def complaints(result: dict[str, Any]) -> Sequence[str]:
    """Return the faults of a result."""
    failures = [name for name in ("lost", "refused", "dead_letters") if result[name]]
    return [*failures, *(["late"] if result["drained_after_s"] > result["announced_bound_s"] else [])]


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--purges", type=int, default=1_000_000)
    parser.add_argument("--per-s", type=float, default=20.0, help="requests that the account allows in a second")
    parser.add_argument("--burst", type=int, default=40)
    parser.add_argument("--kill-every-s", type=float, default=10.0)
    parser.add_argument("--no-save", action="store_true", help="print only")
    options = parser.parse_args()
    result = run(options.purges, per_s=options.per_s, burst=options.burst, kill_every_s=options.kill_every_s)
    wrong = complaints(result)
    if options.no_save:
        print(result)
    else:
        harness.save("purge_endurance", {"aim": AIM, **result, "wrong": wrong})
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

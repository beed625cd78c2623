"""Several processes with one account: the rate limit holds for all together, and no purge is lost when a process is killed."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from redis import Redis

from benchmarks.setups.purge_api import Account, purge_api
from tests.support import DEADLINE_S, eventually, killed_after

pytestmark = pytest.mark.anyio

PUT_WITHIN_S = 120.0

Start = Callable[..., "subprocess.Popen[str]"]


@contextmanager
def workers(redis_url: str, deployment: str, account: Account) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def start(first: int, count: int, *, queue: str = "", limited: bool = True) -> subprocess.Popen[str]:
        per_s = account.per_s if limited else 0
        arguments = [redis_url, deployment + queue, account.url, per_s, account.burst, first, count]
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.setups.purge_worker", *map(str, arguments)],
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in started:
            process.kill()
            process.communicate(timeout=DEADLINE_S)


def put_all(process: subprocess.Popen[str], last: int) -> None:
    """Returns when the outbox has everything that this process puts in."""
    assert process.stdout is not None
    with killed_after(PUT_WITHIN_S, process):
        for line in process.stdout:
            if line.strip() == f"p{last}":
                return
    raise AssertionError("the worker has ended")


@pytest.mark.timeout(300)
async def test_four_processes_on_one_account_never_exceed_it_and_lose_nothing(redis_url: str, prefix: str) -> None:
    """A burst of 10,000 invalidations against five requests a second: the provider refuses none of them."""
    with purge_api(per_s=5, burst=25) as account, workers(redis_url, prefix, account) as start:
        processes = [start(2_500 * n, 2_500) for n in range(4)]
        for n, process in enumerate(processes):
            put_all(process, 2_500 * n + 2_499)
        await eventually(lambda: len(account.purged) == 10_000, within_s=120)
        assert account.refused == 0
        assert account.requests <= 160, "what waits together goes together"


@pytest.mark.timeout(300)
async def test_several_queues_of_one_account_never_exceed_it(redis_url: str, prefix: str) -> None:
    """Each has a sender of its own, and all of them send at the same time: still the provider refuses nothing."""
    with purge_api(per_s=50, burst=2) as account, workers(redis_url, prefix, account) as start:
        processes = [start(5_000 * n, 5_000, queue=f"-{n}") for n in range(4)]
        for n, process in enumerate(processes):
            put_all(process, 5_000 * n + 4_999)
        await eventually(lambda: len(account.purged) == 20_000, within_s=120)
        assert account.refused == 0


@pytest.mark.timeout(300)
async def test_purges_in_the_outbox_are_sent_although_processes_are_killed(redis_url: str, prefix: str) -> None:
    """After kill -9 of any process, the leader included, its purges come back when its leases are over."""
    with purge_api(per_s=20, burst=5) as account, workers(redis_url, prefix, account) as start:
        lives = [start(0, 1_000)]
        put_all(lives[0], 999)
        for round_ in range(1, 4):
            lives.append(start(1_000 * round_, 1_000))
            put_all(lives[-1], 1_000 * round_ + 999)
            victim = lives.pop(random.randrange(len(lives)))
            victim.kill()
            victim.wait(DEADLINE_S)
        if not lives:
            lives.append(start(0, 1))
        expected = {f"p{n}" for n in range(4_000)}
        await eventually(lambda: expected <= account.purged.keys(), within_s=120)


@pytest.mark.timeout(300)
async def test_concurrent_purges_under_way_are_sent_although_the_process_is_killed(redis_url: str, prefix: str) -> None:
    """After kill -9 with several requests under way and more behind them, the next sender gets all of them once the
    lease is over.
    """
    with purge_api(per_s=100_000, burst=100_000) as account, workers(redis_url, prefix, account) as start:
        account.answers.clear()
        victim = start(0, 1_000, limited=False)
        put_all(victim, 999)
        victim.kill()
        victim.wait(DEADLINE_S)
        assert not account.purged
        account.answers.set()
        start(1_000, 1, limited=False)
        expected = {f"p{n}" for n in range(1_001)}
        await eventually(lambda: expected <= account.purged.keys(), within_s=120)


@pytest.mark.slow
async def test_a_million_purges_while_processes_are_killed_again_and_again(redis_url: str, prefix: str) -> None:
    """0 lost. Redis itself stays up, as for everything else that is shared."""
    total, share = 1_000_000, 25_000
    with purge_api(per_s=1_000, burst=1_000) as account, workers(redis_url, prefix, account) as start:
        lives: list[subprocess.Popen[str]] = []
        for first in range(0, total, share):
            lives.append(start(first, share))
            put_all(lives[-1], first + share - 1)
            if len(lives) > 3:
                victim = lives.pop(random.randrange(len(lives)))
                victim.kill()
                victim.wait(DEADLINE_S)
        await eventually(lambda: len(account.purged) == total, within_s=1_800)
    with Redis.from_url(redis_url) as redis:
        assert redis.hlen(f"quaestor:{{{prefix}:purges}}:account {account.url}:dead") == 0

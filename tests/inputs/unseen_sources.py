"""Sources that handlers of a VerifiedSite read without the cache seeing it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from fastapi import Request

from tests.inputs.verified_site import VerifiedSite

Making = Callable[[VerifiedSite, Path], Callable[[Request], Awaitable[Any]]]
"""A source for a site; with a file of its own."""


def a_counter(site: VerifiedSite, _: Path) -> Callable[[Request], Awaitable[Any]]:
    async def source(_: Request) -> int:
        return site.runs

    return source


def a_file(site: VerifiedSite, path: Path) -> Callable[[Request], Awaitable[Any]]:
    """Somebody writes to it each time after it was read."""

    def read() -> str:
        said = path.read_text() if path.exists() else ""
        path.write_text(f"{said}.")
        return said

    async def source(_: Request) -> str:
        return await anyio.to_thread.run_sync(read)

    return source


def chance(site: VerifiedSite, _: Path) -> Callable[[Request], Awaitable[Any]]:
    async def source(_: Request) -> float:
        return random.random()

    return source


def a_memo(site: VerifiedSite, _: Path) -> Callable[[Request], Awaitable[Any]]:
    """Read from the database, and then used three times."""
    memo: list[Any] = []

    async def source(_: Request) -> Any:
        if not memo:
            memo.extend([await site.seen.rates.find_one({"_id": "eur"})] * 3)
        return memo.pop()

    return source


def a_worker(site: VerifiedSite, _: Path) -> Callable[[Request], Awaitable[Any]]:
    """A task that was begun earlier, and does what it is asked for by a queue."""
    questions: asyncio.Queue[asyncio.Future[int]] = asyncio.Queue()
    tasks: list[asyncio.Task[None]] = []

    async def work() -> None:
        done = 0
        while True:
            (await questions.get()).set_result(done := done + 1)

    async def source(_: Request) -> int:
        if not tasks:
            tasks.append(asyncio.create_task(work()))
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        questions.put_nowait(answer)
        return await answer

    return source

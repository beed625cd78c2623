"""Leaving of a client: work that the client has asked for ends with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from quaestor.admin.request import Refused
from quaestor.middleware.interface import Receive
from quaestor.tasks import client_left, ended

T = TypeVar("T")


async def while_there(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """Do some work, and cancel it when the client goes. Raises Refused then; no client receives that."""
    tasks = asyncio.create_task(work), asyncio.create_task(client_left(receive))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise Refused(400, "the client has gone")
        return tasks[0].result()
    finally:
        await ended(tasks)


async def each_while_there(items: AsyncGenerator[T, None], receive: Receive) -> AsyncGenerator[T, None]:
    """Items of a generator until the client goes, even during the work on the next item. Closes the generator."""
    leaving = asyncio.create_task(client_left(receive))
    try:
        async with aclosing(items):
            while True:
                following = asyncio.create_task(_next(items))
                try:
                    await asyncio.wait((following, leaving), return_when=asyncio.FIRST_COMPLETED)
                    if not following.done():
                        return
                finally:
                    await ended((following,))
                if not (results := following.result()):
                    return
                yield results[0]
    finally:
        await ended((leaving,))


async def _next(items: AsyncGenerator[T, None]) -> tuple[T, ...]:
    async for item in items:
        return (item,)
    return ()

"""Outbox of a socket: sends at once while nothing waits, and keeps the order behind a client that reads slowly."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from quaestor.live.websocket.outbox import Outbox, Queue
from quaestor.tasks import ended

pytestmark = pytest.mark.anyio


class Client:
    """Client that takes each message once its gate is open.

    taken: messages so far, and the task that sent each.
    """

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.taken: list[Any] = []
        self.tasks: set[asyncio.Task[Any] | None] = set()

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if self.error is not None:
            raise self.error
        await self.gate.wait()
        self.taken.append(message.get("text") or message.get("bytes"))
        self.tasks.add(asyncio.current_task())


class Draining:
    """An open outbox, and the tasks that drain it."""

    def __init__(self, client: Client) -> None:
        self.outbox = Outbox()
        self.begun: list[asyncio.Task[None]] = []
        self.outbox.open(client.send, drain=lambda: self.begun.append(asyncio.ensure_future(self.outbox.drain())))


async def test_messages_need_no_task_while_none_waits() -> None:
    client = Client()
    draining = Draining(client)
    for number in range(3):
        draining.outbox.put(f"{number}", lambda: "!")
    assert client.taken == ["0!", "1!", "2!"]
    assert (draining.begun, draining.outbox.sent) == ([], 3)


async def test_messages_behind_a_send_that_waits_keep_their_order() -> None:
    """A task goes on with the begun send. Messages at once follow when the outbox is empty again."""
    client = Client()
    draining = Draining(client)
    outbox = draining.outbox
    client.gate.clear()
    for number in range(3):
        outbox.put(str(number))
    assert (len(outbox), outbox.sending_since_s is not None, client.taken) == (2, True, [])
    client.gate.set()
    (task,) = draining.begun
    await task
    outbox.put("3")
    assert client.taken == ["0", "1", "2", "3"]
    assert (len(draining.begun), outbox.sent, outbox.sending_since_s) == (1, 4, None)


async def test_dropped_messages_are_not_sent() -> None:
    client, dropped, kept = Client(), Queue(), Queue()
    draining = Draining(client)
    client.gate.clear()
    for queue in (None, dropped, kept, dropped):
        draining.outbox.put(f"{queue is kept}", queue=queue)
    assert (dropped.waiting, kept.waiting) == (2, 1)
    dropped.drop()
    client.gate.set()
    await draining.begun[0]
    assert client.taken == ["False", "True"]
    assert (dropped.waiting, kept.waiting) == (0, 0)


async def test_an_error_at_once_reaches_the_sockets_task_and_not_the_sender() -> None:
    """A group sends to many sockets: the failure of one is no other's."""
    client = Client()
    draining = Draining(client)
    client.error = OSError("gone")
    draining.outbox.put("a")
    draining.outbox.put("b")
    with pytest.raises(OSError, match="gone"):
        await draining.begun[0]
    assert (len(draining.begun), draining.outbox.sent) == (1, 0)


async def test_a_closed_outbox_sends_nothing() -> None:
    client = Client()
    draining = Draining(client)
    client.gate.clear()
    draining.outbox.put("a")
    draining.outbox.close()
    client.gate.set()
    await draining.begun[0]
    draining.outbox.put("b")
    assert client.taken == ["a"]


async def test_a_single_task_sends_everything_where_sends_must_not_change_their_task() -> None:
    client, outbox = Client(), Outbox()
    outbox.open(client.send, drain=None)
    outbox.put("a")
    task = asyncio.ensure_future(outbox.run())
    for text in ("b", "c"):
        await asyncio.sleep(0)
        outbox.put(text)
    while len(client.taken) < 3:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert (client.taken, client.tasks) == (["a", "b", "c"], {task})
    await ended([task])

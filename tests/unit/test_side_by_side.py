"""Requests to a place without rates, side by side: none waits for the answer to another, and each is answered for itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from quaestor.cdn_adapters import BatchLimits
from quaestor.cdn_adapters.answers import Answer, Delivered, Rejected
from quaestor.cdn_adapters.place import Connection, Target
from quaestor.cdn_adapters.requests import SIDE_BY_SIDE
from quaestor.cdn_adapters.sender import Sender
from quaestor.cdn_adapters.sender_options import SenderContext, SenderOptions
from quaestor.errors import CdnError
from tests.support import eventually
from tests.unit.test_purge_sender import LIMITED, Api

pytestmark = pytest.mark.anyio

EACH_ALONE = replace(LIMITED, rates=(), batch={})
GATHERING = replace(LIMITED, rates=())
LATER_MS = 3_600_000_000


class Held(Api):
    """A place that answers a request when the test lets it."""

    def __init__(self, capabilities: Any = EACH_ALONE) -> None:
        super().__init__(capabilities)
        self.open: dict[str, asyncio.Future[Answer]] = {}
        self.most = 0
        self.connected = 0

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Connection]:
        self.connected += 1
        yield self

    async def send(self, targets: Sequence[Target]) -> Answer:
        values = tuple(target.value for target in targets)
        self.requests.append((self.now_ms, values))
        answer = self.open[" ".join(values)] = asyncio.get_running_loop().create_future()
        self.most = max(self.most, len(self.open))
        try:
            return await answer
        finally:
            self.open.pop(" ".join(values), None)

    def answer(self, *tags: str) -> None:
        for tag in tags:
            self.open[tag].set_result(Delivered())

    def answer_all(self) -> None:
        self.answer(*self.open)

    def fail(self, tag: str, error: Exception | None = None) -> None:
        self.open[tag].set_exception(error or CdnError("away"))


async def put_all(api: Api, sender: Sender, *tags: str) -> list[asyncio.Future[None]]:
    """Return the wait for each of them, by itself."""
    return [asyncio.ensure_future(api.purged(sender, tag)) for tag in tags]


async def test_no_purge_waits_for_a_slow_answer_to_another() -> None:
    """A purge waits for no answer to another one sent before it or with it, and is over with its own answer."""
    api = Held()
    async with api.sender(repurge_after_ms=LATER_MS) as sender:
        slow, fast = await put_all(api, sender, "slow", "fast")
        await eventually(lambda: api.open.keys() == {"slow", "fast"})
        api.answer("fast")
        await fast
        for n in range(20):
            [later] = await put_all(api, sender, f"later-{n}")
            await eventually(lambda n=n: f"later-{n}" in api.open)
            api.answer(f"later-{n}")
            await later
        assert not slow.done()
        api.answer("slow")
        await slow


async def test_no_more_are_under_way_than_a_cache_of_ones_own_stands() -> None:
    api = Held()
    async with api.sender(repurge_after_ms=LATER_MS) as sender:
        waits = await put_all(api, sender, *(f"t{n}" for n in range(50)))
        while not all(wait.done() for wait in waits):
            await eventually(lambda: bool(api.open) or all(wait.done() for wait in waits))
            api.answer_all()
            await asyncio.sleep(0)
    assert api.most == SIDE_BY_SIDE


@pytest.mark.parametrize("limited", [True, False], ids=["rates", "pause"])
async def test_a_place_with_rates_or_with_a_pause_is_sent_one_after_the_other(limited: bool) -> None:
    """Each is acknowledged to the outbox before the next one is sent."""
    api = Held(replace(LIMITED, batch={}) if limited else EACH_ALONE)
    limits = BatchLimits() if limited else BatchLimits(pause_ms=5)
    sender = Sender(
        api,
        api.outbox,
        options=SenderOptions(repurge_after_ms=LATER_MS, limits=limits),
        context=SenderContext.of(clock=lambda: api.now_ms, sleep=api.sleep),
    )
    sender.start()
    try:
        waits = await put_all(api, sender, *(f"t{n}" for n in range(10)))
        for done in range(10):
            await eventually(lambda: len(api.open) == 1)
            size = await api.outbox.size(sender.queue)
            assert size.waiting + size.taken == 10 - done
            for _ in range(20):  # turns of the loop in which another could be sent
                await asyncio.sleep(0)
            api.answer_all()
            await eventually(lambda done=done: len(api.requests) == done + 2 or all(wait.done() for wait in waits))
        await asyncio.gather(*waits)
    finally:
        await sender.aclose()
    assert api.most == 1
    if not limited:
        assert [later - sooner for (sooner, _), (later, _) in zip(api.requests, api.requests[1:], strict=False)] == [
            5
        ] * 9


async def test_concurrent_failures_lengthen_the_pause_once() -> None:
    """A cache that is gone for a moment gets a shorter pause than one that has failed so often in a row."""
    api = Held()
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await Api.sleep(api, seconds)

    api.sleep = sleep  # type: ignore[method-assign]
    async with api.sender(repurge_after_ms=LATER_MS) as sender:
        waits = await put_all(api, sender, *(f"t{n}" for n in range(SIDE_BY_SIDE)))
        await eventually(lambda: len(api.open) == SIDE_BY_SIDE)
        for tag in list(api.open):
            api.fail(tag)
        await eventually(lambda: len(api.requests) > SIDE_BY_SIDE)
        assert slept
        assert max(slept) <= BatchLimits().first_retry_ms / 1_000
        assert sender.state == "dark"
        while not all(wait.done() for wait in waits):
            await eventually(lambda: bool(api.open) or all(wait.done() for wait in waits))
            api.answer_all()
            await asyncio.sleep(0)
        assert sender.state == "ok"
    assert len(api.requests) == 2 * SIDE_BY_SIDE


async def test_nothing_is_sent_during_a_pause() -> None:
    """Purges that arrive during the pause wait for its end, as failed ones do."""
    api = Held()
    resting = asyncio.Event()
    over = asyncio.Event()

    async def sleep(seconds: float) -> None:
        api.now_ms += int(seconds * 1_000)
        resting.set()
        await over.wait()

    api.sleep = sleep  # type: ignore[method-assign]
    async with api.sender(repurge_after_ms=LATER_MS) as sender:
        [first] = await put_all(api, sender, "first")
        await eventually(lambda: bool(api.open))
        api.fail("first")
        await resting.wait()
        [second] = await put_all(api, sender, "second")
        for _ in range(50):
            await asyncio.sleep(0)
        assert api.sent == [("first",)]
        over.set()
        await eventually(lambda: api.open.keys() == {"first", "second"})
        api.answer_all()
        await asyncio.gather(first, second)


async def test_a_target_refused_alone_is_found_while_others_are_under_way_all_the_time() -> None:
    """Its batch is sent again in halves; what is put in meanwhile goes on as it is, and does not keep it from being found."""

    class Refusing(Api):
        more = 200
        own: Sender

        async def send(self, targets: Sequence[Target]) -> Answer:
            self.requests.append((self.now_ms, tuple(target.value for target in targets)))
            if self.more:
                self.more -= 1
                self.waits.append(asyncio.ensure_future(self.purged(self.own, f"more-{self.more}")))
            await asyncio.sleep(0)
            return Rejected(reason="bad tag") if any(target.value == "t3" for target in targets) else Delivered()

    api = Refusing(GATHERING)
    api.waits: list[asyncio.Future[None]] = []  # type: ignore[misc]
    async with api.sender(repurge_after_ms=LATER_MS) as api.own:
        await api.put(api.own, *(f"t{n}" for n in range(8)))

        async def buried() -> bool:
            return (await api.outbox.size(api.own.queue)).dead == 1

        await eventually(buried)
        await eventually(lambda: not api.more and all(wait.done() for wait in api.waits))
        [letter] = await api.outbox.dead(api.own.queue, count=10)
        assert (letter.member, letter.reason) == ("0tag t3", "bad tag")
        assert (await api.outbox.size(api.own.queue)).taken == 0
    refused = [batch for batch in api.sent if "t3" in batch]
    assert [len(batch) for batch in refused] == [8, 4, 2, 1]


async def test_due_targets_leave_room_for_new_ones() -> None:
    """However much it is, and however slow its answers are."""
    api = Held()
    async with api.sender(repurge_after_ms=LATER_MS) as sender:
        left_behind = [f"0tag due-{n}" for n in range(100)]
        await api.outbox.put(sender.queue, left_behind, until_ms=api.now_ms + 3_600_000, now_ms=api.now_ms)
        await eventually(lambda: len(api.open) == SIDE_BY_SIDE // 2)
        [wait] = await put_all(api, sender, "own")
        await eventually(lambda: "own" in api.open)
        api.answer("own")
        await wait
        assert len(api.open) == SIDE_BY_SIDE // 2


async def test_new_targets_leave_room_for_due_ones() -> None:
    """However much it is: by turns."""
    api = Held()
    async with api.sender(repurge_after_ms=LATER_MS) as sender:
        waits = await put_all(api, sender, *(f"own-{n}" for n in range(1_000)))
        left_behind = [f"0tag due-{n}" for n in range(10)]
        await api.outbox.put(sender.queue, left_behind, until_ms=api.now_ms + 3_600_000, now_ms=api.now_ms)
        async with asyncio.timeout(20):
            while not {f"due-{n}" for n in range(10)} <= {tag for batch in api.sent for tag in batch}:
                api.answer_all()
                await asyncio.sleep(0.001)
        assert not all(wait.done() for wait in waits), "while there was something to send all the time"
        while not all(wait.done() for wait in waits):
            api.answer_all()
            await asyncio.sleep(0)


async def test_a_mistake_ends_the_connection_when_the_others_were_answered() -> None:
    """The mistake may be ours or a provider module's.

    The purges of the failed request come back when their lease is over.
    """
    api = Held()
    async with api.sender(repurge_after_ms=LATER_MS) as sender:
        [wrong, other] = await put_all(api, sender, "wrong", "other")
        await eventually(lambda: len(api.open) == 2)
        api.fail("wrong", TypeError("oh"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert (api.connected, list(api.open)) == (1, ["other"])
        api.answer("other")
        await other
        await eventually(lambda: api.connected == 2)
        api.now_ms += 60_000
        await eventually(lambda: "wrong" in api.open)
        api.answer("wrong")
        await wrong
    assert api.telemetry.failures.labels("engine")._value.get() == 1


async def test_a_connection_that_cannot_be_opened_is_tried_again() -> None:
    class Shut(Held):
        @asynccontextmanager
        async def connect(self) -> AsyncIterator[Connection]:
            self.connected += 1
            if self.connected < 3:
                raise OSError("shut")
            yield self

    api = Shut()
    async with api.sender(repurge_after_ms=LATER_MS) as sender:
        [wait] = await put_all(api, sender, "a")
        await eventually(lambda: bool(api.open))
        api.answer("a")
        await wait


async def test_a_refused_batch_sent_in_halves_is_not_lost_by_closing() -> None:
    """The half that is under way, and the one that is not yet."""
    api = Held(GATHERING)
    async with api.sender(repurge_after_ms=LATER_MS) as sender:
        await api.put(sender, "a", "b", "c", "d")
        await eventually(lambda: "a b c d" in api.open)
        api.open["a b c d"].set_result(Rejected(reason="bad tag"))
        await eventually(lambda: "a b" in api.open)
    size = await api.outbox.size(sender.queue)
    assert (size.waiting, size.taken, size.dead) == (4, 0, 0)


@pytest.mark.parametrize("longest_s", [3_600.0, 0.0])
async def test_targets_added_during_a_request_of_several_go_with_the_next(
    monkeypatch: pytest.MonkeyPatch, longest_s: float
) -> None:
    """As long as that one does not take too long."""
    monkeypatch.setattr("quaestor.cdn_adapters.side_by_side._LONGEST_REST_S", longest_s)
    api = Held(GATHERING)
    async with api.sender(repurge_after_ms=LATER_MS) as sender:
        waits = await put_all(api, sender, "slow")
        await eventually(lambda: "slow" in api.open)
        waits += await put_all(api, sender, "b", "c")
        if longest_s:
            for _ in range(50):
                await asyncio.sleep(0)
            assert list(api.open) == ["slow"]
            api.answer("slow")
        await eventually(lambda: "b c" in api.open)
        api.answer_all()
        await asyncio.gather(*waits)
    assert api.sent == [("slow",), ("b", "c")]


async def test_new_purges_do_not_wait_for_the_answer_to_due_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a request takes several purges, due purges have their own request, after which there is no rest."""
    monkeypatch.setattr("quaestor.cdn_adapters.side_by_side._LONGEST_REST_S", 3_600.0)
    api = Held(GATHERING)
    async with api.sender(repurge_after_ms=LATER_MS) as sender:
        await api.outbox.put(sender.queue, ["0tag due"], until_ms=api.now_ms + 3_600_000, now_ms=api.now_ms)
        await eventually(lambda: "due" in api.open)
        [wait] = await put_all(api, sender, "own")
        await eventually(lambda: "own" in api.open)
        api.answer("own")
        await wait
        assert list(api.open) == ["due"]

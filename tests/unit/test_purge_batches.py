"""Purges on their way to one place: gathered, sent once, and never lost. The place is driven by hand here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from anyio.lowlevel import checkpoint

from quaestor.cdn_adapters.batching import BatchLimits, Outcome, PurgeBatches, PurgeEvent
from quaestor.cdn_adapters.place import TAG, URL, Send, Target
from quaestor.errors import CdnError

pytestmark = pytest.mark.anyio

A, B, C = Target(TAG, "a"), Target(TAG, "b"), Target(URL, "http://host/c")


class Place:
    """A place that takes batches one at a time. The test decides each answer and the passing of time."""

    def __init__(self) -> None:
        self.batches: list[tuple[Target, ...]] = []
        self.events: list[PurgeEvent] = []
        self.now_ms = 0.0
        self.connections = 0
        self.slept_s: list[float] = []
        self._answers: asyncio.Queue[Exception | None] = asyncio.Queue()
        self._sent = asyncio.Event()
        self._asleep = asyncio.Event()
        self._wake = asyncio.Event()

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Send]:
        self.connections += 1

        async def send(targets: Sequence[Target]) -> None:
            self.batches.append(tuple(targets))
            self._sent.set()
            error = await self._answers.get()
            if error is not None:
                raise error

        yield send

    async def sleep(self, seconds: float) -> None:
        if seconds:
            self.slept_s.append(seconds)
            self._asleep.set()
            await self._wake.wait()
            self._wake.clear()
        else:
            await checkpoint()

    async def sent(self) -> tuple[Target, ...]:
        """The next batch that arrives."""
        await self._sent.wait()
        self._sent.clear()
        return self.batches[-1]

    def acknowledge(self) -> None:
        self._answers.put_nowait(None)

    def refuse(self, error: Exception | None = None) -> None:
        self._answers.put_nowait(error or CdnError("down"))

    async def wake(self) -> None:
        """Let the pause that is being made, or about to be made, end."""
        await self._asleep.wait()
        self._asleep.clear()
        self._wake.set()

    def batches_of(self, **limits: int) -> PurgeBatches:
        return PurgeBatches(
            self.connect,
            place="there",
            limits=BatchLimits(**limits),
            observe=self.events.append,
            sleep=self.sleep,
            clock=lambda: self.now_ms,
        )

    def outcomes(self) -> list[tuple[Outcome, int]]:
        return [(event.outcome, event.targets) for event in self.events]


@pytest.fixture
def place() -> Place:
    return Place()


async def test_purges_of_the_same_moment_go_in_one_batch_each_target_once(place: Place) -> None:
    batches = place.batches_of()
    calls = [asyncio.create_task(batches.purge(targets)) for targets in ([A], [B, A], [C], [A])]
    assert await place.sent() == (A, B, C)
    place.acknowledge()
    await asyncio.gather(*calls)
    assert len(place.batches) == 1
    assert place.outcomes() == [(Outcome.PURGED, 3)]
    assert batches.pending == 0
    await batches.aclose()


async def test_nothing_is_acknowledged_before_the_place_has_acknowledged_it(place: Place) -> None:
    batches = place.batches_of(max_targets=1)
    both = asyncio.create_task(batches.purge([A, B]))
    await place.sent()
    place.acknowledge()
    assert await place.sent() == (B,)
    assert not both.done()
    place.acknowledge()
    await both
    await batches.aclose()


async def test_a_target_that_comes_in_while_it_is_under_way_is_sent_again(place: Place) -> None:
    """The purge under way may have happened before the write that the second caller knows of."""
    batches = place.batches_of()
    first = asyncio.create_task(batches.purge([A]))
    await place.sent()
    second = asyncio.create_task(batches.purge([A]))
    place.acknowledge()
    await first
    assert await place.sent() == (A,)
    assert not second.done()
    place.acknowledge()
    await second
    await batches.aclose()


async def test_the_first_purge_of_an_idle_place_may_wait_for_company(place: Place) -> None:
    batches = place.batches_of(linger_ms=5)
    first = asyncio.create_task(batches.purge([A]))
    await place._asleep.wait()
    second = asyncio.create_task(batches.purge([B]))
    await checkpoint()
    await place.wake()
    assert await place.sent() == (A, B)
    assert place.slept_s == [0.005]
    place.acknowledge()
    await asyncio.gather(first, second)
    await batches.aclose()


async def test_batches_are_cut_by_number_and_by_bytes(place: Place) -> None:
    batches = place.batches_of(max_targets=3, max_bytes=10)
    targets = [Target(TAG, value) for value in ("a", "b", "c", "d", "e" * 7, "f" * 100, "g")]
    call = asyncio.create_task(batches.purge(targets))
    for expected in (("a", "b", "c"), ("d", "e" * 7), ("f" * 100,), ("g",)):
        assert tuple(target.value for target in await place.sent()) == expected
        place.acknowledge()
    await call
    await batches.aclose()


async def test_a_failure_reaches_the_caller_and_the_target_is_tried_again_by_itself(place: Place) -> None:
    batches = place.batches_of(first_retry_ms=50)
    call = asyncio.create_task(batches.purge([A]))
    await place.sent()
    place.refuse(CdnError("out of order"))
    with pytest.raises(CdnError, match="out of order") as failure:
        await call
    assert failure.value.retry_after_s == 0.05
    assert batches.pending == 1
    await place.wake()
    assert await place.sent() == (A,)
    again = asyncio.create_task(batches.purge([B]))
    place.acknowledge()
    await place.sent()
    place.acknowledge()
    await again
    assert batches.pending == 0
    assert place.outcomes() == [(Outcome.FAILED, 1), (Outcome.PURGED, 1), (Outcome.PURGED, 1)]
    await batches.aclose()


async def test_asking_again_after_a_failure_waits_for_the_next_attempt(place: Place) -> None:
    """As callers do that must not go on before the purge is effective: no double work, the same target once."""
    batches = place.batches_of()
    first = asyncio.create_task(batches.purge([A]))
    await place.sent()
    place.refuse()
    with pytest.raises(CdnError):
        await first
    again = asyncio.create_task(batches.purge([A]))
    await place.wake()
    assert await place.sent() == (A,)
    place.acknowledge()
    await again
    await batches.aclose()


async def test_pauses_double_up_to_a_limit_and_a_success_resets_them(place: Place) -> None:
    batches = place.batches_of(first_retry_ms=100, last_retry_ms=300)
    calls = [asyncio.create_task(batches.purge([A]))]
    for _ in range(4):
        await place.sent()
        place.refuse()
        await place.wake()
    await place.sent()
    place.acknowledge()
    calls.append(asyncio.create_task(batches.purge([B])))
    await place.sent()
    place.refuse()
    await place.wake()
    await place.sent()
    place.acknowledge()
    await asyncio.gather(*calls, return_exceptions=True)
    assert place.slept_s == [0.1, 0.2, 0.3, 0.3, 0.1]
    await batches.aclose()


async def test_a_place_that_says_when_to_come_back_is_obeyed(place: Place) -> None:
    batches = place.batches_of()
    call = asyncio.create_task(batches.purge([A]))
    await place.sent()
    place.refuse(CdnError("too many", retry_after_s=7.0))
    with pytest.raises(CdnError):
        await call
    await place._asleep.wait()
    assert place.slept_s == [7.0]
    await batches.aclose()


async def test_a_place_that_limits_the_rate_is_given_a_pause_after_each_batch(place: Place) -> None:
    """Purges that arrive during the pause wait, and go together."""
    batches = place.batches_of(pause_ms=250)
    first = asyncio.create_task(batches.purge([A]))
    await place.sent()
    place.acknowledge()
    await first
    rest = [asyncio.create_task(batches.purge([target])) for target in (B, C)]
    await place._asleep.wait()
    await checkpoint()
    assert place.batches == [(A,)]
    await place.wake()
    assert await place.sent() == (B, C)
    assert place.slept_s == [0.25]
    place.acknowledge()
    await asyncio.gather(*rest)
    await batches.aclose()


async def test_one_target_that_is_always_refused_does_not_hold_up_the_others(place: Place) -> None:
    """The refused target ends up in its own batch, at the end of the queue."""
    batches = place.batches_of(max_targets=8)
    calls = [asyncio.create_task(batches.purge([Target(TAG, value)])) for value in "abcdXefg"]
    done: set[str] = set()
    for _ in range(40):
        batch = await place.sent()
        if any(target.value == "X" for target in batch):
            place.refuse()
            await place.wake()
        else:
            done |= {target.value for target in batch}
            place.acknowledge()
        if done == set("abcdefg"):
            break
    assert done == set("abcdefg")
    while len(place.batches) and place.batches[-1] != (Target(TAG, "X"),):
        await place.sent()
    assert batches.pending == 1
    await asyncio.gather(*calls, return_exceptions=True)
    await batches.aclose()


async def test_a_target_is_given_up_only_when_every_copy_is_dead(place: Place) -> None:
    batches = place.batches_of(copies_live_ms=1_000)
    old = asyncio.create_task(batches.purge([A]))
    await place.sent()
    place.now_ms = 600
    young = asyncio.create_task(batches.purge([B]))
    await checkpoint()
    place.now_ms = 1_000
    place.refuse()
    await asyncio.gather(old, young, return_exceptions=True)
    assert batches.pending == 1
    assert place.outcomes() == [(Outcome.FAILED, 1), (Outcome.ABANDONED, 1)]
    await place.wake()
    assert await place.sent() == (B,)
    await batches.aclose()


async def test_asking_again_renews_how_long_a_target_is_kept(place: Place) -> None:
    """Newer copies may have been made since."""
    batches = place.batches_of(copies_live_ms=1_000)
    first = asyncio.create_task(batches.purge([A]))
    await place.sent()
    place.refuse()
    await asyncio.gather(first, return_exceptions=True)
    place.now_ms = 900
    again = asyncio.create_task(batches.purge([A]))
    await checkpoint()
    place.now_ms = 1_500
    await place.wake()
    await place.sent()
    place.refuse()
    await asyncio.gather(again, return_exceptions=True)
    assert batches.pending == 1
    await batches.aclose()


async def test_the_queue_is_bounded_and_says_so(place: Place) -> None:
    """A purge that finds no room is refused aloud, never dropped."""
    batches = place.batches_of(max_pending=2)
    call = asyncio.create_task(batches.purge([A, B]))
    await place.sent()
    with pytest.raises(CdnError, match="2 purges are waiting for there"):
        await batches.purge([C])
    assert batches.pending == 2
    place.acknowledge()
    await call
    await batches.aclose()


async def test_a_cancelled_caller_does_not_take_the_purge_with_it(place: Place) -> None:
    batches = place.batches_of(max_targets=1)
    impatient = asyncio.create_task(batches.purge([A, B]))
    await place.sent()
    impatient.cancel()
    await asyncio.gather(impatient, return_exceptions=True)
    place.acknowledge()
    assert await place.sent() == (B,)
    place.acknowledge()
    patient = asyncio.create_task(batches.purge([C]))
    await place.sent()
    place.acknowledge()
    await patient
    assert batches.pending == 0
    await batches.aclose()


async def test_any_error_of_the_place_becomes_a_cdn_error_and_work_goes_on(place: Place) -> None:
    batches = place.batches_of()
    call = asyncio.create_task(batches.purge([A]))
    await place.sent()
    place.refuse(ZeroDivisionError("a bug"))
    with pytest.raises(CdnError, match="a bug"):
        await call
    await place.wake()
    assert await place.sent() == (A,)
    await batches.aclose()


async def test_closing_tells_those_who_wait(place: Place) -> None:
    batches = place.batches_of()
    call = asyncio.create_task(batches.purge([A]))
    await place.sent()
    await batches.aclose()
    with pytest.raises(CdnError, match="closed"):
        await call
    assert place.outcomes() == [(Outcome.ABANDONED, 1)]
    await batches.aclose()


async def test_it_can_be_used_again_after_closing(place: Place) -> None:
    batches = place.batches_of()
    await batches.aclose()
    call = asyncio.create_task(batches.purge([A]))
    await place.sent()
    place.acknowledge()
    await call
    await batches.aclose()


async def test_purging_nothing_connects_to_nothing(place: Place) -> None:
    batches = place.batches_of()
    await batches.purge([])
    assert place.connections == 0


def test_a_second_event_loop_takes_over_what_the_first_left() -> None:
    """A server that reloads starts a new loop: pending purges are not lost, and nothing hangs on the old one."""
    place = Place()
    batches = place.batches_of()

    async def abandoned() -> None:
        task = asyncio.create_task(batches.purge([A]))
        await place.sent()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(abandoned())
    other = Place()
    batches._connect, batches._sleep = other.connect, other.sleep

    async def continued() -> None:
        call = asyncio.create_task(batches.purge([B]))
        assert set(await other.sent()) == {A, B}
        other.acknowledge()
        await call
        await batches.aclose()

    asyncio.run(continued())

"""The sender of one place: whole batches, within its rates, kept until acknowledged. A scripted place; sleeping passes time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from quaestor.cdn_adapters.answers import Accepted, Answer, Delivered, Pace, Rejected, Throttled
from quaestor.cdn_adapters.backlog import Backlog
from quaestor.cdn_adapters.capabilities import TAG, Capabilities, Cost, Owner, Rate, TagField, Unit
from quaestor.cdn_adapters.delivery import Delivery
from quaestor.cdn_adapters.place import Connection, Target, cheapest_targets
from quaestor.cdn_adapters.sender import Sender
from quaestor.cdn_adapters.sender_options import POLL_S, SenderContext, SenderOptions
from quaestor.cdn_adapters.side_by_side import SideBySide
from quaestor.cdn_adapters.tag_field import tag_headers
from quaestor.cdn_ports import Facts, Level
from quaestor.errors import CdnError, ConfigurationError, StoreError
from quaestor.observability.hooks import FailureSeen
from quaestor.observability.telemetry import Telemetry
from quaestor.purge_ports import Bucket
from quaestor.store.outbox_memory import MemoryOutbox
from tests.support import eventually

pytestmark = pytest.mark.anyio

RATE = Rate(bucket="api/account/1", owner=Owner.ACCOUNT, per_s=5, burst=26)
LIMITED = Capabilities(kinds=(TAG,), batch={TAG: 100}, tag_field=TagField(name="cache-tag"), rates=(RATE,))


class Api:
    """Provider that gives the answers that a test queues, and otherwise delivers."""

    name = "api"
    address = "zone 1"

    def __init__(self, capabilities: Capabilities = LIMITED) -> None:
        self.capabilities = capabilities
        self.now_ms = 1_700_000_000_000
        self.requests: list[tuple[int, tuple[str, ...]]] = []
        self.answers: deque[Answer | CdnError] = deque()
        self.refused: set[str] = set()
        self.gate: asyncio.Event | None = None
        self.outbox = MemoryOutbox()
        self.telemetry = Telemetry()

    def response_headers(self, tags: Sequence[str]) -> list[tuple[bytes, bytes]]:
        return tag_headers(self.capabilities.tag_field, tags)

    def targets(self, *, tags: Sequence[str], urls: Sequence[str]) -> list[Target]:
        return cheapest_targets(self.capabilities, tags=tags, urls=urls)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Connection]:
        yield self

    async def send(self, targets: Sequence[Target]) -> Answer:
        self.requests.append((self.now_ms, tuple(target.value for target in targets)))
        if self.gate is not None:
            await self.gate.wait()
        if self.refused.intersection(target.value for target in targets):
            return Rejected(reason="bad tag")
        return self._answer()

    async def completed(self, ticket: str) -> Answer:
        return self._answer()

    def _answer(self) -> Answer:
        answer = self.answers.popleft() if self.answers else Delivered()
        if isinstance(answer, CdnError):
            raise answer
        return answer

    async def sleep(self, seconds: float) -> None:
        self.now_ms += int(seconds * 1_000)
        await asyncio.sleep(0)

    @asynccontextmanager
    async def sender(self, repurge_after_ms: int = 1_000, budget_usd: float | None = None) -> AsyncIterator[Sender]:
        sender = Sender(
            self,
            self.outbox,
            options=SenderOptions(repurge_after_ms=repurge_after_ms, budget_usd=budget_usd),
            context=SenderContext.of(self.telemetry, clock=lambda: self.now_ms, sleep=self.sleep),
        )
        sender.start()
        try:
            yield sender
        finally:
            await sender.aclose()

    async def put(self, sender: Sender, *tags: str) -> Callable[[], object]:
        targets = [Target(TAG, tag) for tag in tags]
        return await sender.put(targets, until_ms=self.now_ms + 3_600_000)

    async def purged(self, sender: Sender, *tags: str) -> None:
        wait = await sender.put([Target(TAG, tag) for tag in tags], until_ms=self.now_ms + 3_600_000)
        await wait()

    async def looked(self, sender: Sender) -> tuple[str, int | None, float]:
        """Return the state, the longest life of copies and the bound of staleness, as processes read them."""
        state = await sender.watched.look(sender.state)
        stale_s = self.telemetry.purging.stale_s.labels("api")._value.get()
        return state, sender.watched.copies_live_ms(), stale_s

    @property
    def sent(self) -> list[tuple[str, ...]]:
        return [batch for _, batch in self.requests]


async def test_a_purge_is_waited_for_until_it_is_acknowledged_and_repeated_a_moment_later() -> None:
    """The second purge removes an answer that was being sent to the place during the first."""
    api = Api()
    async with api.sender(repurge_after_ms=700) as sender:
        await api.purged(sender, "a")
        first_ms = api.requests[0][0]
        assert api.sent == [("a",)]
        api.now_ms += 699
        await api.purged(sender, "b")
        assert api.sent == [("a",), ("b",)]
        api.now_ms = first_ms + 700
        await eventually(lambda: len(api.requests) == 3)
        assert api.sent[2] == ("a",)


async def test_waiting_purges_go_in_whole_batches_each_target_once() -> None:
    api = Api()
    async with api.sender() as sender:
        tags = [f"t{n}" for n in range(250)]
        await api.purged(sender, *tags, *tags[:50])
    assert [len(batch) for batch in api.sent] == [100, 100, 50]


async def test_no_more_requests_are_sent_than_the_bucket_holds_and_nothing_is_lost() -> None:
    """A burst of 10,000 invalidations against five requests a second: in any time at most the burst and what came back since."""
    api = Api(replace(LIMITED, batch={TAG: 100}))
    async with api.sender() as sender:
        await asyncio.gather(*(api.purged(sender, *(f"{call}-{n}" for n in range(100))) for call in range(100)))
    assert len({tag for batch in api.sent for tag in batch}) == 10_000
    times_ms = [at_ms for at_ms, _ in api.requests]
    for i, start_ms in enumerate(times_ms):
        for j in range(i, len(times_ms)):
            assert j - i + 1 <= RATE.burst + RATE.per_s * (times_ms[j] - start_ms) / 1_000


async def test_the_bound_that_is_announced_is_kept() -> None:
    """10,000 invalidations in a burst, five requests a second: all are purged within the announced bound."""
    api = Api()
    async with api.sender(repurge_after_ms=3_500_000) as sender:
        put_ms = api.now_ms
        waits = [
            await sender.put([Target(TAG, f"{call}-{n}") for n in range(100)], until_ms=put_ms + 3_600_000)
            for call in range(100)
        ]
        bound_s = Backlog(api.capabilities).drained_within_s(await api.outbox.size(sender.queue))
        assert bound_s is not None
        for wait in waits:
            await wait()
    assert len({tag for batch in api.sent for tag in batch}) == 10_000
    assert max(at_ms for at_ms, _ in api.requests) - put_ms <= bound_s * 1_000


async def test_two_queues_of_one_account_do_not_exceed_it_however_late_their_requests_arrive() -> None:
    """A request that is under way may be counted at any moment of that, so nobody else uses its room."""
    api = Api(replace(LIMITED, rates=(replace(RATE, burst=2),)))
    api.gate = asyncio.Event()
    other = Api(api.capabilities)
    other.address, other.outbox, other.gate = "zone 2", api.outbox, api.gate
    async with api.sender() as first, other.sender() as two:
        purges = [asyncio.create_task(api.purged(first, "a")), asyncio.create_task(other.purged(two, "b"))]
        await eventually(lambda: len(api.requests) == len(other.requests) == 1)
        later_ms = api.now_ms + 20_000
        bucket = Bucket(RATE.bucket, RATE.per_s, 2)
        wait_ms = await api.outbox.accounts.spend(bucket, tokens=1, payer="third", lease_ms=1, now_ms=later_ms)
        assert wait_ms > 0, "both may arrive only now, and then the bucket is empty"
        api.gate.set()
        await asyncio.gather(*purges)


PRICED = replace(LIMITED, batch={TAG: 4}, cost=Cost(free_a_month=6, usd_a_target=0.5, account="bill"))


async def test_a_months_budget_is_spent_to_the_last_purge_and_nothing_is_sent_after_it() -> None:
    """Six are free, and a dollar pays for two more. Then copies live for seconds, and metrics and log say for how long what is
    open may be served; in the next month the others go."""
    api = Api(PRICED)
    start_ms = api.now_ms
    seen: list[FailureSeen] = []
    api.telemetry.hooks.failures.append(seen.append)
    async with api.sender(repurge_after_ms=50 * 24 * 3_600_000, budget_usd=1.0) as sender:
        targets = [Target(TAG, f"t{n}") for n in range(10)]
        wait = await sender.put(targets, until_ms=start_ms + 40 * 24 * 3_600_000)
        await eventually(lambda: sum(map(len, api.sent)) == 8)
        state, lives_ms, stale_s = await api.looked(sender)
        assert (state, lives_ms) == ("over-budget", 5_000)
        assert 20 * 24 * 3_600 < stale_s <= 40 * 24 * 3_600
        [line] = [named for named in seen if named.name == "cdn.over_budget"]
        assert "budget of 8 purges is spent; 2 purges are open" in line.error
        [finding] = await sender.watched.diagnose(Facts(lives_ms=3_600_000, tags=("own", "all")))
        assert finding.level is Level.BLOCK
        assert sum(map(len, api.sent)) == 8
        api.now_ms = start_ms + 31 * 24 * 3_600_000
        await wait()
        assert {tag for batch in api.sent for tag in batch} == {target.value for target in targets}
        assert (await api.looked(sender))[:2] == ("ok", None)


async def test_refused_purges_are_not_charged() -> None:
    """A storm of refusals, or an outage, does not use the budget up."""
    api = Api(PRICED)
    api.answers.extend([Throttled(retry_after_s=1.0)] * 20)
    api.answers.extend(CdnError("away") for _ in range(5))
    async with api.sender(repurge_after_ms=3_600_000, budget_usd=0) as sender:
        await api.purged(sender, "a")
        assert await api.outbox.accounts.charged("bill/2023-11") == 1


async def test_a_budget_of_what_has_no_price_is_refused() -> None:
    api = Api()
    with pytest.raises(ConfigurationError, match="no price"):
        Delivery(api, budget_usd=1.0)
    with pytest.raises(ConfigurationError, match="budget_usd"):
        Delivery(Api(PRICED), budget_usd=-1.0)


class Frozen(Api):
    """A provider while no time passes by itself."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0.001)


async def test_while_it_is_dark_the_bound_is_the_life_of_the_copies_and_otherwise_the_pace() -> None:
    api = Frozen()
    api.answers.extend(CdnError("away") for _ in range(1_000))
    async with api.sender() as sender:
        await sender.put([Target(TAG, "a")], until_ms=api.now_ms + 3_600_000_000)
        await eventually(lambda: sender.state == "dark")
        api.now_ms += 3_000
        state, lives_ms, stale_s = await api.looked(sender)
        assert (state, lives_ms) == ("dark", 5_000)
        assert 3_000_000 < stale_s <= 3_600_000
        [report] = [sender.watched.report()]
        assert (report.state, report.open, report.stale_s) == ("dark", 1, stale_s)


async def test_a_bucket_may_count_targets() -> None:
    rate = replace(RATE, unit=Unit.TARGET, burst=11, per_s=10)
    api = Api(replace(LIMITED, rates=(rate,)))
    async with api.sender() as sender:
        await api.purged(sender, *(f"t{n}" for n in range(45)))
    assert max(len(batch) for batch in api.sent) <= 10
    assert api.requests[-1][0] - api.requests[0][0] >= 3_000


async def test_a_provider_that_is_throttled_is_left_alone_for_as_long_as_it_said() -> None:
    """By every sender of its bucket, and what comes meanwhile joins what waits."""
    api = Api()
    api.answers.append(Throttled(retry_after_s=30.0))
    async with api.sender() as sender:
        await api.purged(sender, "a")
    (first_ms, first), (second_ms, second) = api.requests
    assert first == second == ("a",)
    assert second_ms - first_ms >= 30_000


async def test_the_providers_own_rate_fields_set_the_pace() -> None:
    api = Api()
    api.answers.append(Delivered(pace=Pace(remaining=0, reset_s=12.0)))
    async with api.sender() as sender:
        await api.purged(sender, "a")
        await api.purged(sender, "b")
    assert api.requests[1][0] - api.requests[0][0] >= 12_000


async def test_only_what_is_refused_alone_becomes_a_dead_letter() -> None:
    """The rest of its batch is purged."""
    api = Api()
    api.refused = {"t3"}
    async with api.sender() as sender:
        for n in range(8):
            await sender.put([Target(TAG, f"t{n}")], until_ms=api.now_ms + 3_600_000)

        async def buried() -> bool:
            return (await api.outbox.size(sender.queue)).dead == 1

        await eventually(buried)
        good = {f"t{n}" for n in range(8)} - {"t3"}
        await eventually(lambda: good <= {tag for batch in api.sent if "t3" not in batch for tag in batch})
        [letter] = await api.outbox.dead(sender.queue, count=10)
        assert (letter.member, letter.reason) == ("0tag t3", "bad tag")


async def test_a_refusal_of_everything_keeps_everything_until_it_is_mended() -> None:
    """A token that was revoked is no reason to forget: 24 hours of staleness are."""
    api = Api()
    api.answers.extend([Rejected(reason="token revoked", place_wide=True)] * 3)
    async with api.sender() as sender:
        wait = await sender.put([Target(TAG, "a")], until_ms=api.now_ms + 3_600_000)
        await wait()
        assert sender.state == "ok"
        assert api.telemetry.failures.labels("cdn")._value.get() == 3
        assert (await api.outbox.size(sender.queue)).dead == 0
    assert api.sent == [("a",)] * 4


async def test_a_place_that_does_not_answer_gets_it_again_with_growing_pauses() -> None:
    api = Api()
    api.answers.extend(CdnError("away") for _ in range(6))
    async with api.sender() as sender:
        await api.purged(sender, "a")
    assert api.sent == [("a",)] * 7
    pauses = [later - earlier for (earlier, _), (later, _) in zip(api.requests, api.requests[1:], strict=False)]
    assert pauses[-1] > pauses[0]


async def test_an_accepted_purge_is_done_when_it_is_completed() -> None:
    """Asking may fail; what was lost on the way is sent again."""
    api = Api(replace(LIMITED, asynchronous=True))
    api.answers.extend(
        [
            Accepted(ticket="1", ask_after_s=2.0),
            CdnError("away"),
            Accepted(ticket="1", ask_after_s=2.0),
            Rejected(reason="lost"),
        ]
    )
    async with api.sender() as sender:
        purged = asyncio.create_task(api.purged(sender, "a"))
        await eventually(lambda: sender.state == "dark")
        api.now_ms += 60_000
        await purged
        assert api.sent == [("a",), ("a",)]
        assert api.requests[1][0] - api.requests[0][0] >= 6_000


async def test_a_place_with_tiers_is_purged_again_after_its_bound() -> None:
    """An edge that was purged first may have refetched from a shield that was not yet."""
    api = Api(replace(LIMITED, tiered=True, effective_within_ms=5_000))
    async with api.sender(repurge_after_ms=100) as sender:
        await api.purged(sender, "a")
        start_ms = api.now_ms
        api.now_ms = start_ms + 100
        await eventually(lambda: len(api.requests) == 2)
        api.now_ms = start_ms + 5_499
        await api.purged(sender, "b")
        assert api.sent == [("a",), ("a",), ("b",)]
        api.now_ms = start_ms + 5_500
        await eventually(lambda: len(api.requests) == 4)
        assert api.sent[3] == ("a",)


async def test_a_purge_that_comes_in_while_the_same_is_under_way_waits_for_the_next() -> None:
    """The one under way may have happened before the write."""
    api = Api()
    api.gate = asyncio.Event()
    async with api.sender() as sender:
        first = asyncio.create_task(api.purged(sender, "a"))
        await eventually(lambda: len(api.requests) == 1)
        second = asyncio.create_task(api.purged(sender, "a"))
        await asyncio.sleep(0)
        api.gate.set()
        await first
        await second
        assert api.sent == [("a",), ("a",)]


async def test_an_unlimited_place_is_purged_by_the_process_that_invalidates() -> None:
    """No process leads, and no purge waits for another process's poll."""
    api = Api(replace(LIMITED, rates=()))
    async with api.sender() as first, api.sender() as other:
        await asyncio.gather(api.purged(first, "a"), api.purged(other, "b"))
    assert sorted(api.sent) == [("a",), ("b",)]


class SlowOutbox(MemoryOutbox):
    """An outbox that has nothing before the gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def put(self, *args: Any, **kwargs: Any) -> None:
        await self.gate.wait()
        await super().put(*args, **kwargs)


async def test_an_unlimited_place_is_purged_during_the_call_to_the_outbox() -> None:
    """The outbox's round trip does not delay the purge.

    The purge is over when the outbox has it, and leaves nothing there.
    """
    api = Api(replace(LIMITED, rates=()))
    outbox = api.outbox = SlowOutbox()
    async with api.sender(repurge_after_ms=3_600_000_000) as sender:
        purged = asyncio.create_task(api.purged(sender, "a"))
        await eventually(lambda: api.sent == [("a",)])
        assert not purged.done()
        outbox.gate.set()
        await purged
        size = await outbox.size(sender.queue)
        assert (size.waiting, size.taken, size.oldest_ms) == (0, 0, None)


async def test_a_purge_that_the_outbox_refuses_is_sent_and_reported() -> None:
    """The caller receives the refusal, and keeps the claim."""
    api = Api(replace(LIMITED, rates=()))
    api.outbox = MemoryOutbox(most=1)
    async with api.sender() as sender:
        with pytest.raises(StoreError, match="are open"):
            await api.put(sender, "a", "b")
        await eventually(lambda: api.sent == [("a", "b")])


async def test_purges_left_by_an_ended_sender_are_sent_by_another() -> None:
    api = Api(replace(LIMITED, rates=()))
    api.gate = asyncio.Event()
    async with api.sender() as first:
        await first.put([Target(TAG, "a")], until_ms=api.now_ms + 3_600_000)
        await eventually(lambda: len(api.requests) == 1)
    api.gate = None
    api.now_ms += 30_000
    async with api.sender():
        await eventually(lambda: len(api.requests) == 2)
    assert api.sent == [("a",), ("a",)]


class CountingOutbox(MemoryOutbox):
    """An outbox that counts how often it is asked for what is due."""

    takes = 0

    async def take(self, *args: Any, **kwargs: Any) -> Any:
        self.takes += 1
        return await super().take(*args, **kwargs)


class Busy(Api):
    """A place for which there is one more purge whenever one is under way, so many times."""

    more = 0
    own: Sender
    put_in: asyncio.Task[Any]

    async def send(self, targets: Sequence[Target]) -> Answer:
        if self.more:
            self.more -= 1
            self.put_in = asyncio.create_task(self.put(self.own, f"more-{self.more}"))
            await asyncio.sleep(0)
        return await super().send(targets)


async def test_while_there_are_purges_of_its_own_a_sender_does_not_ask_the_outbox_for_others_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sender looks for other purges now and then: a request costs its own two round trips and no third."""
    monkeypatch.setattr("quaestor.cdn_adapters.side_by_side.POLL_S", 3_600.0)
    monkeypatch.setattr("quaestor.cdn_adapters.due_purges.POLL_S", 3_600.0)
    api = Busy(replace(LIMITED, rates=()))
    outbox = api.outbox = CountingOutbox()
    async with api.sender(repurge_after_ms=3_600_000_000) as api.own:
        api.more = 50
        await api.purged(api.own, "a")
        await eventually(lambda: len(api.sent) == 51)
    assert outbox.takes == 1


async def test_purges_of_its_own_do_not_keep_a_sender_from_due_ones() -> None:
    """A repeated purge is sent in its time, with any number of new ones."""
    api = Busy(replace(LIMITED, rates=()))
    async with api.sender(repurge_after_ms=700) as api.own:
        await api.purged(api.own, "a")
        api.now_ms += 700
        api.more = 10_000
        await api.purged(api.own, "b")
        await eventually(lambda: sum("a" in batch for batch in api.sent) == 2)
        assert api.more, "while there were purges all the time"


async def test_a_process_s_own_purges_are_sent_though_the_outbox_does_not_answer() -> None:
    """The outbox is read for purges of other processes; its absence costs none of the process's own purges."""

    class Away(MemoryOutbox):
        async def take(self, *args: Any, **kwargs: Any) -> Any:
            raise StoreError("away")

    api = Api(replace(LIMITED, rates=()))
    api.outbox = Away()
    async with api.sender() as sender:
        await api.purged(sender, "a")
    assert api.sent == [("a",)]


async def test_a_sender_that_may_send_nothing_more_waits_for_open_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sender does not poll without rest, however long ago it has looked for due purges."""
    idled: list[float] = []

    async def idle(requests: SideBySide, seconds: float) -> None:
        idled.append(seconds)
        await requests._wake.wait()

    monkeypatch.setattr(SideBySide, "_idle", idle)
    api = Patient(replace(LIMITED, rates=(), asynchronous=True, open_targets=1))
    api.answers.append(Accepted(ticket="1", ask_after_s=2.0))
    async with api.sender() as sender:
        purged = asyncio.create_task(api.purged(sender, "a"))
        await eventually(lambda: sender._handling.open_targets == 1 and not sender._side_by_side._requests.tasks)
        await asyncio.sleep(0)
        idled.clear()
        sender._side_by_side._due.look_due_s = 0.0
        sender._wake.set()
        await eventually(lambda: len(idled) > 0)
        assert set(idled) == {POLL_S}
        api.asked.set()
        await purged


class Patient(Api):
    """A provider whose completion is polled when the test allows it."""

    def __init__(self, capabilities: Capabilities) -> None:
        super().__init__(capabilities)
        self.asked = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        await self.asked.wait()

"""Schedule: by due time, equal ones together, stretched under load, quarantined after errors. Time is an argument."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from quaestor.continuous.schedule.periods import SECOND, Every, period
from quaestor.continuous.schedule.queue import QUARANTINE_AFTER, Due, Schedule

MINUTE = Every(60 * SECOND)
T0 = 1_795_000_020 * SECOND


def names(given: list[Due]) -> list[tuple[str, ...]]:
    return [due.names for due in given]


def test_equal_due_times_and_shapes_are_given_together() -> None:
    """Another shape or another due time is a group of its own; the earliest group comes first."""
    schedule = Schedule()
    for name, shape, due in [("b", "x", 5), ("a", "x", 5), ("c", "y", 5), ("d", "x", 4), ("e", "x", 11)]:
        schedule.put(name, MINUTE, shape, due=due)
    assert schedule.next_due() == 4
    assert names(schedule.take(10)) == [("d",), ("a", "b"), ("c",)]
    assert schedule.take(10) == []
    assert schedule.next_due() == 11


def test_the_overrun_of_a_query_delays_no_other() -> None:
    """A query that runs is not given again; the others go on, and instants that it missed are left out."""
    schedule = Schedule()
    schedule.put("slow", MINUTE, "x", due=T0)
    schedule.put("quick", MINUTE, "x", due=T0)
    assert names(schedule.take(T0)) == [("quick", "slow")]
    for minute in (1, 2, 3):
        schedule.done("quick", T0 + minute * 60 * SECOND - 1)
        assert names(schedule.take(T0 + minute * 60 * SECOND)) == [("quick",)]
    schedule.done("slow", T0 + 200 * SECOND)
    slow = schedule.get("slow")
    assert slow is not None
    assert slow.due == T0 + 240 * SECOND


def test_resistance_delays_or_prevents_stretching() -> None:
    """A query that begins late counts by when it begins; resistance 64 keeps its period."""
    schedule = Schedule()
    for name, resistance in (("low", 1), ("normal", 4), ("high", 64)):
        schedule.put(name, Every(SECOND), name, due=T0, resistance=resistance)
    now = T0
    seen = []
    for _ in range(9):
        now = max(now + 12 * SECOND, schedule.next_due() or 0)
        for due in schedule.take(now):
            schedule.began(due.names[0], now + 100 * SECOND)
            schedule.done(due.names[0], now)
        seen.append([schedule.factor_of(name) for name in ("low", "normal", "high")])
    assert [2, 1, 1] in seen
    assert [8, 2, 1] in seen
    assert seen[-1] == [64, 16, 1]
    low, high = schedule.get("low"), schedule.get("high")
    assert low is not None
    assert high is not None
    assert (low.due - now, high.due - now) != (SECOND, SECOND)
    assert high.due - now <= SECOND
    assert low.late >= 100 * SECOND


def test_periods_stretch_while_queries_run_late_and_shrink_again() -> None:
    """The factor is shown; a query keeps the longest interval that its user accepts, or is named as overdue."""
    schedule = Schedule()
    schedule.put("any", Every(SECOND), "x", due=T0)
    schedule.put("strict", Every(SECOND), "x", due=T0, at_most=2 * SECOND)
    now = T0
    overdue = []
    for _ in range(8):
        now += 12 * SECOND
        overdue += [name for due in schedule.take(now) for name in due.overdue]
        for name in ("any", "strict"):
            schedule.done(name, now)
    assert schedule.factor > 1
    stretched, strict = schedule.get("any"), schedule.get("strict")
    assert stretched is not None
    assert strict is not None
    assert stretched.due - now > 2 * SECOND >= strict.due - now
    assert set(overdue) == {"strict"}
    for _ in range(40):
        due = schedule.next_due()
        assert due is not None
        now = max(now + 11 * SECOND, due)
        schedule.put("any", Every(SECOND), "x", due=now)
        schedule.put("strict", Every(SECOND), "x", due=now, at_most=2 * SECOND)
        schedule.take(now)
        for name in ("any", "strict"):
            schedule.done(name, now)
    assert schedule.factor == 1


def test_a_run_longer_than_its_period_stretches_its_own_period_only() -> None:
    """The next run is late from the first due time that passed; short runs let the period shrink again."""
    schedule = Schedule()
    schedule.put("any", MINUTE, "any", due=T0)
    schedule.put("strict", MINUTE, "strict", due=T0, at_most=5 * MINUTE.length)
    schedule.put("quick", MINUTE, "quick", due=T0)
    ends: dict[str, int] = {}
    overdue: list[tuple[str, ...]] = []
    for now in range(T0, T0 + 600 * MINUTE.length, MINUTE.length):
        for name in [name for name, end in ends.items() if end <= now]:
            del ends[name]
            schedule.done(name, now)
        for due in schedule.take(now):
            if due.names == ("quick",):
                schedule.done("quick", now)
            else:
                ends |= dict.fromkeys(due.names, now + 60 * MINUTE.length)
                overdue.append(due.overdue)
    assert [overdue.count(("strict",)), overdue.count(("any",))] == [9, 0]
    now += 60 * MINUTE.length
    for name in ends:
        schedule.done(name, now)
    assert schedule.factor > 1
    assert [schedule.factor_of(name) for name in ("strict", "quick")] == [4, 1]
    assert schedule.factor_of("any") == schedule.factor
    for _ in range(500):
        now = max(now + 60 * SECOND, schedule.next_due() or 0)
        for due in schedule.take(now):
            for name in due.names:
                schedule.done(name, now + SECOND)
    assert (schedule.factor, schedule.factor_of("any"), schedule.factor_of("strict")) == (1, 1, 1)


def test_a_query_that_waits_for_its_turn_is_overdue_once() -> None:
    schedule = Schedule()
    schedule.put("strict", MINUTE, "x", due=T0, at_most=5 * SECOND)
    assert not schedule.began("strict", T0 + 9 * SECOND)
    (due,) = schedule.take(T0 + SECOND)
    assert due.overdue == ()
    assert not schedule.began("strict", T0 + 2 * SECOND)
    assert schedule.began("strict", T0 + 9 * SECOND)
    assert not schedule.began("strict", T0 + 10 * SECOND)


def test_cron_is_not_stretched() -> None:
    schedule = Schedule()
    schedule.put("digest", period("cron: 0 8 * * MON"), "x", due=T0)
    for hours in range(20):
        schedule.take(T0 + hours * 3_600 * SECOND)
    schedule.done("digest", T0)
    assert schedule.factor == 1


def test_repeated_errors_quarantine_a_query_with_the_reason() -> None:
    """Pauses grow until then; a new text or a resumption gives it again."""
    schedule = Schedule()
    schedule.put("bad", Every(SECOND), "x", due=T0)
    now, pauses = T0, []
    for number in range(1, QUARANTINE_AFTER + 1):
        assert names(schedule.take(now)) == [("bad",)]
        quarantined = schedule.failed("bad", now, "column price is gone", passes=False)
        assert quarantined is (number == QUARANTINE_AFTER)
        due = schedule.next_due()
        if due is not None:
            pauses.append(due - now)
            now = due
    assert pauses == sorted(set(pauses))
    bad = schedule.get("bad")
    assert bad is not None
    assert bad.quarantined == "column price is gone"
    assert schedule.take(now + 10**15) == []
    schedule.put("bad", Every(SECOND), "x", due=now)
    assert names(schedule.take(now)) == [("bad",)]


def test_a_clock_that_goes_back_stops_no_query() -> None:
    """A year ahead, and back: each query is due within its period, and a failed one after its pause at the latest."""
    schedule = Schedule()
    digest = period("cron: 0 8 * * *")
    for name, every in (("minutely", MINUTE), ("daily", digest), ("failing", MINUTE), ("running", MINUTE)):
        schedule.put(name, every, name, due=T0)
    later = T0 + 365 * 86_400 * SECOND
    for now in (T0, later):
        schedule.take(now)
        schedule.failed("failing", now, "away", passes=True)
        schedule.done("minutely", now)
        schedule.done("daily", now)
        if now == T0:
            schedule.done("running", now)
    now = T0 + 5 * SECOND
    assert schedule.take(now) == []
    dues = {entry.name: entry.due for entry in schedule.entries()}
    assert (dues["minutely"], dues["daily"]) == (MINUTE.next(now), digest.next(now))
    assert now < dues["failing"] <= now + 60 * SECOND
    schedule.done("running", now)
    assert names(schedule.take(now + 60 * SECOND)) == [("failing",), ("minutely",), ("running",)]


def test_a_failure_that_may_pass_never_quarantines() -> None:
    """A storage that is away for a day is no fault of the query; the pause is an hour at most."""
    schedule = Schedule()
    schedule.put("good", Every(SECOND), "x", due=T0)
    now = T0
    for _ in range(40):
        schedule.take(now)
        assert not schedule.failed("good", now, "disk full", passes=True)
        due = schedule.next_due()
        assert due is not None
        assert due - now <= 3_600 * SECOND
        now = due
    schedule.take(now)
    schedule.done("good", now)
    good = schedule.get("good")
    assert good is not None
    assert good.errors == 0


class ScheduleMachine(RuleBasedStateMachine):
    """Any order of changes, beside a plain dictionary: name to due time of the queries that wait."""

    def __init__(self) -> None:
        super().__init__()
        self.schedule = Schedule()
        self.now = T0
        self.waiting: dict[str, int] = {}
        self.running: set[str] = set()
        self.shapes: dict[str, str] = {}

    @rule(
        name=st.sampled_from("abcdef"), shape=st.sampled_from("xy"), length=st.integers(1, 5), delay=st.integers(-3, 5)
    )
    def put(self, name: str, shape: str, length: int, delay: int) -> None:
        self.schedule.put(name, Every(length * SECOND), shape, due=self.now + delay * SECOND)
        self.shapes[name] = shape
        if name not in self.running:
            self.waiting[name] = self.now + delay * SECOND

    @rule(name=st.sampled_from("abcdef"))
    def remove(self, name: str) -> None:
        self.schedule.remove(name)
        self.waiting.pop(name, None)
        self.running.discard(name)
        self.shapes.pop(name, None)

    @rule(seconds=st.integers(0, 20))
    def take(self, seconds: int) -> None:
        self.now += seconds * SECOND
        given = self.schedule.take(self.now)
        expected: dict[tuple[int, str], set[str]] = {}
        for name, due in self.waiting.items():
            if due <= self.now:
                expected.setdefault((due, self.shapes[name]), set()).add(name)
        assert {(due.at, due.shape): set(due.names) for due in given} == expected
        assert [due.at for due in given] == sorted(due.at for due in given)
        taken = [name for due in given for name in due.names]
        assert len(taken) == len(set(taken))
        assert not self.running & set(taken)
        self.running |= set(taken)
        for name in taken:
            del self.waiting[name]

    @precondition(lambda self: self.running)
    @rule(data=st.data(), fails=st.booleans())
    def end(self, data: st.DataObject, fails: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.running)))
        self.running.discard(name)
        if fails:
            self.schedule.failed(name, self.now, "away", passes=True)
        else:
            self.schedule.done(name, self.now)
        entry = self.schedule.get(name)
        assert entry is not None
        assert self.now < entry.due
        self.waiting[name] = entry.due

    @invariant()
    def the_earliest_is_known(self) -> None:
        assert self.schedule.next_due() == min(self.waiting.values(), default=None)
        assert {entry.name for entry in self.schedule.entries()} == self.shapes.keys()


ScheduleMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestAnyOrderOfChanges = ScheduleMachine.TestCase

"""Supervision: a service that raises is counted, logged with its stack, restarted after a growing pause, at last degraded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator

import pytest
import structlog
from structlog.testing import LogCapture

from quaestor.observability.telemetry import Telemetry
from quaestor.runtime.supervision import service as service_module
from quaestor.runtime.supervision.service import DEGRADED_AFTER, HEALTHY_AFTER_S, ServiceState
from quaestor.runtime.supervision.supervisor import Supervisor
from tests.support import eventually

pytestmark = pytest.mark.anyio


class BrokenError(Exception):
    """A mistake that no service foresees."""


@pytest.fixture
def log() -> Iterator[LogCapture]:
    capture = LogCapture()
    before = structlog.get_config()
    structlog.configure(processors=[capture])
    yield capture
    structlog.configure(**before)


class World:
    """A supervisor whose clock the test moves."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.telemetry = Telemetry()
        self.supervisor = Supervisor(self.telemetry, monotonic=lambda: self.now_s)

    def failures(self, name: str) -> float | None:
        return self.telemetry.families.registry.get_sample_value("quaestor_service_failures_total", {"service": name})

    def degraded(self, name: str) -> float | None:
        return self.telemetry.families.registry.get_sample_value("quaestor_service_degraded", {"service": name})

    def state(self, name: str) -> ServiceState:
        return next(report.state for report in self.supervisor.reports() if report.name == name)


@pytest.fixture
def world(log: LogCapture) -> World:
    return World()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restarts follow at once."""
    monkeypatch.setattr(service_module, "FIRST_PAUSE_S", 0.0)


def failing(times: int, then: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    """Work that raises so many times, and goes on as `then`."""
    left = [times]

    async def work() -> None:
        if left[0]:
            left[0] -= 1
            raise BrokenError("struck")
        await then()

    return work


@pytest.mark.usefixtures("at_once")
async def test_a_service_that_raises_is_counted_and_restarted(world: World, log: LogCapture) -> None:
    """The metric has the name of the service; the log line has the stack, down to the line that raised."""
    well = asyncio.Event()

    async def runs() -> None:
        well.set()
        await asyncio.Event().wait()

    kept = world.supervisor.keep("housekeeping", failing(2, runs))
    await well.wait()
    assert world.failures("housekeeping") == 2
    assert world.state("housekeeping") is ServiceState.RUNNING
    lines = [line for line in log.entries if line["event"] == "service.failed"]
    assert lines[0]["service"] == "housekeeping"
    assert "BrokenError" in lines[0]["stack"]
    assert 'raise BrokenError("struck")' in lines[0]["stack"]
    await kept.aclose()
    assert world.state("housekeeping") is ServiceState.ENDED


async def test_the_log_line_names_the_errors_before_the_last_one(world: World, log: LogCapture) -> None:
    """A clean-up that fails hides the error that it follows; the stack may be too long for both."""
    service = world.supervisor.service("catalog")
    try:
        try:
            raise BrokenError("first")
        finally:
            raise BrokenError("clean-up")
    except BrokenError as error:
        service.failed(error)
    (line,) = [line for line in log.entries if line["event"] == "service.failed"]
    assert line["error"] == "BrokenError('clean-up')"
    assert line["before"] == ["BrokenError('first')"]


async def test_pauses_double_up_to_the_longest(world: World) -> None:
    service = world.supervisor.service("catalog")
    service.begun()
    pauses_s = [service.failed(BrokenError()) for _ in range(10)]
    assert pauses_s[:4] == [0.1, 0.2, 0.4, 0.8]
    assert pauses_s[-1] == service_module.LONGEST_PAUSE_S


async def test_a_service_that_fails_again_and_again_is_degraded_until_it_has_run_for_a_minute(world: World) -> None:
    """The metric shows the state, and so does the report that status, doctor and dashboard show."""
    service = world.supervisor.service("catalog")
    for number in range(1, DEGRADED_AFTER + 1):
        service.begun()
        assert world.degraded("catalog") == 0
        service.failed(BrokenError(f"number {number}"))
        service.over()
    service.begun()
    assert world.state("catalog") is ServiceState.DEGRADED
    assert world.degraded("catalog") == 1
    [report] = world.supervisor.reports()
    assert (report.failures, report.error) == (DEGRADED_AFTER, f"BrokenError('number {DEGRADED_AFTER}')")
    world.now_s += HEALTHY_AFTER_S
    assert world.state("catalog") is ServiceState.RUNNING
    assert world.degraded("catalog") == 0
    assert service.failed(BrokenError()) == service_module.FIRST_PAUSE_S


@pytest.mark.usefixtures("at_once")
async def test_a_cancellation_that_nobody_asked_for_is_a_failure(world: World) -> None:
    """A library that cancels a scope of its own ends the service without anybody hearing of it otherwise."""
    well = asyncio.Event()
    calls = 0

    async def work() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise asyncio.CancelledError
        well.set()
        await asyncio.Event().wait()

    kept = world.supervisor.keep("tuning", work)
    await well.wait()
    assert world.failures("tuning") == 1
    await kept.aclose()


async def test_a_service_that_returns_has_ended_and_is_not_restarted(world: World) -> None:
    calls: list[int] = []

    async def work() -> None:
        calls.append(1)

    kept = world.supervisor.keep("reset", work)
    await eventually(lambda: kept.done)
    assert (calls, world.failures("reset"), world.state("reset")) == ([1], 0, ServiceState.ENDED)


@pytest.mark.usefixtures("at_once")
def test_a_thread_that_raises_anything_is_restarted(world: World) -> None:
    """SystemExit is caught too: the interpreter lets a thread end by it without a message."""
    well = threading.Event()
    errors: list[BaseException] = [BrokenError("struck"), SystemExit(1)]

    def body(stop: threading.Event) -> None:
        if errors:
            raise errors.pop(0)
        well.set()
        stop.wait()

    kept = world.supervisor.thread("sender", body)
    assert well.wait(10)
    assert world.failures("sender") == 2
    kept.stop()
    assert kept.done


def test_a_thread_that_waits_for_its_restart_ends_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "FIRST_PAUSE_S", 3_600.0)
    monkeypatch.setattr(service_module, "LONGEST_PAUSE_S", 3_600.0)
    failed = threading.Event()

    def body(stop: threading.Event) -> None:
        failed.set()
        raise BrokenError

    kept = world.supervisor.thread("cell", body)
    assert failed.wait(10)
    kept.stop()
    assert kept.done


async def test_a_short_task_that_raises_is_counted_and_logged(world: World, log: LogCapture) -> None:
    """No code waits for a short task, so its exception would stay unseen."""

    async def work() -> None:
        raise BrokenError("struck")

    errands = world.supervisor.errands("refreshes")
    await asyncio.wait([errands.start(work())])
    await asyncio.sleep(0)
    assert world.failures("refreshes") == 1
    [line] = [line for line in log.entries if line["event"] == "service.errand_failed"]
    assert 'raise BrokenError("struck")' in line["stack"]
    assert not errands


async def test_the_end_is_bounded_and_what_does_not_end_is_named(world: World, log: LogCapture) -> None:
    """A task that swallows every cancellation, and a thread that does not look at its stop."""
    let, released = asyncio.Event(), threading.Event()

    async def deaf() -> None:
        while not let.is_set():
            try:
                await let.wait()
            except asyncio.CancelledError:
                continue

    world.supervisor.keep("deaf-task", deaf)
    world.supervisor.thread("deaf-thread", lambda stop: released.wait())
    await asyncio.sleep(0)
    await world.supervisor.aclose(within_s=0.05)
    named = {line["service"] for line in log.entries if line["event"] == "service.did_not_end"}
    assert named == {"deaf-task", "deaf-thread"}
    let.set()
    released.set()
    await world.supervisor.aclose()


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"loop_factory": asyncio.SelectorEventLoop})], ids=["asyncio"])
async def test_supervision_itself_wakes_nobody_up(world: World) -> None:
    """No timer and no polling: while its services wait, the event loop has nothing scheduled."""
    kept = world.supervisor.keep("idle", asyncio.Event().wait)
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    assert [timer for timer in loop._scheduled if not timer.cancelled()] == []  # type: ignore[attr-defined]
    await kept.aclose()

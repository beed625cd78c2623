"""Periodic procedures: EXECUTE begins them, the service repeats them, with a clock that a test drives."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from quaestor.channels.procedure_service import ProcedureParts, ProcedureService
from quaestor.channels.statements import StatementError
from quaestor.observability.telemetry import Telemetry
from tests.channels.statements_world import StatementsWorld

pytestmark = pytest.mark.anyio
JOIN = "CREATE PROCEDURE join_in(area text) { SUBSCRIBE TO Local($area) ON station } PERIOD 10 SECONDS"


class Repeating(StatementsWorld):
    """World with a service of procedures.

    now: seconds since 1970.
    failures: (event, error) of each reported failure.
    """

    def __init__(self, folder: Path) -> None:
        self.now = 0
        super().__init__(folder, clock=lambda: self.now * 1_000)
        self.failures: list[tuple[str, str]] = []
        self.service = self.another_service()

    def another_service(self) -> ProcedureService:
        """Return a service, as another process has it."""
        telemetry, parts = Telemetry(), self.channels.parts
        telemetry.failure = self._failure  # type: ignore[method-assign]
        return ProcedureService(
            ProcedureParts(
                definitions=parts.definitions,
                procedures=parts.procedures,
                interpreter=self.channels.interpreter,
                telemetry=telemetry,
                clock=lambda: self.now * 1_000,
            )
        )

    def _failure(self, _part: str, event: str, error: object, **_: object) -> None:
        self.failures.append((event, str(error)))

    async def at(self, now: int) -> None:
        """Execute what is due."""
        self.now = now
        await self.service.run_due()

    def joined(self) -> list[tuple[str, str]]:
        """Return area and user of each subscription: one for each execution."""
        return sorted((row[3][0], row[4]) for row in self.rows("SHOW SUBSCRIPTIONS OF Local"))

    def shown(self) -> dict[str, Any]:
        """Return the only procedure."""
        (answer,) = self.run("SHOW PROCEDURES")
        (row,) = answer.rows
        return dict(zip(answer.columns, row, strict=True))


@pytest.fixture
def world(tmp_path: Path) -> Repeating:
    created = Repeating(tmp_path)
    created.police()
    return created


async def test_a_periodic_procedure_is_executed_by_execute_and_at_each_instant_of_its_period(world: Repeating) -> None:
    """No instant before EXECUTE; one execution for each instant; instants without a process are left out; a restart goes on."""
    world.run(JOIN)
    assert world.shown()["state"] == "waits for EXECUTE"
    await world.at(12)
    assert world.joined() == []
    assert world.texts("EXECUTE join_in('OC')") == [""], "the answer has the row of SUBSCRIBE"
    assert world.joined() == [("OC", "")]
    shown = world.shown()
    assert (shown["period_s"], shown["state"], shown["error"]) == (10.0, "repeated", "")
    assert (shown["executed"], shown["next"]) == ("1970-01-01T00:00:12.000000Z", "1970-01-01T00:00:20.000000Z")
    for now, executions in ((19, 1), (20, 2), (21, 2), (30, 3), (77, 4), (79, 4), (80, 5)):
        await world.at(now)
        assert len(world.joined()) == executions, now
    later = Repeating(world.folder)
    await later.at(85)
    assert len(later.joined()) == 5
    await later.at(90)
    assert later.joined() == [("OC", "")] * 6
    assert world.failures == later.failures == []


async def test_a_pause_leaves_instants_out_and_a_drop_ends_the_executions(world: Repeating) -> None:
    """RESUME goes on with the same values; EXECUTE replaces them; a procedure of the same name begins anew."""
    world.run(f"{JOIN}; EXECUTE join_in('OC'); PAUSE PROCEDURE join_in")
    assert (world.shown()["state"], world.shown()["next"]) == ("paused", None)
    await world.at(35)
    assert world.joined() == [("OC", "")]
    world.run("RESUME PROCEDURE join_in")
    await world.at(36)
    assert world.joined() == [("OC", "")] * 2
    world.run("EXECUTE join_in('LA')")
    await world.at(40)
    assert world.joined() == [("LA", "")] * 2 + [("OC", "")] * 2
    world.run(f"DROP PROCEDURE join_in; {JOIN}")
    await world.at(60)
    assert len(world.joined()) == 4
    world.run("EXECUTE join_in('SF')")
    world.now = 61
    world.run(JOIN.replace("CREATE", "CREATE OR REPLACE"))
    assert world.shown()["state"] == "waits for EXECUTE"
    await world.at(80)
    assert len(world.joined()) == 5


async def test_executions_have_the_rights_of_their_user(world: Repeating) -> None:
    """Subscriptions belong to the user of EXECUTE, and only the owner begins executions."""
    world.run(JOIN, user="ann")
    with pytest.raises(StatementError, match="procedure 'join_in' belongs to another user"):
        world.run("EXECUTE join_in('OC')", user="ben")
    world.run("EXECUTE join_in('OC')", user="ann")
    await world.at(10)
    assert world.joined() == [("OC", "ann")] * 2


async def test_an_execution_that_fails_is_reported_and_the_next_instant_follows(world: Repeating) -> None:
    """SHOW PROCEDURES has the error until an execution succeeds. No other procedure waits."""
    world.run(
        """CREATE PROCEDURE stop_it(a) { PAUSE CHANNEL Other } PERIOD 10 SECONDS;
        CREATE CONTINUOUS CHANNEL Other() PERIOD 1 HOUR { SELECT t.tid FROM Tweets t WHERE is_new(t) };
        EXECUTE stop_it(point(1, [2]))""".replace("[2]", "2")
    )
    world.run("DROP CHANNEL Other")
    await world.at(10)
    assert world.failures == [("channels.procedure_failed", world.failures[0][1])]
    assert "there is no channel 'Other'" in world.failures[0][1]
    assert "there is no channel 'Other'" in world.shown()["error"]
    world.run("CREATE CONTINUOUS CHANNEL Other() PERIOD 1 HOUR { SELECT t.tid FROM Tweets t WHERE is_new(t) }")
    await world.at(20)
    assert len(world.failures) == 1
    assert world.shown()["error"] == ""
    assert [row[5] for row in world.rows("SHOW CHANNELS") if row[0] == "Other"] == ["paused"]


async def test_no_two_processes_execute_the_same_instant(world: Repeating) -> None:
    """Two services look at one moment; an execution that a killed process has taken is not repeated."""
    world.run(f"{JOIN}; EXECUTE join_in('OC')")
    other = world.another_service()
    for now, executions in ((10, 2), (20, 3)):
        world.now = now
        await asyncio.gather(world.service.run_due(), other.run_due())
        assert len(world.joined()) == executions
    procedures = world.channels.parts.procedures
    (repeated,) = procedures.all()
    world.now = 30
    assert procedures.take(repeated, now=30_000_000, following=40_000_000)
    assert not procedures.take(repeated, now=30_000_000, following=40_000_000)
    await world.at(31)
    assert len(world.joined()) == 3
    await world.at(40)
    assert len(world.joined()) == 4


async def test_a_hostile_value_is_repeated_as_it_is(world: Repeating) -> None:
    """The values of EXECUTE are kept, and never read as text of a statement."""
    hostile = "OC'); DROP CHANNEL Local; --"
    world.run(JOIN)
    world.run("EXECUTE join_in($area)", area=hostile)
    await world.at(10)
    assert world.joined() == [(hostile, "")] * 2

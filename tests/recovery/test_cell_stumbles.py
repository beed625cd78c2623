"""A matching node that stumbles over one write or one query: reported, and nothing stays as it was that may have changed."""

from __future__ import annotations

from typing import Any

import pytest

from quaestor.event_layer.loop_context import LoopContext
from quaestor.invalidation.grid.cell_loop import CellLoop
from quaestor.invalidation.matching import retained_writes
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.model import Activated, Refused
from quaestor.observability.hooks import FailureSeen
from quaestor.observability.telemetry import Telemetry
from tests.recovery.cell_harness import CELL, RETENTION_MS, SHAPE, Harness


@pytest.fixture
def failures() -> list[FailureSeen]:
    return []


@pytest.fixture
def cell(harness: Harness, failures: list[FailureSeen]) -> CellLoop:
    """A cell that the test steps by hand; it has seen a tick."""
    telemetry = Telemetry()
    telemetry.hooks.failures.append(failures.append)
    node = MatchingNode(CELL, SHAPE, retention_ms=RETENTION_MS)
    context = LoopContext(
        deployment=harness.deployment, heartbeat_ms=600_000, retention_ms=RETENTION_MS, telemetry=telemetry
    )
    loop = CellLoop(node, harness.layer, CELL, SHAPE, context)
    harness.tick()
    loop.start()
    loop.step()
    return loop


def fails(*_: Any, **__: Any) -> Any:
    raise ValueError("unforeseen")


def test_a_write_whose_record_cannot_be_named_changes_what_was_registered_and_what_comes_later(
    harness: Harness, cell: CellLoop, failures: list[FailureSeen], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result that was read before the write may be registered after it, so the write is retained for it."""
    read_at = harness.version
    harness.register("before", origin="JFK")
    cell.step()
    with monkeypatch.context() as broken:
        broken.setattr(retained_writes, "record_key", fails)
        harness.write(1, origin="JFK")
        cell.step()
    harness.register("after", since=read_at, origin="JFK")
    cell.step()
    harness.read()
    assert harness.dead() == ["before", "after"]
    assert [failure.name for failure in failures] == ["cell.write_failed"]


def test_a_query_that_cannot_be_taken_in_is_refused_and_reported(
    harness: Harness, cell: CellLoop, failures: list[FailureSeen], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell.node, "_admit", fails)
    harness.register("broken", origin="JFK")
    cell.step()
    harness.read()
    assert [refused.registration_id for refused in harness.all(Refused)] == ["broken"]
    assert harness.all(Activated) == []
    assert [failure.name for failure in failures] == ["cell.registration_failed"]

"""A listener of the driver that fails: reported, and the answer of its request is not cached. The driver would only print it."""

from __future__ import annotations

from typing import Any

import pytest
from pymongo import MongoClient

from quaestor.capture import Capture, listener, recording, uncaptured
from quaestor.model import Uncacheable
from tests.end_to_end.captured import Client, capture, client, outcome_of, reasons

__all__ = ["capture", "client"]


@pytest.fixture
def failures(capture: Capture) -> list[Exception]:
    seen: list[Exception] = []
    capture.failures.report = seen.append
    return seen


def fails(*_: Any, **__: Any) -> Any:
    raise ValueError("unforeseen")


def test_a_failure_of_the_capture_makes_the_answer_uncacheable(
    client: Client, prefix: str, failures: list[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "heard_by", fails)
    outcome = outcome_of(lambda: client[prefix].c.find_one({"_id": 1}))
    assert Uncacheable.UNREADABLE in reasons(outcome)
    assert failures


@pytest.mark.parametrize("step", ["heard", "writes_records"])
def test_a_failure_beside_the_capture_makes_the_answer_uncacheable(
    mongo_url: str, prefix: str, failures: list[Exception], step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command of a client without the capture would be noted by the listener that fails, so the request counts as one that
    writes."""
    with MongoClient[dict[str, Any]](mongo_url) as other, recording() as recorder:
        monkeypatch.setattr(uncaptured, step, fails)
        other[prefix].c.find_one({"_id": 1})
        assert Uncacheable.UNREADABLE in {reason for reason, _ in recorder.outcome(0).reasons}
        assert recorder.writes.attempted
    assert failures

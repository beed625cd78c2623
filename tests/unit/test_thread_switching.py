"""The switch interval of an app process: shortened where it is Python's own."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from quaestor.thread_switching import switch_within


@pytest.fixture(autouse=True)
def interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize(
    ("found_ms", "wanted_ms", "left_ms"), [(5, 1, 1), (5, 0, 5), (2, 1, 2), (10, 1, 10), (1, 0.5, 1)]
)
def test_only_the_interval_of_python_is_shortened(found_ms: float, wanted_ms: float, left_ms: float) -> None:
    """An application that has chosen one keeps it."""
    sys.setswitchinterval(found_ms / 1_000)
    switch_within(wanted_ms)
    assert sys.getswitchinterval() == pytest.approx(left_ms / 1_000)

"""The endurance program of purges, made small: real processes, a real Valkey, and processes killed again and again."""

from __future__ import annotations

import pytest

from benchmarks.purge_endurance import complaints, run


@pytest.mark.timeout(300)
@pytest.mark.parametrize("purges", [4_000, pytest.param(60_000, marks=pytest.mark.slow)])
def test_no_purge_is_lost_and_the_account_is_not_exceeded(purges: int) -> None:
    """Two deployments, four processes, one account: kill -9 every two seconds. How long it takes is for the program to judge."""
    result = run(purges, per_s=5 if purges < 10_000 else 20, burst=5, kill_every_s=2.0)
    assert result["kills"] > 0
    assert set(complaints(result)) <= {"late"}, result

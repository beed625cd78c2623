"""Staleness as the benchmark of update in place counts it."""

from __future__ import annotations

from benchmarks.update_in_place import staleness_s


def test_a_list_is_stale_until_it_shows_each_write() -> None:
    """A number above a write's shows it too; of a record that is not listed nothing is known."""
    written = [(1.0, 7, 1), (2.0, 8, 2), (3.0, 7, 3)]
    answers = [(0.5, {7: 0, 8: 0}), (1.5, {7: 0, 8: 0}), (2.5, {7: 1, 8: 0}), (3.5, {7: 3}), (4.0, {7: 3, 8: 2})]
    assert staleness_s(answers, written) == [0.0, 0.5, 0.5, 0.0, 0.0]

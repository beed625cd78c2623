"""Contributors are read after a pause, and at once for a query whose registrations die for nothing before that."""

from __future__ import annotations

import threading
from typing import Any

from quaestor.invalidation.registry.contributor_pauses import PAUSE_MS, ContributorPauses
from quaestor.invalidation.registry.due_registrations import DueRegistrations
from quaestor.model import Operation, Query, Registration


def registration(
    query_id: str = "q", members: tuple[Any, ...] | None = (1, 2), digest: bytes | None = None
) -> Registration:
    query = Query(namespace="shop.items", operation=Operation.FIND, filter={}, skip=3)
    return Registration(
        id=f"app:1:{query_id}", tenant="t", query_id=query_id, query=query, since=1, read_at=1, members=members, last=None,
        expires_at_ms=10**9, digest=digest,
    )  # fmt: skip


def test_the_same_result_again_was_invalidated_for_nothing() -> None:
    pauses = ContributorPauses()
    assert pauses.of(registration(), renewed=False) == PAUSE_MS
    assert pauses.of(registration("other"), renewed=False) == PAUSE_MS
    assert pauses.of(registration(), renewed=False) == 0
    assert pauses.of(registration(members=(1,)), renewed=False) == 0, "from then on"


def test_another_result_was_invalidated_rightly() -> None:
    pauses = ContributorPauses()
    for number in range(5):
        assert pauses.of(registration(members=(number,)), renewed=False) == PAUSE_MS
        assert pauses.of(registration("count", None, bytes([number])), renewed=False) == PAUSE_MS


def test_a_registration_whose_contributors_were_read_did_not_die_too_early() -> None:
    pauses = ContributorPauses()
    pauses.of(registration(), renewed=False)
    pauses.read(registration())
    assert pauses.of(registration(), renewed=False) == PAUSE_MS


def test_a_renewed_registration_does_not_wait() -> None:
    assert ContributorPauses().of(registration(), renewed=True) == 0


def test_the_earliest_due_comes_first() -> None:
    now_ms = [1_000]
    due = DueRegistrations(lambda: now_ms[0], most=2)
    stop = threading.Event()
    assert due.put(registration("late"), due_ms=1_000)
    assert due.put(registration("early"), due_ms=900)
    assert not due.put(registration("third"), due_ms=900), "two may wait"
    taken = [due.take(stop), due.take(stop)]
    assert [notification and notification.query_id for notification in taken] == ["early", "late"]


def test_a_thread_that_waits_is_woken_to_end() -> None:
    due = DueRegistrations(lambda: 0, most=2)
    stop = threading.Event()
    due.put(registration(), due_ms=10**9)
    ended = threading.Thread(target=due.take, args=(stop,))
    ended.start()
    stop.set()
    due.wake()
    ended.join(30)
    assert not ended.is_alive()

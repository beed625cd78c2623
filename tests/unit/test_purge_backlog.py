"""The backlog of a place: when it has fallen behind, and what may be promised meanwhile."""

from __future__ import annotations

import math
from typing import Any

import pytest

from quaestor.cdn_adapters.backlog import LATE_MS, SHORT_MS, Backlog
from quaestor.cdn_adapters.capabilities import TAG, Capabilities, Owner, Rate
from quaestor.observability.telemetry import Telemetry
from quaestor.purge_ports import QueueSize

NOW_MS = 1_700_000_000_000
RATE = Rate(bucket="api", owner=Owner.ACCOUNT, per_s=5, burst=25, kinds=(TAG,))
PROVIDER = Capabilities(kinds=(TAG,), batch={TAG: 100}, rates=(RATE,), effective_within_ms=25_000)
VARNISH = Capabilities(kinds=(TAG,))


def size(oldest_ms: int | None, waiting: int = 0) -> QueueSize:
    return QueueSize(waiting=waiting, taken=0, dead=0, oldest_ms=oldest_ms)


def test_a_place_without_open_purges_is_promised_as_much_as_any() -> None:
    """The promise is full again right after the place was dark."""
    backlog = Backlog(VARNISH)
    assert backlog.update(size(None), "dark", NOW_MS) == "ok"
    assert (backlog.late, backlog.copies_live_ms) == (False, None)


@pytest.mark.parametrize(("sender", "state"), [("ok", "throttled"), ("throttled", "throttled"), ("dark", "dark")])
def test_an_old_purge_makes_lifetimes_short_in_every_process(sender: str, state: str) -> None:
    """A process that does not send itself sees the backlog by the age of the oldest purge."""
    backlog = Backlog(VARNISH)
    assert backlog.update(size(NOW_MS - LATE_MS - 1, waiting=1), sender, NOW_MS) == state
    assert (backlog.late, backlog.turned, backlog.copies_live_ms) == (True, True, SHORT_MS)
    backlog.update(size(NOW_MS - LATE_MS - 1, waiting=1), sender, NOW_MS)
    assert not backlog.turned
    assert backlog.update(size(None), "ok", NOW_MS) == "ok"
    assert (backlog.turned, backlog.copies_live_ms) == (True, None)


def test_while_a_purge_is_open_no_copy_lives_longer_than_the_providers_bound() -> None:
    """A tier above may hand out again what was purged below."""
    backlog = Backlog(PROVIDER)
    backlog.update(size(NOW_MS - 10, waiting=1), "ok", NOW_MS)
    assert backlog.copies_live_ms == 25_000


def test_over_budget_copies_are_short_before_anything_waits() -> None:
    """A purge of what is handed out now would not be sent."""
    backlog = Backlog(PROVIDER)
    assert backlog.update(size(None), "ok", NOW_MS, over_budget=True) == "over-budget"
    assert (backlog.late, backlog.turned, backlog.copies_live_ms) == (True, True, SHORT_MS)
    assert backlog.update(size(None), "ok", NOW_MS) == "ok"
    assert (backlog.late, backlog.copies_live_ms) == (False, None)


@pytest.mark.parametrize(
    ("state", "stale_s"), [("ok", 45.0), ("throttled", 45.0), ("dark", 600.0), ("over-budget", 600.0)]
)
def test_an_open_purge_may_be_served_until_it_is_sent_or_has_expired(state: str, stale_s: float) -> None:
    backlog = Backlog(PROVIDER)
    there = QueueSize(waiting=10_000, taken=0, dead=0, oldest_ms=NOW_MS, until_ms=NOW_MS + 600_000)
    assert backlog.stale_at_most_s(there, state, NOW_MS) == stale_s
    assert backlog.stale_at_most_s(there._replace(until_ms=NOW_MS + 7_000), state, NOW_MS) == 7.0
    assert backlog.stale_at_most_s(size(None), state, NOW_MS) == 0.0
    assert Backlog(VARNISH).stale_at_most_s(size(NOW_MS, waiting=1), state, NOW_MS) == math.inf


def test_a_kind_that_the_place_does_not_have_does_not_slow_the_bound() -> None:
    """A rate that names no kinds holds for all of them; a kind without a batch would count as one a request."""
    rate = Rate(bucket="api", owner=Owner.ACCOUNT, per_s=5, burst=25)
    place = Capabilities(kinds=(TAG,), batch={TAG: 100}, rates=(rate,))
    assert Backlog(place).drained_within_s(size(NOW_MS, waiting=10_000)) == 20.0


def test_the_announced_bound_is_what_the_rates_allow() -> None:
    """10,000 purges in hundreds, five a second: 20 s, and the provider's own bound."""
    assert Backlog(PROVIDER).drained_within_s(size(NOW_MS, waiting=10_000)) == 45.0
    assert Backlog(VARNISH).drained_within_s(size(NOW_MS, waiting=10_000)) is None


def test_metrics_of_several_places_of_one_name_show_the_worst() -> None:
    """A dark node is never hidden by a healthy one, in any order of their updates."""
    purging = Telemetry().purging
    purging.update("varnish", "varnish a", "dark", size(NOW_MS - 9_000, waiting=3), NOW_MS, stale_s=60.0)
    purging.update("varnish", "varnish b", "ok", size(None, waiting=1), NOW_MS, stale_s=0.0)

    def value(gauge: Any, *labels: str) -> float:
        return float(gauge.labels("varnish", *labels)._value.get())

    assert [value(purging.state, state) for state in ("ok", "throttled", "dark")] == [0, 0, 1]
    assert (value(purging.queued, "waiting"), value(purging.oldest_s), value(purging.stale_s)) == (4, 9, 60)
    purging.update("varnish", "varnish a", "ok", size(None), NOW_MS, stale_s=0.0)
    assert (value(purging.state, "ok"), value(purging.oldest_s)) == (1, 0)

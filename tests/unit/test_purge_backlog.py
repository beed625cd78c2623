"""The backlog of a place: when it has fallen behind, and what may be promised meanwhile."""

from __future__ import annotations

import pytest

from cdn_adapters.backlog import LATE_MS, SHORT_MS, Backlog
from cdn_adapters.capabilities import TAG, Capabilities, Owner, Rate
from quaestor.purge_ports import QueueSize

NOW_MS = 1_700_000_000_000
RATE = Rate(bucket="api", owner=Owner.ACCOUNT, per_s=5, burst=25, kinds=(TAG,))
PROVIDER = Capabilities(kinds=(TAG,), batch={TAG: 100}, rates=(RATE,), effective_within_ms=25_000)
VARNISH = Capabilities(kinds=(TAG,))


def size(oldest_ms: int | None, waiting: int = 0) -> QueueSize:
    return QueueSize(waiting=waiting, taken=0, dead=0, oldest_ms=oldest_ms)


def test_a_place_without_open_purges_is_promised_as_much_as_any() -> None:
    """Also right after it was dark."""
    backlog = Backlog(VARNISH)
    assert backlog.told(size(None), "dark", NOW_MS) == "ok"
    assert (backlog.late, backlog.copies_live_ms) == (False, None)


@pytest.mark.parametrize(("sender", "state"), [("ok", "throttled"), ("throttled", "throttled"), ("dark", "dark")])
def test_an_old_purge_makes_lifetimes_short_whoever_sends(sender: str, state: str) -> None:
    """A process that does not send itself sees the same by the age of the oldest purge."""
    backlog = Backlog(VARNISH)
    assert backlog.told(size(NOW_MS - LATE_MS - 1, waiting=1), sender, NOW_MS) == state
    assert (backlog.late, backlog.turned, backlog.copies_live_ms) == (True, True, SHORT_MS)
    backlog.told(size(NOW_MS - LATE_MS - 1, waiting=1), sender, NOW_MS)
    assert not backlog.turned
    assert backlog.told(size(None), "ok", NOW_MS) == "ok"
    assert (backlog.turned, backlog.copies_live_ms) == (True, None)


def test_while_a_purge_is_open_no_copy_lives_longer_than_the_providers_bound() -> None:
    """A tier above may hand out again what was purged below."""
    backlog = Backlog(PROVIDER)
    backlog.told(size(NOW_MS - 10, waiting=1), "ok", NOW_MS)
    assert backlog.copies_live_ms == 25_000


def test_the_announced_bound_is_what_the_rates_allow() -> None:
    """10,000 purges in hundreds, five a second: 20 s, and the provider's own bound."""
    assert Backlog(PROVIDER).drained_within_s(size(NOW_MS, waiting=10_000)) == 45.0
    assert Backlog(VARNISH).drained_within_s(size(NOW_MS, waiting=10_000)) is None

"""How long the sender of a request's body may still be waited for."""

from __future__ import annotations

from quaestor.proxy.request_body import BodyPace


def pace(**bounds: float) -> BodyPace:
    return BodyPace(**{"patience_s": 10.0, "min_bytes_per_s": 100.0, "total_s": 1000.0} | bounds)


def test_a_client_at_the_slowest_rate_may_go_on_until_the_end_of_all_patience() -> None:
    made = pace(total_s=50.0)
    for _ in range(50):
        assert made.allowed_s > 0
        made.received(100, waited_s=1.0)
    assert made.allowed_s == 0
    assert made.exceeded == "time"


def test_the_wait_for_a_client_that_falls_behind_is_no_longer_than_the_patience() -> None:
    made = pace()
    seconds = 0
    while made.allowed_s:
        made.received(50, waited_s=1.0)
        seconds += 1
    assert seconds == 20  # half a second lost in each
    assert made.exceeded == "rate"


def test_nobody_saves_up_time() -> None:
    """A gigabyte at once, and then silence: the patience, and no more."""
    made = pace()
    made.received(10**9, waited_s=0.1)
    assert made.allowed_s == 10.0


def test_empty_pieces_buy_no_time() -> None:
    made = pace()
    for _ in range(1000):
        made.received(0, waited_s=0.02)
    assert made.allowed_s == 0

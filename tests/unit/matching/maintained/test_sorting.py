"""The sorting stage: order, limit and offset, what others push out and pull in, slack and its renewal."""

from __future__ import annotations

import pytest

from quaestor.errors import ConfigurationError
from quaestor.incremental import RenewalSettings, bootstrap_queries
from quaestor.incremental.renewal import RenewalPace
from tests.unit.matching.maintained.scene import Record, Scene, event_rows, find

SORT = (("n", 1),)


def records(*numbers: int) -> list[Record]:
    return [{"_id": number, "n": number} for number in numbers]


def test_the_offset_is_read_too_and_slack_behind_the_limit() -> None:
    (query,) = bootstrap_queries(
        find(sort=SORT, skip=3, limit=2, projection={"n": 1}), settings=RenewalSettings(slack=4)
    )
    assert (query.skip, query.limit, query.sort, query.projection) == (0, 9, (("n", 1), ("_id", 1)), None)


def test_the_record_on_the_horizon_is_known_as_long_as_it_stays_there() -> None:
    """The last of a full window without slack may change in everything but its place."""
    scene = Scene(find(sort=SORT, limit=2), records(1, 2, 3), read=records(1, 2), slack=0)
    assert event_rows(scene.put(2, n=2, m=1)) == [("change", 2, 1, 1)]
    assert scene.maintained.renewal is None


def test_a_move_by_a_field_that_is_not_shown_is_a_move() -> None:
    scene = Scene(find(sort=SORT, projection={"_id": 1}), records(1, 2, 3))
    assert event_rows(scene.put(1, n=9)) == [("changeIndex", 1, 2, 0)]


def test_equal_records_are_ordered_by_id() -> None:
    scene = Scene(find(sort=(("n", -1),)), [{"_id": 2, "n": 1}, {"_id": 3, "n": 1}])
    assert event_rows(scene.put(1, n=1)) == [("add", 1, 0, None)]
    assert scene.ids() == [1, 2, 3]


def test_moving_within_the_window_is_a_change_of_index() -> None:
    scene = Scene(find(sort=SORT, limit=3), records(10, 20, 30, 40))
    assert event_rows(scene.put(10, n=25)) == [("changeIndex", 10, 1, 0)]
    assert event_rows(scene.put(10, n=26)) == [("change", 10, 1, 1)]
    assert scene.put(10, n=26) == [], "nothing that shows has changed"


def test_a_record_that_leaves_pulls_the_next_one_in() -> None:
    scene = Scene(find(sort=SORT, limit=2), records(10, 20, 30))
    assert event_rows(scene.delete(10)) == [("remove", 10, None, 0), ("add", 30, 1, None)]


def test_before_the_window_an_insertion_shifts_it() -> None:
    scene = Scene(find(sort=SORT, skip=1, limit=2), records(10, 20, 30, 40))
    assert event_rows(scene.put(5, n=5)) == [("remove", 30, None, 1), ("add", 10, 0, None)]
    assert scene.ids() == [10, 20]


def test_before_the_window_a_removal_shifts_it_back() -> None:
    scene = Scene(find(sort=SORT, skip=1, limit=2), records(10, 20, 30, 40))
    assert event_rows(scene.delete(10)) == [("remove", 20, None, 0), ("add", 40, 1, None)]


def test_from_before_the_window_to_behind_it() -> None:
    scene = Scene(find(sort=SORT, skip=1, limit=2), records(10, 20, 30, 40))
    assert event_rows(scene.put(10, n=50)) == [("remove", 20, None, 0), ("add", 40, 1, None)]
    assert scene.ids() == [30, 40]


def test_a_change_behind_the_window_makes_no_event() -> None:
    scene = Scene(find(sort=SORT, skip=1, limit=2), records(10, 20, 30, 40))
    assert scene.put(50, n=50) == []
    assert scene.put(40, n=60) == []
    assert event_rows(scene.delete(20)) == [("remove", 20, None, 0), ("add", 50, 1, None)]


def test_without_a_limit_the_whole_order_is_known() -> None:
    scene = Scene(find(sort=SORT, skip=2), records(10, 20, 30))
    assert event_rows(scene.put(5, n=5)) == [("add", 20, 0, None)]
    assert scene.ids() == [20, 30]
    assert scene.maintained.slack is None


def test_with_less_than_asked_for_everything_is_known() -> None:
    """Fewer records than limit and slack: no removal can ever need the database."""
    scene = Scene(find(sort=SORT, limit=2), records(10, 20, 30), slack=2)
    for key in (10, 20, 30):
        scene.delete(key)
    assert scene.shown() == []
    assert scene.maintained.renewal is None


def used_up(**settings: int) -> Scene:
    """[1, 2] of [1 .. 9], with 3 as slack, of which two have gone."""
    scene = Scene(find(sort=SORT, limit=2), records(*range(1, 10)), read=records(1, 2, 3), slack=1, **settings)
    assert scene.maintained.slack == 1
    assert event_rows(scene.delete(1)) == [("remove", 1, None, 0), ("add", 3, 1, None)]
    assert scene.maintained.slack == 0
    assert scene.maintained.renewal is None
    assert scene.delete(2) == []
    return scene


def test_when_the_slack_is_used_up_the_result_stands_still_until_renewed() -> None:
    scene = used_up()
    request = scene.maintained.renewal
    assert request is not None
    assert request.query.limit == 2 + 1
    assert request.at_least == scene.version
    assert scene.ids() == [2, 3], "as it was last known"
    events = scene.maintained.renew(records(3, 4, 5), scene.version)
    assert event_rows(events) == [("remove", 2, None, 0), ("add", 4, 1, None)], "only the differences"
    assert scene.maintained.renewal is None


def test_insertions_before_the_horizon_help_without_the_database() -> None:
    scene = used_up()
    assert event_rows(scene.put(0, n=0)) == [("remove", 2, None, 0), ("add", 0, 0, None)]
    assert scene.ids() == [0, 3]
    assert scene.maintained.renewal is None


def test_insertions_behind_the_horizon_do_not_help() -> None:
    """Whether anything else stands before them nobody knows."""
    scene = used_up()
    assert scene.put(50, n=50) == []
    assert scene.maintained.renewal is not None


def test_writes_during_the_renewal_are_not_lost() -> None:
    scene = used_up()
    read_at = scene.version
    assert scene.put(60, n=3.5) == []
    assert scene.delete(4) == []
    events = scene.maintained.renew(records(3, 4, 5), read_at)
    assert scene.ids() == [3, 60]
    assert event_rows(events) == [("remove", 2, None, 0), ("add", 60, 1, None)]


def test_a_renewal_that_is_no_longer_needed_changes_nothing() -> None:
    """Insertions filled the window while it was under way, and it has not seen them."""
    scene = used_up()
    read_at = scene.version
    scene.put(2.5, n=2.5)
    assert scene.maintained.renew(records(3, 4, 5), read_at) == []
    assert scene.ids() == [2.5, 3]


def test_writes_that_the_renewal_has_seen_already_do_no_harm() -> None:
    scene = used_up()
    read_at = scene.version
    scene.put(60, n=3.5)
    scene.delete(60)
    scene.maintained.renew(records(3, 4, 5), read_at)
    assert scene.ids() == [3, 4]


def test_a_renewal_that_is_too_old_is_refused() -> None:
    scene = used_up()
    with pytest.raises(ValueError, match="or later is needed"):
        scene.maintained.renew(records(3, 4, 5), scene.version - 1)


def test_too_many_waiting_images_ask_for_a_newer_read() -> None:
    scene = used_up(most_waiting=3)
    first = scene.maintained.renewal
    for number in range(100, 104):
        scene.put(number, n=number)
    request = scene.maintained.renewal
    assert first is not None
    assert request is not None
    assert request.at_least == scene.version > first.at_least


def test_a_result_that_grows_beyond_limit_and_slack_is_given_up() -> None:
    """Memory stays bounded by limit and slack; what was dropped is beyond the horizon again."""
    scene = Scene(find(sort=SORT, limit=2), [], slack=1)
    for number in range(10, 0, -1):
        scene.put(number, n=number)
    assert scene.ids() == [1, 2]
    assert scene.maintained.slack == 1
    scene.delete(1)
    assert scene.delete(2) == []
    assert scene.maintained.renewal is not None


def test_the_slack_grows_when_it_is_used_up_often_and_is_bounded() -> None:
    pace = RenewalPace(RenewalSettings(slack=2, most_slack=10, frequent_ms=1_000))
    sizes = []
    for at_ms in (0, 500, 900, 1_500, 2_000):
        pace.used_up(at_ms)
        sizes.append(pace.slack)
    assert sizes == [2, 4, 8, 10, 10]
    pace.used_up(7_000)
    assert pace.slack == 10, "neither soon nor late"
    for at_ms in (17_000, 27_000, 37_000):
        pace.used_up(at_ms)
    assert pace.slack == 2, "quiet times give it back"


def test_no_slack_at_all_grows_as_well() -> None:
    pace = RenewalPace(RenewalSettings(slack=0, frequent_ms=1_000))
    pace.used_up(0)
    pace.used_up(10)
    assert pace.slack == 1


def test_the_request_asks_for_the_grown_slack() -> None:
    scene = used_up(frequent_ms=60_000)
    scene.maintained.renew(records(3, 4, 5), scene.version)
    scene.delete(3)
    scene.delete(4)
    request = scene.maintained.renewal
    assert request is not None
    assert request.query.limit == 2 + 2


def test_renewals_are_not_asked_for_more_often_than_allowed() -> None:
    scene = used_up(poll_interval_ms=5_000)
    first = scene.maintained.renewal
    assert first is not None
    assert first.not_before_ms == 0
    scene.maintained.renew(records(3, 4, 5), scene.version, now_ms=70_000)
    scene.delete(3)
    scene.delete(4)
    second = scene.maintained.renewal
    assert second is not None
    assert second.not_before_ms == 75_000


def test_a_record_that_cannot_be_sorted_is_a_matter_for_the_database() -> None:
    """Parallel arrays fail the query there; here the result stands still and asks, and the next renewal heals it."""
    scene = Scene(find(sort=(("a", 1), ("b", 1))), [{"_id": 1, "a": 1, "b": 1}])
    assert scene.put(2, a=[1, 2], b=[1, 2]) == []
    request = scene.maintained.renewal
    assert request is not None
    assert "parallel arrays" in request.reason
    assert scene.ids() == [1]
    assert scene.put(3, a=3, b=3) == []
    events = scene.maintained.renew([{"_id": 1, "a": 1, "b": 1}, {"_id": 3, "a": 3, "b": 3}], scene.version)
    assert event_rows(events) == [("add", 3, 1, None)]


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="slack must lie in"):
        RenewalSettings(slack=5, most_slack=4)
    with pytest.raises(ConfigurationError, match="poll_interval_ms must not be negative"):
        RenewalSettings(poll_interval_ms=-1)

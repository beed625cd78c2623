"""The source of the statistics on a real Valkey: each write once, in bounded batches, and nothing lost without a word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from quaestor.clock import system_clock
from quaestor.errors import EventLayerResetError
from quaestor.event_layer import offsets, streams
from quaestor.model import AfterImage, GridShape, MatchType, WriteKind
from quaestor.redis.clients import client
from quaestor.statistics.batch_planning import MOST_TENANTS, Planner
from quaestor.statistics.pipelines import Carries
from quaestor.statistics.positions import Positions
from quaestor.statistics.source import EVENTS
from tests.unit.statistics.feed import TICK, Feed, feed, image

START = Positions()


@pytest.fixture
def fed(shared_url: str, prefix: str) -> Iterator[Feed]:
    with feed(shared_url, prefix) as made:
        yield made


def keys(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return sorted((row["key_json"], row["version"]) for row in rows)


def sums(rows: list[dict[str, Any]]) -> Counter[tuple[str, str, str]]:
    results: Counter[tuple[str, str, str]] = Counter()
    for row in rows:
        results[row["scope"], row["name"], row["measure"]] += row["n"]
    return results


def test_every_write_is_read_once_and_ticks_are_none(fed: Feed) -> None:
    written = [image(version, f"k{version}") for version in range(1, 21)]
    fed.write(*written[:10], TICK)
    end, rows = fed.batch(START)
    fed.write(TICK, *written[10:])
    again, more = fed.batch(end)
    assert keys(rows + more) == sorted((f'"{write.key}"', write.version) for write in written)
    assert fed.batch(again) == (again, [])


def test_a_range_reads_the_same_whenever_it_is_read(fed: Feed) -> None:
    fed.write(*(image(version, version) for version in range(1, 30)))
    end, rows = fed.batch(START)
    fed.write(*(image(version, version) for version in range(30, 60)))
    assert fed.rows(START, end) == rows


def test_batches_are_bounded_and_none_is_skipped(fed: Feed) -> None:
    fed.write(*(image(version, version) for version in range(1, 1001)))
    position, rows_read, batches = START, [], 0
    while True:
        reached, rows = fed.batch(position, most=200)
        if reached == position:
            break
        assert len(rows) <= 200
        position, batches = reached, batches + 1
        rows_read += rows
    assert batches >= 5
    assert sorted(row["version"] for row in rows_read) == list(range(1, 1001))


def test_a_batch_is_bounded_in_bytes_too(fed: Feed) -> None:
    large = {"_id": 1, "text": "x" * 10_000}
    for version in range(1, 2001):
        fed.write(AfterImage(namespace="a.b", kind=WriteKind.UPDATE, version=version, key=1, after=large))
    end = fed.planner(most_bytes=100_000).advance(START, most_entries=100_000)
    assert 0 < len(fed.rows(START, end)) <= 500


def test_no_pipeline_is_read_past_the_moment_another_has_reached(fed: Feed) -> None:
    """Rows of a batch are never older than earlier ones, however far behind the job is."""
    for version in range(1, 301):
        fed.write(image(version, version))
        fed.match("q", MatchType.CHANGE)
    position, newest = START, None
    while True:
        reached, rows = fed.batch(position, EVENTS, most=300)
        if reached == position:
            break
        oldest = min(row["at"] for row in rows)
        assert newest is None or oldest >= newest
        position, newest = reached, max(row["at"] for row in rows)
    assert newest is not None


def test_writes_that_ingest_appends_again_make_no_further_row(fed: Feed) -> None:
    written = [image(version, version % 3) for version in range(1, 31)]
    fed.write(*written)
    end, rows = fed.batch(START)
    fed.write(*written[20:])
    fed.write(image(31, 0))
    end, more = fed.batch(end)
    assert [row["version"] for row in more] == [31]
    assert len(rows) == 30


def test_records_of_one_transaction_are_all_rows_and_its_repetition_is_none(fed: Feed) -> None:
    first, second = [image(7, f"a{n}") for n in range(5)], [image(7, f"b{n}") for n in range(5)]
    fed.write(*first)
    end, rows = fed.batch(START)
    fed.write(*first, *second, *second)
    _, more = fed.batch(end)
    assert keys(rows + more) == sorted((f'"{write.key}"', 7) for write in first + second)


def test_records_with_one_id_in_two_collections_of_one_transaction_are_both_rows(fed: Feed) -> None:
    fed.write(image(7, "a", namespace="shop.items"), image(7, "a", namespace="shop.orders"))
    assert sorted(row["namespace"] for row in fed.batch(START)[1]) == ["shop.items", "shop.orders"]


def test_an_insert_and_an_update_of_one_transaction_are_both_rows(fed: Feed) -> None:
    fed.write(image(7, "a", kind=WriteKind.INSERT), image(7, "a"))
    assert sorted(row["kind"] for row in fed.batch(START)[1]) == ["insert", "update"]


def test_after_a_gap_another_databases_versions_are_taken_as_they_come(fed: Feed) -> None:
    hour = 3_600 << 32
    fed.write(image(10 * hour, "a"))
    end, _ = fed.batch(START)
    fed.write(AfterImage(namespace="*", kind=WriteKind.GAP, version=9 * hour), image(9 * hour + 1, "a"))
    assert sorted(row["kind"] for row in fed.batch(end)[1]) == ["gap", "update"]


def test_writes_appended_again_after_a_gap_are_not_reported_again(fed: Feed) -> None:
    """After an election, for instance, the change stream continues from its last saved place."""
    fed.write(*(image(version, "a") for version in range(1, 11)))
    end, _ = fed.batch(START)
    fed.write(
        AfterImage(namespace="*", kind=WriteKind.GAP, version=7), *(image(version, "a") for version in range(8, 13))
    )
    assert [row["version"] for row in fed.batch(end)[1] if row["kind"] == "update"] == [11, 12]


def test_an_event_of_a_whole_collection_is_one_row(fed: Feed) -> None:
    """The event is one row, though it is in every write pipeline."""
    fed.write(AfterImage(namespace="shop.items", kind=WriteKind.COLLECTION, version=9))
    (row,) = fed.batch(START)[1]
    assert (row["kind"], row["namespace"], row["key"]) == ("collection", "shop.items", None)


def test_entries_trimmed_before_they_were_read_are_counted_and_reported(fed: Feed) -> None:
    fed.write(*(image(version, "same") for version in range(1, 11)))
    end, _ = fed.batch(START)
    fed.write(*(image(version, "same") for version in range(11, 31)))
    (stream,) = [name for name, position in end.streams.items() if position.offset != offsets.START]
    with client(fed.redis_url) as server:
        server.xtrim(stream, maxlen=5, approximate=False)
    _, rows = fed.batch(end)
    assert [row["version"] for row in rows if row["kind"] == "update"] == [26, 27, 28, 29, 30]
    (gap,) = [row for row in rows if row["kind"] == "lost"]
    assert gap["lost"] == 15
    assert "trimmed" in gap["detail"]


def test_entries_trimmed_between_planning_and_reading_are_counted_and_reported(fed: Feed) -> None:
    fed.write(*(image(version, "same") for version in range(1, 11)))
    start, _ = fed.batch(START)
    fed.write(*(image(version, "same") for version in range(11, 31)))
    end = fed.planner().advance(start, most_entries=1000)
    (stream,) = [name for name, position in end.streams.items() if position.offset != offsets.START]
    with client(fed.redis_url) as server:
        server.xtrim(stream, maxlen=2, approximate=False)
    rows = fed.rows(start, end)
    assert [row["lost"] for row in rows if row["kind"] == "lost"] == [18]


def test_trimming_what_was_read_is_no_loss(fed: Feed) -> None:
    """Though the entry read last is not retained any more, as in a pipeline that was silent for long."""
    fed.write(*(image(version, "same") for version in range(1, 11)))
    end, _ = fed.batch(START)
    (stream,) = [name for name, position in end.streams.items() if position.offset != offsets.START]
    with client(fed.redis_url) as server:
        server.xtrim(stream, maxlen=0, approximate=False)
    fed.write(image(11, "same"))
    assert [row["kind"] for row in fed.batch(end)[1]] == ["update"]


def test_an_event_layer_that_lost_its_data_leaves_a_row_that_says_so_and_is_read_anew(fed: Feed) -> None:
    fed.write(image(1, "a"))
    end, _ = fed.batch(START)
    with client(fed.redis_url) as server:
        server.delete(streams.epoch(fed.deployment), *end.streams)
    with feed(fed.redis_url, fed.deployment) as after:
        try:
            after.write(image(2, "a"))
        except EventLayerResetError:  # on a cluster the first caller learns of the loss
            after.write(image(2, "a"))
        reached, rows = after.batch(end)
        assert sorted(row["kind"] for row in rows) == ["lost", "update"]
        assert {row["lost"] for row in rows} == {None}
        assert after.batch(reached) == (reached, [])


def test_a_payload_that_nobody_understands_is_kept_and_does_not_stop_the_rest(fed: Feed) -> None:
    fed.layer.append(streams.writes(fed.deployment, 0), [b"\x05\x00\x00\x00\x00", b"nonsense"])
    fed.write(image(1, "a"))
    _, rows = fed.batch(START)
    assert sorted(row["kind"] for row in rows) == ["unreadable", "unreadable", "update"]
    assert b"nonsense" in {row["after"] for row in rows}
    assert sums(fed.batch(START, EVENTS)[1])["deployment", "", "unreadable"] == 2


def test_a_write_in_the_pipelines_of_two_grids_is_one_row(fed: Feed) -> None:
    """During a resize either grid may be read first, and to any version."""
    new = GridShape(query_partitions=1, write_partitions=3, generation=1)
    fed.write(*(image(version, version) for version in range(1, 41)))
    end, rows_read = fed.batch(START)
    fed.serve(fed.shape, successor=new)
    fed.write(*(image(version, version) for version in range(20, 61)), shape=new)
    end, rows = fed.batch(end)
    rows_read += rows
    fed.write(*(image(version, version) for version in range(41, 71)))
    fed.write(*(image(version, version) for version in range(61, 81)), shape=new)
    fed.serve(new)
    end, rows = fed.batch(end)
    rows_read += rows
    fed.write(*(image(version, version) for version in range(81, 101)), shape=new)
    _, rows = fed.batch(end)
    rows_read += rows
    assert sorted(row["version"] for row in rows_read) == list(range(1, 101))


def test_writes_matches_and_reads_are_counted_by_what_they_concern(fed: Feed) -> None:
    fed.write(image(1, "a", kind=WriteKind.INSERT), image(2, "a"), image(3, "b", kind=WriteKind.DELETE), TICK)
    fed.match("q1", MatchType.ADD)
    fed.match("q1", MatchType.CHANGE_INDEX)
    fed.match("q2", MatchType.EVICTED, key=None)
    fed.register("other:1", "q1")
    fed.used(queries=[("q1", 5)], registrations=[("other:1", 3), ("unknown:1", 2)])
    assert sums(fed.batch(START, EVENTS)[1]) == {
        ("collection", "shop.items", "insert"): 1,
        ("collection", "shop.items", "update"): 1,
        ("collection", "shop.items", "delete"): 1,
        ("query", "q1", "add"): 1,
        ("query", "q1", "changeIndex"): 1,
        ("query", "q2", "evicted"): 1,
        ("query", "q1", "miss"): 1,
        ("kind", "q1", "miss"): 1,
        ("query", "q1", "hit"): 8,
        ("deployment", "", "hit"): 10,
        ("deployment", "", "unattributed"): 2,
        ("deployment", "", "tick"): 1,
    }


def test_notifications_of_each_tenant_are_counted(fed: Feed) -> None:
    """A tenant is known from its first registration on; notifications in the same batch count."""
    fed.match("q", MatchType.ADD, tenant="unheard-of")
    fed.register("shop~a:1", "q", tenant="shop")
    fed.match("q", MatchType.REMOVE, tenant="shop")
    fed.match("q", MatchType.CHANGE)
    end, rows = fed.batch(START, EVENTS)
    fed.match("q", MatchType.REMOVE, tenant="shop")
    again, more = fed.batch(end, EVENTS)
    assert sums(rows + more) == {
        ("query", "q", "miss"): 1,
        ("kind", "q", "miss"): 1,
        ("query", "q", "remove"): 2,
        ("query", "q", "change"): 1,
    }
    assert again.tenants == ("shop",)


def test_grids_that_were_replaced_and_silent_tenants_are_not_asked_for_ever(fed: Feed) -> None:
    fed.register("shop~a:1", "q", tenant="shop")
    fed.match("q", MatchType.REMOVE, tenant="shop")
    fed.write(*(image(version, version) for version in range(1, 20)))
    end, _ = fed.batch(START, EVENTS)
    new = GridShape(query_partitions=1, write_partitions=1, generation=1)
    fed.serve(new)
    fed.write(image(50, 1), shape=new)
    later = Planner(
        fed.layer, fed.deployment, frozenset(Carries), most_bytes=1 << 26, clock=lambda: system_clock() + 3_600_000
    ).advance(fed.batch(end, EVENTS)[0], most_entries=1000)
    assert later.shapes == (new,)
    assert later.tenants == ()
    assert not [stream for stream in later.streams if stream == streams.writes(fed.deployment, 1)]


def test_tenants_are_bounded_and_tenants_with_notifications_stay(fed: Feed) -> None:
    fed.register("shop~a:1", "q", tenant="shop")
    fed.match("q", MatchType.REMOVE, tenant="shop")
    end, _ = fed.batch(START, EVENTS)
    for number in range(MOST_TENANTS + 50):
        fed.register(f"t{number}~a:1", "q", tenant=f"t{number}")
    end, _ = fed.batch(end, EVENTS, most=1_000_000)
    assert len(end.tenants) == MOST_TENANTS
    assert "shop" in end.tenants


def test_reads_of_other_processes_are_attributed_by_a_worker_that_did_not_see_the_registration(
    fed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed.register("other:1", "q1")
    end, _ = fed.batch(START, EVENTS)
    monkeypatch.setattr("quaestor.statistics.ranges._registered", {})
    fed.used(registrations=[("other:1", 3)])
    assert sums(fed.batch(end, EVENTS)[1])["query", "q1", "hit"] == 3


def test_long_names_and_keys_are_bounded(fed: Feed) -> None:
    fed.write(image(1, "k" * 5_000, namespace="n" * 5_000))
    (row,) = fed.batch(START, EVENTS)[1]
    assert len(row["name"]) <= 300
    assert len(row["item"]) < 200


def test_a_checkpoint_of_another_release_is_refused_with_the_remedy(fed: Feed) -> None:
    with pytest.raises(Exception, match="begin with a new directory"):
        fed.reader().latestOffset({"v": 99}, fed.reader().getDefaultReadLimit())

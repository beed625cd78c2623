"""Kafka as a source, against a double of a cluster: order, restarts, moved leaders, cut connections, dropped records."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quaestor.channels.datasets import Mode
from quaestor.channels.feeds.feed import OffsetSource
from quaestor.channels.feeds.kafka_source import KafkaSource, connection
from quaestor.channels.feeds.records import Incoming, SourceLostError
from quaestor.errors import ConfigurationError, DependencyError
from tests.channels.feeds.kafka_double import GZIP, KafkaDouble, cluster
from tests.channels.feeds.world import World, running
from tests.support import becomes


@pytest.fixture
def kafka() -> Iterator[KafkaDouble]:
    with cluster() as double:
        yield double


def record(number: int) -> bytes:
    return json.dumps({"id": number, "text": "a"}).encode()


def source_of(kafka: KafkaDouble, start: str = "beginning") -> KafkaSource:
    return KafkaSource(kafka.url, kafka.topic, start=start)


def read_until(source: OffsetSource, after: str, count: int, most: int = 10) -> list[Incoming]:
    """Read until there are so many records."""
    records: list[Incoming] = []

    def complete() -> bool:
        records.extend(source.read(records[-1].offset if records else after, most))
        return len(records) >= count

    becomes(complete)
    return records


def ids(records: list[Incoming]) -> list[int]:
    return [json.loads(entry.data)["id"] for entry in records]


def test_records_of_all_partitions_come_once_and_another_process_goes_on(tmp_path: Path, kafka: KafkaDouble) -> None:
    """Batches of a broker are cut anywhere, compressed or not; records without a value are left out."""
    world = World(tmp_path)
    world.define(Mode.INSERT, type="kafka", url=kafka.url, topic=kafka.topic)
    kafka.append(0, [record(1), None, record(2), record(3)])
    kafka.append(1, [record(number) for number in (11, 12, 13)], compression=GZIP)
    source, feed = source_of(kafka), world.feed()
    becomes(lambda: feed.step(source, 2) == 0 and sorted(world.records()) == [1, 2, 3, 11, 12, 13])
    source.close()
    kafka.append(1, [None, record(14), b"no record"])
    again, feed = source_of(kafka), World(tmp_path).feed()
    becomes(lambda: feed.step(again, 2) == 0 and sorted(world.records()) == [1, 2, 3, 11, 12, 13, 14])
    again.close()
    ((data, _),) = world.letters()
    assert data == b"no record", "a repeated record would be a letter, too: its key is there already"


def test_a_batch_is_repeated_as_it_was_when_more_records_have_arrived(kafka: KafkaDouble) -> None:
    """A read from the place before the batch would give other records then."""
    kafka.append(1, [record(11), record(12)])
    source = source_of(kafka)
    first = read_until(source, "", 2)
    kafka.append(0, [record(1), None])
    kafka.append(1, [record(13)])
    other = source_of(kafka)
    assert ids(first) == [11, 12]
    assert other.again(first[-1].offset) == first
    rest = read_until(other, first[-1].offset, 2)
    assert sorted(ids(rest)) == [1, 13]
    assert sorted(ids(read_until(source, "", 4))) == [1, 11, 12, 13]
    source.close()
    other.close()


def test_a_process_that_ends_between_two_partitions_of_the_dataset_loses_and_repeats_nothing(
    tmp_path: Path, kafka: KafkaDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next process completes the batch, though more records have arrived before the batch's partition."""
    world = World(tmp_path, partitions=2)
    world.define(Mode.INSERT, type="kafka", url=kafka.url, topic=kafka.topic)
    source, feed = source_of(kafka), world.feed()
    assert feed.step(source) == 0
    kafka.append(1, [record(number) for number in range(11, 19)] + [record(11)])
    table = feed._sink.partitions[1]  # type: ignore[attr-defined]

    def ended(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(table, "publish", ended)
        with pytest.raises(KeyboardInterrupt):
            becomes(lambda: feed.step(source) > 0)
    source.close()
    assert 0 < len(World(tmp_path).records()) < 8, "one partition of the dataset has its share of the batch"
    kafka.append(0, [record(number) for number in range(1, 4)])
    other, feed = source_of(kafka), World(tmp_path).feed()
    expected = [1, 2, 3, *range(11, 19)]
    becomes(lambda: feed.step(other) == 0 and sorted(world.records()) == expected)
    other.close()
    assert [json.loads(data)["id"] for data, _ in world.letters()] == [11]
    snapshots = [table.snapshot() for table in world.notes.partitions]
    assert sum(file.rows for snapshot in snapshots for file in snapshot.files.values()) == len(expected)


def test_moved_leaders_and_cut_connections_lose_and_repeat_nothing(kafka: KafkaDouble) -> None:
    """A broker that leads a partition no longer refuses it, and a connection ends in the middle of an answer."""
    source = source_of(kafka)
    kafka.append(0, [record(1)])
    records = read_until(source, "", 1)
    kafka.partitions[0].leader = 1
    kafka.append(0, [record(2)])
    records += read_until(source, records[-1].offset, 1)
    assert set(kafka.errors) == {6}, "the old leader has refused a fetch"
    kafka.cut_after = 70
    kafka.append(0, [record(3), record(4)])
    records += read_until(source, records[-1].offset, 2)
    assert kafka.cuts == 1
    assert ids(records) == [1, 2, 3, 4]
    source.close()


def test_records_that_were_dropped_before_they_were_read_are_a_loss(kafka: KafkaDouble) -> None:
    """Records that the feed has read may be dropped. A topic that has become shorter is a loss, too."""
    kafka.append(0, [record(1)])
    source = source_of(kafka)
    (first,) = read_until(source, "", 1)
    kafka.drop_before(0, 1)
    kafka.append(0, [record(2)])
    (second,) = read_until(source, first.offset, 1)
    kafka.append(0, [record(3), record(4)])
    kafka.drop_before(0, 3)
    with pytest.raises(SourceLostError, match="were dropped"):
        becomes(lambda: not source.read(second.offset, 10) and False)
    with pytest.raises(SourceLostError, match="were dropped"):
        source_of(kafka).again(second.offset)
    kafka.partitions[0].batches, kafka.partitions[0].start = [], 0
    with pytest.raises(SourceLostError, match="were dropped"):
        becomes(lambda: not source.read(second.offset, 10) and False)


def test_a_source_from_now_on_leaves_out_the_present_records_only(kafka: KafkaDouble) -> None:
    """A partition that is added later is read from its beginning."""
    kafka.append(0, [record(1)])
    source = source_of(kafka, "now")
    begin = source.begin()
    assert source.read(begin, 10) == []
    kafka.append(0, [record(2)])
    (first,) = read_until(source, begin, 1)
    source.close()
    kafka.add_partition()
    kafka.append(2, [record(21)])
    later = source_of(kafka, "now")
    assert sorted(ids([first, *read_until(later, first.offset, 1)])) == [2, 21]
    later.close()


def test_a_topic_or_cluster_that_is_away_is_an_error_that_passes(
    kafka: KafkaDouble, caplog: pytest.LogCaptureFixture
) -> None:
    """The feed begins again after a while. The topic is not created, and no thread stays."""
    caplog.set_level(logging.CRITICAL, "kafka")  # kept messages would hold the sockets
    threads = set(threading.enumerate())
    for source, reason in (
        (KafkaSource(kafka.url, "other"), "no topic 'other'"),
        (KafkaSource("kafka://127.0.0.1:1", "notes"), "could not be read"),
    ):
        with pytest.raises(DependencyError, match=reason) as raised:
            source.read("", 10)
        assert raised.value.retryable
        source.close()
    assert not [thread for thread in set(threading.enumerate()) - threads if "kafka" in thread.name]
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ResourceWarning
        )  # the library leaves sockets that did not connect to the collector
        del raised, source
        gc.collect()


@pytest.mark.anyio
async def test_a_started_feed_takes_the_records_of_a_topic(tmp_path: Path, kafka: KafkaDouble) -> None:
    """By the service of feeds, whose reads come from several threads."""
    world = World(tmp_path)
    world.define(type="kafka", url=kafka.url, topic=kafka.topic)
    async with running(world.service()):
        for number in range(4):
            kafka.append(number % 2, [record(number)])
        await asyncio.to_thread(becomes, lambda: len(world.records()) == 4)
    assert world.seen == []


def test_a_missing_package_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a feed of this type needs the package."""
    monkeypatch.setitem(sys.modules, "kafka", None)
    monkeypatch.delitem(sys.modules, "quaestor.channels.feeds.kafka_source")
    with pytest.raises(ConfigurationError, match=r"quaestor\[kafka\]"):
        World(tmp_path).service()._source({"type": "kafka", "url": "kafka://127.0.0.1:1", "topic": "t"})


def test_a_url_has_servers_tls_and_a_password() -> None:
    """A password in the clear, an unknown mechanism and another scheme are refused."""
    assert connection("kafka://a:1,b:2") == {"bootstrap_servers": ["a:1", "b:2"], "security_protocol": "PLAINTEXT"}
    assert connection("kafkas://a:1")["security_protocol"] == "SSL"
    assert connection("kafkas://ann:p%40ss@a:1?mechanism=SCRAM-SHA-512") == {
        "bootstrap_servers": ["a:1"],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "ann",
        "sasl_plain_password": "p@ss",
    }
    for url in ("http://a:1", "kafka://", "kafka://a:1,", "kafka://ann:x@a:1", "kafkas://ann:x@a:1?mechanism=MD5"):
        with pytest.raises(ConfigurationError):
            connection(url)
    with pytest.raises(ConfigurationError, match="now or beginning"):
        KafkaSource("kafka://a:1", "t", start="later")

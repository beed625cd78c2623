"""Feeds from sources with offsets: modes, dead letters, replay, enrichment, and repetition after a failure."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from quaestor.channels.datasets import Mode
from quaestor.channels.feeds.definitions import Feeds
from quaestor.channels.feeds.enrichment import PythonEnrichment
from quaestor.channels.feeds.records import SourceLostError
from quaestor.channels.feeds.sources import FileSource
from quaestor.errors import ConfigurationError
from quaestor.tables.storage import FolderStorage
from tests.channels.feeds.world import World


def enriched(record: dict[str, Any]) -> Any:
    """Function of a user."""
    if record["text"] == "slow":
        time.sleep(60)
    if record["text"] == "fatal":
        raise SystemExit
    if record["text"] == "list":
        return [record]
    return {**record, "text": record["text"].upper()}


def lines(path: Path, *records: Any, mode: str = "a") -> None:
    with path.open(mode) as file:
        for record in records:
            file.write((record if isinstance(record, str) else json.dumps(record)) + "\n")


def drain(world: World, source: FileSource, most: int = 2) -> None:
    feed = world.feed()
    while feed.step(source, most):
        pass


def test_an_existing_key_is_an_error_row_of_an_insert_feed(tmp_path: Path) -> None:
    """Other records of the batch are written; letters hold bytes, offset and reason."""
    world = World(tmp_path)
    world.define(type="files", path="x")
    path = tmp_path / "x"
    lines(path, {"id": 1, "text": "a"}, {"id": 1, "text": "b"}, "nonsense", {"id": 2, "text": "c"}, {"text": "d"})
    drain(world, FileSource(path))
    assert world.records() == {1: "a", 2: "c"}
    assert [(data[:8], reason[:24]) for data, reason in world.letters()] == [
        (b'{"id": 1', "the key occurs twice in "),
        (b"nonsense", "the record is no JSON: E"),
        (b'{"text":', "the key 'id' has no valu"),
    ]


def test_upsert_replaces_and_merge_keeps_other_fields(tmp_path: Path) -> None:
    for mode, text in ((Mode.UPSERT, None), (Mode.MERGE, "a")):
        world = World(tmp_path / mode)
        world.define(mode, type="files", path="x")
        path = tmp_path / mode / "x"
        lines(path, {"id": 1, "text": "a"}, {"id": 1, "rank": 5})
        drain(world, FileSource(path), 1)
        assert [(row["text"], row["rank"]) for row in world.notes.records()] == [(text, 5)]


def test_a_feed_goes_on_behind_its_last_record(tmp_path: Path) -> None:
    """A new process neither repeats nor leaves out a record, also in a folder with further files."""
    world = World(tmp_path)
    world.define(type="files", path="in")
    folder = tmp_path / "in"
    folder.mkdir()
    lines(folder / "1.json", {"id": 1, "text": "a"}, {"id": 2, "text": "b"}, {"id": 3, "text": "c"})
    drain(world, FileSource(folder))
    lines(folder / "1.json", {"id": 4, "text": "d"})
    lines(folder / "2.json", {"id": 5, "text": "e"})
    drain(World(tmp_path), FileSource(folder))
    assert world.records() == {1: "a", 2: "b", 3: "c", 4: "d", 5: "e"}
    assert world.letters() == []


def test_the_last_line_counts_once_it_has_an_end(tmp_path: Path) -> None:
    """A writer in the middle of a line is waited for."""
    world = World(tmp_path)
    world.define(type="files", path="x")
    path = tmp_path / "x"
    path.write_text('{"id": 1, "te')
    drain(world, FileSource(path))
    assert world.records() == {}
    with path.open("a") as file:
        file.write('xt": "a"}\n')
    drain(world, FileSource(path))
    assert (world.records(), world.letters()) == ({1: "a"}, [])


def test_a_shorter_file_is_a_loss_and_no_silence(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.define(type="files", path="x")
    path = tmp_path / "x"
    lines(path, {"id": 1, "text": "a"}, {"id": 2, "text": "b"})
    drain(world, FileSource(path), 1)
    lines(path, {"id": 3}, mode="w")
    with pytest.raises(SourceLostError, match="shorter"):
        drain(World(tmp_path), FileSource(path))


def test_a_very_long_line_is_a_dead_letter_and_the_next_line_counts(tmp_path: Path) -> None:
    """Its letter holds the first megabyte."""
    world = World(tmp_path)
    world.define(type="files", path="x")
    path = tmp_path / "x"
    lines(path, {"id": 1, "text": "x" * (3 << 20)}, {"id": 2, "text": "b"})
    drain(world, FileSource(path))
    assert world.records() == {2: "b"}
    ((data, reason),) = world.letters()
    assert (len(data) <= (1 << 20) + 1, "bytes" in reason) == (True, True)


def test_a_replay_writes_mended_letters_and_keeps_the_others(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.define(type="files", path="x")
    path = tmp_path / "x"
    lines(path, {"id": 1, "text": "a"}, "nonsense")
    world.notes.insert([{"id": 1, "text": "old"}])
    drain(world, FileSource(path))
    world.notes.delete([{"id": 1}])
    taken = world.feed().replay()
    assert (taken.accepted, taken.rejected) == (1, 1)
    assert (world.records(), [data for data, _ in world.letters()]) == ({1: "a"}, [b"nonsense"])


def test_an_enriching_function_fails_for_its_record_alone(tmp_path: Path) -> None:
    """A slow function, and a function that ends its process, cost their record; the process is begun again."""
    world = World(tmp_path)
    world.define(function="f", type="files", path="x")
    path = tmp_path / "x"
    texts = ["a", "slow", "b", "fatal", "c", 5, "list", "d"]
    lines(path, *({"id": number, "text": text} for number, text in enumerate(texts)))
    function = PythonEnrichment("tests.channels.feeds.test_feed:enriched", limit_s=20.0)
    try:
        function([{"text": "warm"}])
        function._limit_s = 1.0
        world.feed(function).step(FileSource(path), 100)
    finally:
        function.close()
    assert world.records() == {0: "A", 2: "B", 4: "C", 7: "D"}
    reasons = [reason for _, reason in world.letters()]
    assert [reason[:28] for reason in reasons] == [
        "f: no result within 1 s",
        "f: its process has ended",
        "f: AttributeError: 'int' obj",
        "f: a list is no record",
    ]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"type": "pigeon"}, "of type 'pigeon'"),
        ({}, "of type 'None'"),
        ({"type": "files"}, "needs 'path'"),
        ({"type": "http", "port": "1"}, "has no 'port'"),
        ({"type": "redis", "stream": 5}, "no text"),
    ],
)
def test_a_wrong_source_is_refused_by_its_name(tmp_path: Path, source: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Feeds(FolderStorage(tmp_path)).create("f", source)


@pytest.mark.parametrize(
    ("options", "is_allowed"),
    [
        ({"type": "http"}, True),
        ({"type": "channel", "url": "https://other.example/channels/c", "subscription": "s"}, True),
        ({"type": "tcp", "address": "0.0.0.0:80"}, False),
        ({"type": "files", "path": "x"}, False),
        ({"type": "redis", "stream": "x", "url": "redis://127.0.0.1"}, False),
        ({"type": "mongodb", "database": "d", "collection": "c", "url": "mongodb://127.0.0.1"}, False),
    ],
)
def test_a_user_reaches_neither_ports_nor_files_nor_servers_of_the_operator(
    tmp_path: Path, options: dict[str, str], is_allowed: bool
) -> None:
    """The operator may use every source."""
    feeds = Feeds(FolderStorage(tmp_path))
    feeds.create("of_operator", options)
    if is_allowed:
        assert feeds.create("of_user", options, owner="ann").owner == "ann"
    else:
        with pytest.raises(ConfigurationError, match="only the operator may use"):
            feeds.create("of_user", options, owner="ann")


def test_the_life_cycle_of_a_feed(tmp_path: Path) -> None:
    feeds = Feeds(FolderStorage(tmp_path))
    feeds.create("f", {"type": "http"})
    with pytest.raises(ConfigurationError, match="has no dataset"):
        feeds.start("f")
    feeds.connect("f", "notes", mode=Mode.UPSERT)
    assert feeds.start("f").is_started
    for refused in (lambda: feeds.drop("f"), lambda: feeds.connect("f", "other"), lambda: feeds.create("f", {})):
        with pytest.raises(ConfigurationError):
            refused()
    assert Feeds(FolderStorage(tmp_path)).get("f").mode is Mode.UPSERT
    feeds.stop("f")
    feeds.drop("f")
    assert feeds.all() == []


def test_a_feed_that_was_dropped_and_created_again_begins_anew(tmp_path: Path) -> None:
    """Its source may be another one, whose offsets mean something else. Letters of both feeds are kept."""
    world, service = World(tmp_path), World(tmp_path).service()
    folder = tmp_path / "sources"
    (folder / "one").write_text('{"id":1,"text":"a"}\n?\n')
    (folder / "two").write_text('{"id":2,"text":"b"}\n{"id":3,"text":"b"}\n!\n')
    for path in ("one", "two"):
        world.define(type="files", path=path)
        assert world.feed().step(service._source({"type": "files", "path": path})) > 0
        world.feeds.stop("f")
        world.feeds.drop("f")
    assert world.records() == {1: "a", 2: "b", 3: "b"}
    assert [data for data, _ in world.letters()] == [b"?", b"!"]


def test_a_feed_that_is_replaced_keeps_its_position_unless_its_records_are_others(tmp_path: Path) -> None:
    """A new password or server is no new source."""
    feeds = Feeds(FolderStorage(tmp_path))
    before = feeds.create("f", {"type": "redis", "stream": "s", "url": "redis://:old@one"}).place
    moved = {"type": "redis", "stream": "s", "url": "redis://:new@two"}
    assert feeds.create("f", moved, replaces=True).place == before
    for source in ({"type": "redis", "stream": "t"}, {"type": "mongodb", "database": "d", "collection": "s"}):
        place = feeds.create("f", source, replaces=True).place
        assert place != before
        before = place
    assert "identity" not in feeds.get("f").described()

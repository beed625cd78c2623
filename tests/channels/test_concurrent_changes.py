"""Changes of one record: another writer's change is kept, and the memory holds a part of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quaestor.channels import rewrites
from quaestor.channels.datasets import Dataset
from quaestor.channels.retention import expire
from quaestor.channels.rewrites import revise
from quaestor.channels.subscriptions import Subscription, Subscriptions
from quaestor.channels.versions import present_record
from quaestor.errors import ConfigurationError, DependencyError
from quaestor.tables import newest
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.maintenance import compact
from quaestor.tables.schema import Column, Schema, Type
from tests.channels.world import World

BODY = "SELECT t.tid FROM Tweets t WHERE is_new(t) AND t.area_code = area"
COUNTS = Schema((Column("place", Type.POINT), Column("k", Type.BIGINT), Column("n", Type.BIGINT)), ("k",))


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.police()
    world.create(BODY, "area")
    return world


Write = Callable[[Subscriptions, str], object]

WRITES: dict[str, tuple[Write, dict[str, Any]]] = {
    "parameters": (lambda entries, key: entries.change(key, parameters=["B"]), {"parameters": ("B",)}),
    "broker": (lambda entries, key: entries.change(key, broker="y"), {"broker": "y"}),
    "pause": (lambda entries, key: entries.pause(key), {"paused": True}),
    "move": (lambda entries, key: entries.move("x", "y"), {"broker": "y"}),
}


def after_it_reads(subscriptions: Subscriptions, write: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let another writer write once, after the next change of these subscriptions has read and before it publishes."""
    table = subscriptions.dataset.partitions[0]
    prepare, waiting = table.prepare, [write]

    def overtaken(*given: Any) -> Any:
        file = prepare(*given)
        if waiting:
            waiting.pop()()
        return file

    monkeypatch.setattr(table, "prepare", overtaken)


@pytest.mark.parametrize(
    ("slow", "fast"),
    [
        ("parameters", "pause"),
        ("pause", "parameters"),
        ("broker", "parameters"),
        ("pause", "move"),
        ("move", "pause"),
    ],
)
def test_two_writers_of_a_subscription_lose_nothing(
    world: World, slow: str, fast: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One writer has read the subscription, the other one writes it, then the first one publishes: both changes are there."""
    key = world.subscribe("A", broker="x")
    subscriptions = world.subscriptions()
    after_it_reads(subscriptions, lambda: WRITES[fast][0](world.subscriptions(), key), monkeypatch)
    WRITES[slow][0](subscriptions, key)
    expected: dict[str, Any] = {"id": key, "broker": "x", "parameters": ("A",)}
    assert world.subscriptions().get(key) == Subscription(**{**expected, **WRITES[fast][1], **WRITES[slow][1]})


@pytest.mark.parametrize("slow", ["parameters", "pause", "remove"])
def test_a_subscription_that_is_removed_meanwhile_stays_removed(
    world: World, slow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer that comes too late gets an error, also if it removes the subscription itself."""
    key = world.subscribe("A", broker="x")
    subscriptions = world.subscriptions()
    after_it_reads(subscriptions, lambda: world.subscriptions().remove(key), monkeypatch)
    write = WRITES[slow][0] if slow in WRITES else Subscriptions.remove
    with pytest.raises(ConfigurationError, match="has no subscription"):
        write(subscriptions, key)
    assert world.subscriptions().all() == []


class Counted(pq.ParquetFile):  # type: ignore[misc]  # pyarrow has no types
    """Parquet file that counts what is read of it."""

    opened = 0
    batches: list[tuple[int, tuple[str, ...]]] = []  # noqa: RUF012  # of all objects together

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        Counted.opened += 1

    def iter_batches(self, *given: Any, **named: Any) -> Iterator[Any]:
        for batch in super().iter_batches(*given, **named):
            Counted.batches.append((batch.num_rows, tuple(batch.schema.names)))
            yield batch


def test_the_memory_of_a_change_does_not_grow_with_the_subscriptions(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most one batch of rows is held, whole rows are read of one batch only, and no file of another subscription is read."""
    monkeypatch.setattr(newest, "_ROWS_AT_ONCE", 100)
    monkeypatch.setattr(pq, "ParquetFile", Counted)
    subscriptions = world.subscriptions()
    seen = []
    for size in (300, 3_000):
        keys = subscriptions.add_table(pa.table({"broker": ["x"] * size, "area": [str(n) for n in range(size)]}))
        others = [world.subscribe("A", broker="x") for _ in range(3)]
        key = min(keys)
        Counted.opened, Counted.batches = 0, []
        subscriptions.pause(key)
        whole = [rows for rows, names in Counted.batches if "broker" in names]
        ids = [rows for rows, names in Counted.batches if names == ("subscription",)]
        assert max(rows for rows, _ in Counted.batches) <= 100
        assert sum(ids) == size, "the files of single subscriptions are opened, and none of their rows is read"
        seen.append((Counted.opened, max(ids), len(others)))
        Counted.opened, Counted.batches = 0, []
        subscriptions.change(key, broker="y")
        assert (Counted.opened, Counted.batches[0]) == (1, (1, ("subscription",))), (
            "its newest file is the only one read"
        )
        assert whole
    assert seen[0] == seen[1]


def test_a_record_is_revised_again_only_if_it_was_written_meanwhile(tmp_path: Path) -> None:
    """Writers of other records are no reason; a deletion ends it; a writer that is always faster ends it with an error."""
    dataset = Dataset.create(Catalogue(tmp_path), "d", COUNTS, partitions=2)
    dataset.insert([{"k": key, "n": 0} for key in range(4)])
    judged: list[int] = []

    def one_more(other: Callable[[], object]) -> Callable[[dict[str, Any]], dict[str, Any]]:
        def change(row: dict[str, Any]) -> dict[str, Any]:
            judged.append(row["n"])
            other()
            return {"n": row["n"] + 1}

        return change

    pauses: list[float] = []
    assert revise(dataset, {"k": 1}, one_more(lambda: dataset.upsert([{"k": 0}, {"k": 2}])), pause=pauses.append)
    assert (judged, pauses) == ([0], [])
    others = iter([lambda: dataset.merge([{"k": 1, "n": 5}])])
    assert revise(dataset, {"k": 1}, one_more(lambda: next(others, int)()), pause=pauses.append)
    assert (judged, pauses) == ([0, 1, 5], [0.002])
    assert sorted((row["k"], row["n"]) for row in dataset.records()) == [(0, None), (1, 6), (2, None), (3, 0)]
    assert not revise(dataset, {"k": 1}, one_more(lambda: dataset.delete([{"k": 1}])), pause=pauses.append)
    assert not revise(dataset, {"k": 9}, one_more(int), pause=pauses.append)
    with pytest.raises(ValueError, match="field 'n'"):
        revise(dataset, {"k": 3}, lambda _: {"n": "many"})
    assert sorted(row["k"] for row in dataset.records()) == [0, 2, 3]


def test_a_writer_that_is_always_overtaken_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pauses double up to the longest one, its attempts are bounded, and none of its files stays."""
    monkeypatch.setattr(rewrites, "ATTEMPTS", 9)
    dataset = Dataset.create(Catalogue(tmp_path), "d", COUNTS)
    dataset.insert([{"k": 1, "n": 0}])
    pauses: list[float] = []

    def change(row: dict[str, Any]) -> dict[str, Any]:
        dataset.upsert([{"k": 1, "n": row["n"] + 1}])
        return {"n": -1}

    with pytest.raises(DependencyError, match="always faster"):
        revise(dataset, {"k": 1}, change, pause=pauses.append)
    assert pauses == [0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.1, 0.1]
    assert [row["n"] for row in dataset.records()] == [9]
    files = dataset.partitions[0].snapshot().files
    assert {stored.path for stored in dataset.partitions[0].table.storage.list("data")} == set(files)


@pytest.mark.parametrize("seed", range(2))
def test_a_record_found_by_its_key_is_the_one_of_the_whole_state(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any history with joined files and expired versions, each key gives the record that all files together give."""
    monkeypatch.setattr(newest, "_ROWS_AT_ONCE", 3)
    random = Random(seed)
    dataset = Dataset.create(Catalogue(tmp_path), "d", COUNTS)
    table = dataset.partitions[0]
    for step in range(9):
        keys = random.sample(range(12), random.randint(1, 6))
        match random.choice(["upsert", "upsert", "delete", "join", "expire", "revise"]):
            case "upsert":
                dataset.upsert([{"k": key, "n": step, "place": [step, 0]} for key in keys])
            case "delete":
                dataset.delete([{"k": key} for key in keys[:2]])
            case "join":
                snapshot = table.snapshot()
                files = table.files(snapshot, -1, snapshot.instant)
                first = random.randint(0, max(len(files) - 2, 0))
                if len(files) > 1:
                    compact(table.table, files[first : first + 3], now_ms=step)
            case "expire":
                files = table.files(table.snapshot(), -1, table.snapshot().instant)
                expire(dataset, [files[0].last if files else 0])
            case "revise":
                revise(dataset, {"k": keys[0]}, lambda row: {"n": -row["n"]})
        state = {row["k"]: row for row in dataset.records()}
        snapshot = table.snapshot()
        assert {key: present_record(table, snapshot, {"k": key}) for key in range(12)} == {
            key: state.get(key) for key in range(12)
        }

"""Enrichment by queries: stored data is joined, each batch sees the data of its time, and a failing record fails alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quaestor.channels.datasets import Dataset
from quaestor.channels.feeds.sources import FileSource
from quaestor.channels.feeds.sql_enrichment import SqlEnrichment
from quaestor.channels.rewriting.definition import Parameter
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.continuous.sql.refusals import QueryRefusedError
from quaestor.tables.schema import Column, Schema, Type
from tests.channels.feeds.world import World

WORDS = Schema((Column("word", Type.TEXT), Column("rank", Type.BIGINT)), ("word",))


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.define(function="f", type="files", path="x")
    Dataset.create(world.catalogue, "Words", WORDS).insert([{"word": "bad", "rank": 1}])
    return world


def enrichment(world: World, body: str, *parameters: str) -> SqlEnrichment:
    typed = [Parameter(name, Type.TEXT) for name in parameters]
    return SqlEnrichment(world.catalogue, body, typed, DuckDbExecutor(threads=1))


FLAG = "SELECT EXISTS (SELECT 1 FROM Words w WHERE contains(text, w.word)) AS flag, upper(text) AS text"


def test_a_batch_sees_the_stored_data_of_its_time(world: World, tmp_path: Path) -> None:
    """Fields of the result replace and extend those of the record; other fields stay."""
    function = enrichment(world, FLAG, "text")
    try:
        path = tmp_path / "x"
        path.write_text('{"id": 1, "text": "a bad word"}\n{"id": 2, "text": "worse", "more": 5}\n')
        feed = world.feed(function)
        assert feed.step(FileSource(path)) == 2
        Dataset.open(world.catalogue, "Words").insert([{"word": "worse", "rank": 2}])
        with path.open("a") as file:
            file.write('{"id": 3, "text": "worse"}\n{"id": 4}\n')
        assert feed.step(FileSource(path)) == 2
    finally:
        function.close()
    records = {row["id"]: (row["text"], row["flag"], row.get("more")) for row in world.notes.records()}
    assert records == {
        1: ("A BAD WORD", True, None),
        2: ("WORSE", False, 5),
        3: ("WORSE", True, None),
        4: (None, False, None),
    }
    assert world.letters() == []


@pytest.mark.parametrize(
    ("body", "texts", "reasons"),
    [
        ("SELECT w.rank FROM Words w WHERE w.word = text", ["bad", "good"], [None, "the query has no row"]),
        ("SELECT w.rank FROM Words w WHERE contains(text, w.word)", ["bad", "bad also"], [None, "has several rows"]),
        (
            "SELECT CAST(text AS INTEGER) AS rank",
            ["1", "x", "2", "y"],
            [None, "DuckDB refused", None, "DuckDB refused"],
        ),
        ("SELECT text || '!' AS text", ["a", 5, "b"], [None, "int is not text", None]),
    ],
)
def test_a_failing_record_fails_alone(world: World, body: str, texts: list[Any], reasons: list[str | None]) -> None:
    """A record needs exactly one row; an error of the engine costs the record that causes it."""
    Dataset.open(world.catalogue, "Words").insert([{"word": "also", "rank": 2}])
    function = enrichment(world, body, "text")
    try:
        results = function([{"id": number, "text": text} for number, text in enumerate(texts)])
    finally:
        function.close()
    for number, (result, reason) in enumerate(zip(results, reasons, strict=True)):
        if reason is None:
            assert isinstance(result, dict)
            assert result["id"] == number
        else:
            assert reason in str(result)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("SELECT * FROM Missing m WHERE m.word = text", "is unknown"),
        (
            "SELECT * FROM read_text('/etc/hostname') m WHERE m.content = text",
            r"read_text\(\) is no function of channels",
        ),
        ("SELECT random() AS r, text AS text", "another value each time"),
    ],
)
def test_a_query_that_is_refused_enriches_nothing(world: World, body: str, reason: str) -> None:
    with pytest.raises(QueryRefusedError, match=reason):
        enrichment(world, body, "text")

"""Functions of channels and of analysts: those of the page run, all others are refused."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from quaestor.channels.datasets import Dataset
from quaestor.channels.rewriting.compilation import compile_channel
from quaestor.channels.rewriting.definition import ChannelDefinition, Shape
from quaestor.channels.runs.queries import Queries
from quaestor.continuous.sql.refusals import QueryRefusedError
from quaestor.tables.schema import Column, Schema, Type
from tests.channels.world import World

ROOT = Path(__file__).parents[3]
NOTES = Schema(
    (
        Column("k", Type.BIGINT), Column("x", Type.DOUBLE), Column("s", Type.TEXT), Column("j", Type.JSON),
        Column("c", Type.TIMESTAMP), Column("a", Type.POINT), Column("b", Type.POINT), Column("f", Type.BOOL),
    ),
    ("k",),
)  # fmt: skip


def documented(page: str) -> list[str]:
    """Return the calls of a page's table of functions."""
    section = (ROOT / page).read_text().partition("\n## Functions\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[2] for line in section.splitlines() if line.startswith("|")][2:]
    return [call for row in rows for call in re.findall(r"`([^`]+)`", row)]


def test_every_documented_function_runs(tmp_path: Path) -> None:
    """Also those of continuous queries, on a record."""
    world = World(tmp_path)
    record = {
        "k": 1, "x": 0.5, "s": "abc", "j": {"a": 1}, "c": datetime(2026, 1, 1, tzinfo=UTC), "a": [1, 2], "b": [1, 3], "f": True,
    }  # fmt: skip
    assert Dataset.create(world.catalogue, "Notes", NOTES).insert([record]).accepted == 1
    queries = Queries(world.catalogue, world.executor)
    calls = documented("docs/channels/statements.md")
    assert len(calls) > 20
    further = [re.sub(r"\b([ab])\b(?!['.])", "c", call) for call in documented("docs/continuous/sql.md")]
    for call in (*calls, *further):
        assert queries.rows(f"SELECT {call} AS result FROM Notes t").num_rows == 1, call


@pytest.mark.parametrize(
    "call",
    [
        "range(1000000000000)", "generate_series(1, 1000000000000)", "unnest(range(1000000000000))", "list_resize([1], k)",
        "getenv('PATH')", "current_setting('temp_directory')", "query('SELECT 1')", "duckdb_settings()", "version()",
        "getvariable('x')", "current_database()", "nosuchfunction(k)", "k.getenv()",
    ],
)  # fmt: skip
@pytest.mark.parametrize("text", ["SELECT {} AS result FROM Notes t", "SELECT k FROM Notes t WHERE {} = 1"])
def test_another_function_is_refused_by_name_and_place(text: str, call: str) -> None:
    """No user's text reads settings or fills the memory by one list."""
    with pytest.raises(
        QueryRefusedError, match=r"\(\) is no function of channels; .*statements\.md#functions"
    ) as refusal:
        compile_channel(ChannelDefinition(name="c", body=text.format(call)), {"Notes": Shape(NOTES)})
    assert refusal.value.line == 1


@pytest.mark.parametrize("source", ["range(1000000000000) t(k)", "unnest([1, 2]) t(k)", "duckdb_settings()"])
def test_only_datasets_stand_in_from(source: str) -> None:
    with pytest.raises(QueryRefusedError):
        compile_channel(ChannelDefinition(name="c", body=f"SELECT * FROM {source}"), {"Notes": Shape(NOTES)})

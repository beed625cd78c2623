"""Many installed queries of one shape: one entry of the log, one compilation, one plan, and quiet queries write seldom."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quaestor.cli.continuous_queries import install_all
from quaestor.continuous import sql_engine
from quaestor.continuous.administration import Administration
from quaestor.continuous.engine import PreparedQuery
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.continuous.installed import InstalledQueries, InstalledQuery, queries_of
from quaestor.continuous.rules.constants import Constant
from quaestor.continuous.service import ContinuousService
from quaestor.continuous.sql.refusals import QueryRefusedError
from quaestor.continuous.sql_engine import SqlEngine, SqlPlan
from quaestor.errors import ConfigurationError
from quaestor.settings.continuous import ContinuousSettings
from quaestor.tables.schema import Column, Schema, Type
from tests.continuous.runs.test_run_faults import Served
from tests.continuous.runs.world import NOON

TEXT = "SELECT id, shop FROM orders WHERE shop = {} AND due <= now()"


class Shops(Served):
    """World with a query for each shop, and the administration that installs them.

    compilations: texts that were compiled.
    plans: number of the queries of each shared plan.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder / "tables", folder)
        self.compilations: list[str] = []
        self.plans: list[int] = []
        compile_query, together = sql_engine.compile_query, SqlEngine.together

        def compiled(text: str, *args: Any, **given: Any) -> Any:
            self.compilations.append(text)
            return compile_query(text, *args, **given)

        def planned(engine: SqlEngine, queries: Mapping[str, PreparedQuery]) -> SqlPlan:
            self.plans.append(len(queries))
            return together(engine, queries)

        monkeypatch.setattr(sql_engine, "compile_query", compiled)
        monkeypatch.setattr(SqlEngine, "together", planned)
        self.table("orders", id=Type.BIGINT, shop=Type.BIGINT, due=Type.TIMESTAMP)
        self.administration = self.administer()

    def administer(self) -> Administration:
        engine = self.service._parts.engine
        assert isinstance(engine, SqlEngine)
        return Administration(ContinuousSettings(), self.catalogue, engine, clock=self.clock)

    def order(self, number: int, shop: int) -> None:
        self.add("orders", {"id": number, "shop": shop, "due": NOON})

    def entries(self) -> int:
        return self.installed._log.snapshot().number + 1

    def ids(self, shop: int) -> list[int]:
        return [row["row"]["id"] for row in self.administration.results(f"shop_{shop}")["rows"]]


@pytest.fixture
def shops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shops:
    return Shops(tmp_path, monkeypatch)


@pytest.mark.parametrize("count", [30, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(3_600)])])
def test_queries_of_one_shape_are_one_entry_one_compilation_and_one_plan(shops: Shops, count: int) -> None:
    """Each gets its own rows, once, also in the process after; a query without results has written nothing."""
    queries = [InstalledQuery(name=f"shop_{shop}", text=TEXT.format(shop), every="1m") for shop in range(count)]
    assert len(shops.administration.install_all(queries, "now")) == count
    assert (shops.entries(), len(shops.compilations)) == (1, 1)
    asyncio.run(shops.after(minutes=1))
    chosen = range(0, count, count // 10)
    for shop in chosen:
        shops.order(shop, shop)
    asyncio.run(shops.after(minutes=1))
    assert (shops.plans, len(shops.compilations), shops.entries()) == ([count, count], 1, 1)
    assert [shops.ids(shop) for shop in chosen] == [[shop] for shop in chosen]
    assert shops.catalogue.open("results.shop_1").snapshot().number == -1
    parts = replace(shops.service._parts, engine=SqlEngine(shops.catalogue, DuckDbExecutor()))
    shops.service = ContinuousService(parts)
    shops.order(count, 1)
    asyncio.run(shops.after(minutes=1))
    assert (shops.plans[2:], len(shops.compilations)) == ([count], 2)
    assert [shops.ids(shop) for shop in (*chosen, 1)] == [*([shop] for shop in chosen), [count]]
    assert [failure.name for failure in shops.failures] == []


def test_quiet_queries_publish_their_progress_at_different_times(shops: Shops) -> None:
    """Each between half an hour and an hour after its installation, not all at once."""
    names = [f"shop_{shop}" for shop in range(20)]
    texts = [TEXT.format(shop) for shop in range(20)]
    queries = [InstalledQuery(name=name, text=text, every="1m") for name, text in zip(names, texts, strict=True)]
    shops.administration.install_all(queries, "now")
    published: dict[str, int] = {}
    for minute in range(4, 65, 4):
        asyncio.run(shops.after(minutes=4))
        for name in names:
            if shops.catalogue.open(f"results.{name}").snapshot().progress:
                published.setdefault(name, minute)
    assert set(published) == set(names)
    assert 30 <= min(published.values()) < max(published.values()) <= 64
    assert len(set(published.values())) > 4


@pytest.mark.parametrize(
    ("second", "error"),
    [
        ({"name": "b", "text": "SELECT nothing FROM orders"}, QueryRefusedError),
        ({"name": "a"}, ConfigurationError),
        ({"name": "B"}, ConfigurationError),
        ({"name": "b", "every": "1y"}, ConfigurationError),
        ({"name": "taken"}, ConfigurationError),
    ],
)
def test_all_queries_are_installed_or_none(shops: Shops, second: dict[str, str], error: type[Exception]) -> None:
    """One bad text, name or period refuses the whole batch, and leaves no table behind."""
    shops.install("taken", TEXT.format(0))
    tables = shops.catalogue.names()
    first = InstalledQuery(name="a", text=TEXT.format(1), every="1m")
    with pytest.raises(error):
        shops.administration.install_all([first, replace(first, **{"name": "b", **second})], "now")  # type: ignore[arg-type]
    assert [query.name for query in shops.installed.all()] == ["taken"]
    assert shops.catalogue.names() == tables


def test_lines_are_queries() -> None:
    """A line is an object; a bad one is named by its number."""
    line = {"name": "a", "text": "SELECT 1", "every": "1m", "sinks": ["file:x"]}
    assert queries_of([json.dumps(line).encode()]) == [
        InstalledQuery(name="a", text="SELECT 1", every="1m", sinks=("file:x",))
    ]
    for bad in (b"[]", b"{", b'{"name": 1, "text": "x", "every": "1m"}', b'{"name": "a", "text": "x"}'):
        with pytest.raises(ConfigurationError, match="line 2 is no query"):
            queries_of([json.dumps(line).encode(), bad])


def test_a_command_installs_a_file_of_queries(shops: Shops, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All of its lines, from an instant on."""
    file = tmp_path / "queries.jsonl"
    lines = [json.dumps({"name": f"shop_{shop}", "text": TEXT.format(shop), "every": "1m"}) for shop in range(3)]
    file.write_text("\n".join(lines))
    install_all(file, start="beginning", folder=tmp_path / "tables")
    assert json.loads(capsys.readouterr().out) == {"installed": 3}
    assert [query.start for query in shops.installed.all()] == [0, 0, 0]


def test_a_present_list_is_decoded_once(shops: Shops) -> None:
    """A look at unchanged queries returns the same objects; a change of another process is seen."""
    shops.install("a", TEXT.format(1))
    shops.install("b", TEXT.format(2))
    first, second = shops.installed.all()
    assert all(query is known for query, known in zip(shops.installed.all(), (first, second), strict=True))
    InstalledQueries(shops.catalogue, clock=shops.clock).pause("b")
    assert [query.runs for query in shops.installed.all()] == [True, False]


def test_another_value_needs_no_compilation_after_the_second(shops: Shops) -> None:
    """Also for queries that are installed one by one. Changed columns are compiled against anew."""
    engine = shops.administration.engine
    for shop in range(5):
        engine.prepare(TEXT.format(shop))
    assert len(shops.compilations) == 2
    assert engine.prepare(TEXT.format(5)).shape == engine.prepare(TEXT.format(0)).shape
    shops.catalogue.open("orders").append([{"id": 1, "shop": 0.5}], additions=Schema((Column("shop", Type.DOUBLE),)))
    (constant,) = engine.prepare(TEXT.format(7)).constants
    assert constant == Constant(7.0, Type.DOUBLE)
    assert len(shops.compilations) == 3
    with pytest.raises(QueryRefusedError):
        engine.prepare("SELECT gone FROM orders WHERE shop = 8")

"""Random queries over many histories each: the part of the million cases that every run of the tests repeats."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random

import duckdb
import pytest

from tests.continuous import many_cases, oracle, oracle_over_time
from tests.continuous.random_queries import INSTANTS, Queries, histories
from tests.continuous.test_every_instant import _forget_deaths, _greatest_for_and


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with many_cases.engine() as engine:
        yield engine


@pytest.mark.parametrize("seed", range(1000, 1012))
def test_many_histories_agree_with_the_oracle(connection: duckdb.DuckDBPyConnection, seed: int) -> None:
    """Runs deliver each result of every tick once, and each result enters at its first tick."""
    assert many_cases.check(connection, seed, count=60).faults == []


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_more_cases_agree_with_the_oracle(tmp_path: Path) -> None:
    """The same promise on 20,000 cases; `python -m tests.continuous.many_cases` runs a million."""
    assert many_cases.run(tmp_path / "log", cases=20_000)["queries with differences"] == 0


def test_both_oracles_agree() -> None:
    """The oracle of all ticks at once returns what the oracle of one tick returns at each tick."""
    for seed in range(400):
        random = Random(seed)
        query, tables = Queries(random, plain=seed % 3 == 0).query(), histories(random)
        history = oracle_over_time.History(tables, INSTANTS, many_cases.VERSIONS)
        assert oracle_over_time.first_instants(query, history) == oracle.first_instants(query, tables, INSTANTS), seed


@pytest.mark.parametrize("mutant", [pytest.param(_forget_deaths, marks=pytest.mark.slow), _greatest_for_and])
def test_a_missing_rule_is_noticed(
    connection: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, mutant: object
) -> None:
    """Mutants that need rare queries differ from the oracle within 40 queries."""
    assert callable(mutant)
    mutant(monkeypatch)
    assert any(many_cases.check(connection, seed, count=60).faults for seed in range(40))


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    """A second run continues the log of the first with other queries."""
    log = tmp_path / "log"
    first = many_cases.run(log, cases=20, histories_each=10)
    second = many_cases.run(log, cases=40, histories_each=10)
    seeds = [json.loads(line)["seed"] for line in log.read_text().splitlines()]
    assert first["cases"] < second["cases"]
    assert len(seeds) == len(set(seeds)) == second["queries"]

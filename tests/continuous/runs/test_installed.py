"""Installed queries: kept durably, changed by several processes, each change whole or not at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from quaestor.continuous.installed import InstalledQueries, InstalledQuery, State
from quaestor.errors import ConfigurationError, DependencyError
from quaestor.tables.changes import Change
from quaestor.tables.log import Table
from tests.continuous.runs.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_an_installed_query_outlives_its_process(world: World, tmp_path: Path) -> None:
    installed = world.install("due", sinks=("https://a/", "file:x"), at_most="1h", start=7)
    world.install("other")
    after = World(tmp_path).installed
    assert after.get("due") == installed
    assert installed.tables == ("results.due",)
    assert [query.name for query in after.all()] == ["due", "other"]


def test_the_life_of_a_query(world: World) -> None:
    """Paused, resumed, quarantined with a reason, dropped with its results."""
    world.install()
    assert world.installed.pause("due").state is State.PAUSED
    assert world.installed.resume("due").state is State.ACTIVE
    quarantined = world.installed.quarantine("due", "no column price")
    assert (quarantined.state, quarantined.reason) == (State.QUARANTINED, "no column price")
    assert world.installed.resume("due").reason == ""
    changed = world.installed.change("due", lambda query: replace(query, every="1d", sinks=("file:a",)))
    assert (changed.every, changed.sinks) == ("1d", ("file:a",))
    world.installed.drop("due")
    assert world.installed.all() == []
    assert world.catalogue.names() == []
    assert world.install().tables == ("results.due",)


def test_another_text_is_a_new_query_with_results_of_its_own(world: World) -> None:
    """From the given instant on; the old results stay until the query is dropped."""
    world.install()
    world.installed.quarantine("due", "bad")
    changed = world.installed.change_text("due", "SELECT 2", start=9)
    assert (changed.text, changed.start, changed.state) == ("SELECT 2", 9, State.ACTIVE)
    assert changed.tables == ("results.due", "results_2.due")
    assert changed.results == "results_2.due"
    world.installed.drop("due")
    assert world.catalogue.names() == []


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"name": "Due"}, "cannot name a query"), ({"name": "a.b"}, "cannot name a query"), ({"name": ""}, "cannot name"),
        ({"name": "a" * 64}, "cannot name"), ({"every": "soon"}, "no duration"), ({"at_most": "x"}, "no duration"),
        ({"sinks": ("a", "a")}, "names a sink twice"),
    ],
)  # fmt: skip
def test_a_bad_installation_is_refused_and_leaves_nothing(
    world: World, fields: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        world.install(**{"name": "due", **fields})  # type: ignore[arg-type]
    assert world.installed.all() == []
    assert world.catalogue.names() == []


def test_a_name_is_taken_once(world: World) -> None:
    """The result table of the refused installation is removed."""
    world.install()
    with pytest.raises(ConfigurationError, match="is installed"):
        world.install()
    assert world.catalogue.names() == ["results.due"]
    with pytest.raises(ConfigurationError, match="no query 'x' is installed: there are due"):
        world.installed.get("x")


def test_changes_of_two_processes_are_both_kept(world: World, tmp_path: Path) -> None:
    world.install()
    other = InstalledQueries(World(tmp_path).catalogue)

    def change(query: InstalledQuery) -> InstalledQuery:
        if query.state is State.ACTIVE:
            other.pause("due")
        return replace(query, every="2m")

    changed = world.installed.change("due", change)
    assert (changed.every, changed.state) == ("2m", State.PAUSED)


def test_a_damaged_query_is_named(world: World) -> None:
    Table(world.catalogue.root.below("_queries")).publish(lambda _: Change(notes={"due": "{}"}), now_us=1)
    with pytest.raises(DependencyError, match="'due' is damaged"):
        world.installed.get("due")

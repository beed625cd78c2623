"""Acknowledgements: the highest run without a missing run before it, durable, and never going back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaestor.channels.brokers.acknowledgements import Acknowledgements
from quaestor.errors import ConfigurationError
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.storage import FolderStorage
from tests.channels.brokers.stored_pages import StoredPages


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> StoredPages:
    """Runs 10 to 50; broker b has results in all except 30, broker c in 30 only."""
    stored = StoredPages(Catalogue(tmp_path_factory.mktemp("results")))
    stored.create("offers")
    for run in (10, 20, 30, 40, 50):
        stored.publish("offers", run, [("c" if run == 30 else "b", ["s"], {"run": run})])
    return stored


def test_a_run_before_a_missing_run_counts_and_a_run_after_it_waits(pages: StoredPages, tmp_path: Path) -> None:
    """A run without results for the broker needs no acknowledgement."""
    acknowledgements = Acknowledgements(FolderStorage(tmp_path))
    assert acknowledgements.acknowledge("b", "offers", 20, pages) == 0
    assert acknowledgements.acknowledge("b", "offers", 40, pages) == 0
    assert acknowledgements.acknowledge("b", "offers", 10, pages) == 40
    assert Acknowledgements(FolderStorage(tmp_path)).upto("b", "offers") == 40
    assert acknowledgements.upto("c", "offers") == 0


@given(order=st.permutations([10, 20, 40, 50]), again=st.lists(st.sampled_from([10, 20, 40, 50])))
def test_every_order_of_acknowledgements_ends_at_the_newest_run(
    pages: StoredPages, tmp_path_factory: pytest.TempPathFactory, order: list[int], again: list[int]
) -> None:
    acknowledgements = Acknowledgements(FolderStorage(tmp_path_factory.mktemp("acknowledgements")))
    seen = [acknowledgements.acknowledge("b", "offers", run, pages) for run in [*order, *again]]
    assert seen == sorted(seen)
    assert seen[-1] == 50


def test_a_run_of_the_future_cannot_be_acknowledged(pages: StoredPages, tmp_path: Path) -> None:
    """A broker cannot have results dropped that it never received."""
    with pytest.raises(ConfigurationError, match="does not exist"):
        Acknowledgements(FolderStorage(tmp_path)).acknowledge("b", "offers", 60, pages)


def test_a_dropped_broker_is_forgotten(pages: StoredPages, tmp_path: Path) -> None:
    acknowledgements = Acknowledgements(FolderStorage(tmp_path))
    acknowledgements.advance("b", "offers", 20)
    acknowledgements.advance("c", "offers", 30)
    acknowledgements.forget("b")
    assert (acknowledgements.upto("b", "offers"), acknowledgements.upto("c", "offers")) == (0, 30)

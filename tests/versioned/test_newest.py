"""Newest version of a record, found by its key."""

from __future__ import annotations

from pathlib import Path

from quaestor.tables.catalogue import Catalogue
from quaestor.tables.newest import newest_version
from quaestor.tables.schema import Column, Schema, Type


def test_the_last_row_of_an_instant_is_the_newest(tmp_path: Path) -> None:
    """A transaction that inserts and updates a record writes two versions of one instant."""
    columns = (Column("id", Type.BIGINT), Column("name", Type.TEXT))
    table = Catalogue(tmp_path).create("items", Schema(columns, ("id",)))
    rows = [{"id": 1, "name": "inserted"}, {"id": 2, "name": "other"}, {"id": 1, "name": "updated"}]
    instant = table.append(rows, steps=[0, 0, 0])
    newest = newest_version(table, table.snapshot(), {"id": 1})
    assert newest is not None
    assert (newest.instant, newest.row) == (instant, {"id": 1, "name": "updated"})
    assert newest_version(table, table.snapshot(), {"id": 1}, after=instant) is None

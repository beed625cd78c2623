"""Catalogue of versioned tables: their names, each with its folder. The catalogue is a table with a log itself."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from quaestor.clock import Clock, system_clock
from quaestor.errors import ConfigurationError
from quaestor.tables.changes import Change, Snapshot
from quaestor.tables.log import Table
from quaestor.tables.schema import Schema
from quaestor.tables.storage import FolderStorage, LogStorage
from quaestor.tables.versioned import VersionedTable

_NAMES: Final = "_catalogue"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?", re.ASCII)


class Catalogue:
    """Versioned tables below one place. Objects of several processes may work on the same catalogue.

    root: a folder, or a storage in an object store.
    clock: gives the instants of all tables.
    """

    def __init__(self, root: LogStorage | Path, *, clock: Clock = system_clock) -> None:
        self.root: LogStorage = FolderStorage(root) if isinstance(root, Path) else root
        self._clock = clock
        self._names = Table(self.root.below(_NAMES))
        self._opened: dict[str, VersionedTable] = {}

    def names(self) -> list[str]:
        """Return the names of all tables, sorted. Raises DependencyError."""
        return sorted(self._names.snapshot().notes)

    def schemas(self) -> dict[str, Schema]:
        """Return the present columns of all tables, by name. Raises DependencyError."""
        return {name: self.open(name).schema() for name in self.names()}

    def create(self, name: str, schema: Schema) -> VersionedTable:
        """Create a table. Raises ConfigurationError if the name is taken or not allowed, DependencyError."""
        self.create_all({name: schema})
        return self.open(name)

    def create_all(self, schemas: Mapping[str, Schema], notes: Mapping[str, str] | None = None) -> None:
        """Create tables in one step: all of them, or none. Raises as `create` does.

        notes: of each table, from its beginning on.
        """
        made: dict[str, VersionedTable] = {}
        folders: dict[str, str] = {}
        for name, schema in schemas.items():
            folders[name] = _new_folder(name)
            table = VersionedTable(Table(self.root.below(folders[name])), schema, name, clock=self._clock)
            made[name] = table
        for name, table in made.items():
            table.evolve(schemas[name])
            if notes:
                table.append((), notes=notes)

        try:
            self._name(folders)
        except ConfigurationError:
            for table in made.values():
                _delete(table.table)
            raise

    def reserve(self, names: Iterable[str]) -> None:
        """Create many tables in one step: all of them, or none. The first rows of each table bring its columns.

        Raises as `create` does.
        """
        self._name({name: _new_folder(name) for name in names})

    def _name(self, folders: Mapping[str, str]) -> None:
        """Publish the folders of new tables by their names."""
        new = {name.lower() for name in folders}

        def decide(now: Snapshot) -> Change:
            if taken := [other for other in now.notes if other.lower() in new]:
                raise ConfigurationError(f"table {taken[0]!r} exists: open it, or drop it first")
            return Change(notes=folders)

        self._names.publish(decide, now_us=self._clock() * 1000)

    def open(self, name: str) -> VersionedTable:
        """Return a table. Raises ConfigurationError if there is none of this name, DependencyError."""
        folder = self._names.snapshot().notes.get(name)
        if folder is None:
            raise ConfigurationError(f"no table {name!r}: there are {', '.join(self.names()) or 'none'}")
        if folder not in self._opened:
            table = Table(self.root.below(folder))
            self._opened[folder] = VersionedTable(table, Schema(()), name, clock=self._clock)
        return self._opened[folder]

    def drop(self, name: str) -> None:
        """Drop a table and its rows. A table that is made later with this name is another one. Raises as `open` does."""
        table = self.open(name)
        self._names.publish(
            lambda now: Change(notes={name: None}) if name in now.notes else None, now_us=self._clock() * 1000
        )
        _delete(table.table)


def _new_folder(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"{name!r} cannot name a table: use letters, digits and _, and at most one point")
    return f"{name}-{uuid.uuid4().hex[:8]}"


def _delete(table: Table) -> None:
    for folder in ("_log", "data", "_drafts"):
        for stored in list(table.storage.list(folder)):
            table.storage.delete(stored.path)

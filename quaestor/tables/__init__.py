"""Append-only tables of Parquet files, with a log. The statistics job and continuous queries rest on them (docs/tables.md).

Names are imported at their first use, because most modules need pyarrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quaestor.tables.catalogue import Catalogue
    from quaestor.tables.collections import FollowedCollection
    from quaestor.tables.intervals import versions
    from quaestor.tables.maintenance import maintain
    from quaestor.tables.object_storage import ObjectStorage
    from quaestor.tables.schema import Column, Schema, SchemaError, Type
    from quaestor.tables.versioned import VersionedTable

__all__ = [
    "Catalogue",
    "Column",
    "FollowedCollection",
    "ObjectStorage",
    "Schema",
    "SchemaError",
    "Type",
    "VersionedTable",
    "maintain",
    "versions",
]

_HOMES = {
    "Catalogue": "quaestor.tables.catalogue",
    "Column": "quaestor.tables.schema",
    "FollowedCollection": "quaestor.tables.collections",
    "ObjectStorage": "quaestor.tables.object_storage",
    "Schema": "quaestor.tables.schema",
    "SchemaError": "quaestor.tables.schema",
    "Type": "quaestor.tables.schema",
    "VersionedTable": "quaestor.tables.versioned",
    "maintain": "quaestor.tables.maintenance",
    "versions": "quaestor.tables.intervals",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value

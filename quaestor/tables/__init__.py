"""Append-only tables of Parquet files, with a log. The statistics job and continuous queries rest on them (docs/tables.md).

Names are imported at their first use, because most modules need pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quaestor.first_use import names_at_first_use

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

__getattr__ = names_at_first_use(
    globals(),
    {
        "quaestor.tables.catalogue": "Catalogue",
        "quaestor.tables.schema": "Column Schema SchemaError Type",
        "quaestor.tables.collections": "FollowedCollection",
        "quaestor.tables.object_storage": "ObjectStorage",
        "quaestor.tables.versioned": "VersionedTable",
        "quaestor.tables.maintenance": "maintain",
        "quaestor.tables.intervals": "versions",
    },
)

"""Types of columns and parameters: their names in statements."""

from __future__ import annotations

from typing import Final

from quaestor.tables.schema import Type

NAMES: Final = {
    Type.BIGINT: ("bigint", "int", "integer", "int64", "int32", "int16", "int8", "smallint", "tinyint"),
    Type.DOUBLE: ("double", "float", "real"),
    Type.DECIMAL: ("decimal", "numeric"),
    Type.TEXT: ("text", "string", "varchar", "uuid"),
    Type.BOOL: ("bool", "boolean"),
    Type.TIMESTAMP: ("timestamp", "datetime"),
    Type.BYTES: ("bytes", "binary", "blob"),
    Type.JSON: ("json", "object", "any"),
    Type.POINT: ("point",),
}
"""Names of each type; the first one is printed."""
_TYPES: Final = {name: kind for kind, names in NAMES.items() for name in names}


def type_named(name: str) -> Type:
    """Return the type of a name, in any case. Raises ValueError that lists the types."""
    try:
        return _TYPES[name.lower()]
    except KeyError:
        known = ", ".join(names[0] for names in NAMES.values())
        raise ValueError(f"there is no type {name[:40]!r}; the types are {known}") from None

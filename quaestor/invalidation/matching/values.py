"""Values that a path reaches in a record: always at least all values that a predicate on the path could test.

The index only proposes; the predicate decides. At an array every reading is therefore followed: as elements, as documents
keyed by position, and in nested arrays. The result includes whether anything was ambiguous.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quaestor.query.paths import as_document, is_array, is_document


def reachable(record: Mapping[str, Any], parts: tuple[str, ...]) -> tuple[list[Any], bool]:
    """Return the values that a predicate on the path, or inside an $elemMatch along it, could test.

    An array in the last place is among them, followed by its content, at any depth. Missing values are left out. The second
    result is whether the path is plain: no array on the way or at its end, so at most one value.
    """
    values: list[Any] = []
    plain = _walk(record, parts, 0, values)
    return values, plain


def _walk(value: Any, parts: tuple[str, ...], depth: int, values: list[Any]) -> bool:
    if depth == len(parts):
        values.append(value)
        if not is_array(value):
            return True
        for element in value:
            _walk(element, parts, depth, values)
        return False
    if is_array(value):
        name = parts[depth]
        if name.isascii() and name.isdigit() and int(name) < len(value):
            _walk(value[int(name)], parts, depth + 1, values)
        for element in value:
            if is_document(element) or is_array(element):
                _walk(element, parts, depth, values)
        return False
    if is_document(value):
        document = as_document(value)
        if parts[depth] in document:
            return _walk(document[parts[depth]], parts, depth + 1, values)
    return True

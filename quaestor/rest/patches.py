"""Patches of a record: JSON Merge Patch (RFC 7396), and a list of permitted update operators of MongoDB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quaestor.rest import strict_json
from quaestor.rest.bodies import unacceptable
from quaestor.rest.operators import COMPUTING_OPERATORS, FILTER_OPERATORS, UPDATE_MODIFIERS, UPDATE_OPERATORS
from quaestor.rest.problems import Problem

MAX_BACKFILL = 1_000
"""Places that one update may add to an array by writing behind its end: MongoDB fills the places between with nulls."""
_DBREF = frozenset({"$ref", "$id", "$db"})
_BELOW: Mapping[str, frozenset[str]] = {
    "$addToSet": UPDATE_MODIFIERS,
    "$push": UPDATE_MODIFIERS,
    "$pull": FILTER_OPERATORS,
    "$currentDate": frozenset({"$type"}),
}
"""Names with a dollar sign that are permitted below an operator; none for other operators."""


def merged(target: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the target changed by the patch; neither is modified. BSON values that are not objects are replaced whole."""
    result = dict(target)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, Mapping):
            below = result.get(name)
            result[name] = merged(below if isinstance(below, Mapping) else {}, value)
        else:
            result[name] = value
    return result


def require_update(text: str, update: Mapping[str, Any]) -> None:
    """Raise Problem (422) unless every operator is permitted, and none touches `_id`."""
    if not update:
        raise unacceptable(text, "an update names at least one operator", (), "update-malformed")
    for operator, fields in update.items():
        if operator not in UPDATE_OPERATORS:
            reason = f"{operator!r} is not an update operator that may be used here"
            raise unacceptable(text, reason, (operator,), "update-operator")
        if not isinstance(fields, Mapping):
            raise unacceptable(text, f"{operator} needs an object of fields", (operator,), "update-malformed")
        for path, operand in fields.items():
            _require_path(text, operator, path, operand)
            _require_operand(text, operand, (operator, path), _BELOW.get(operator, frozenset()))


def mentions(update: Mapping[str, Any], field: str) -> bool:
    """Whether update operators touch this top-level field, or a field below it."""
    return any(
        name.partition(".")[0] == field
        for operator, fields in update.items()
        for path, operand in fields.items()
        for name in ((path, operand) if operator == "$rename" else (path,))
    )


def require_blind(update: Mapping[str, Any]) -> None:
    """Reject operators that reveal stored values to callers without read access: raise Problem (403)."""
    for operator in update:
        if operator in COMPUTING_OPERATORS:
            detail = (
                f"{operator} computes from the stored value, so it needs the right to read the record; $set does not."
            )
            raise Problem(403, "forbidden", detail, pointer=f"/{operator}")


def require_near(text: str, update: Mapping[str, Any], record: Mapping[str, Any]) -> None:
    """Raise Problem (422) for a path far behind the end of one of the record's arrays: a few bytes would make millions."""
    for operator, fields in update.items():
        for path in fields:
            value: Any = record
            for part in path.split("."):
                if isinstance(value, list) and part.isascii() and part.isdigit():
                    index = int(part) if len(part) < 10 else 10**9
                    if index > len(value) + MAX_BACKFILL:
                        reason = f"{path!r} is more than {MAX_BACKFILL} places behind the end of an array"
                        raise unacceptable(text, reason, (operator, path), "update-malformed")
                    value = value[index] if index < len(value) else None
                else:
                    value = value.get(part) if isinstance(value, Mapping) else None


def _require_path(text: str, operator: str, path: str, operand: Any) -> None:
    for name in (path, operand) if operator == "$rename" else (path,):
        parts = name.split(".") if isinstance(name, str) else [""]
        if parts[0] == "_id" or not all(parts) or parts[0].startswith("$"):
            raise unacceptable(text, f"{operator} cannot change {name!r}", (operator, path), "update-malformed")


def _require_operand(text: str, operand: Any, pointer: tuple[str | int, ...], allowed: frozenset[str]) -> None:
    def visit(value: Any, at: tuple[str | int, ...]) -> None:
        if not isinstance(value, Mapping):
            return
        reference = "$ref" in value and "$id" in value
        for name in value:
            if name.startswith("$") and name not in allowed and not (reference and name in _DBREF):
                reason = f"{name!r} is not an operator that may be used here"
                raise unacceptable(text, reason, (*at, name), "update-operator")

    strict_json.walk(operand, visit, pointer)

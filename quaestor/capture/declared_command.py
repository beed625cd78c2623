"""The read command that one object of a declaration stands for (see `declared`). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quaestor.errors import MalformedQueryError

_COMMON = frozenset({"collection", "database", "collation", "let", "operationTime", "secondary"})
_FIND = frozenset({"filter", "sort", "skip", "limit", "projection", "count", "distinct"})


def command_of(item: Any, default: str | None) -> tuple[str, dict[str, Any], str]:
    """Return the name of the command, the command as a driver would send it, and its database.

    default: database of a collection that is named without one; None if there is none.

    Raises MalformedQueryError for an object of another form.
    """
    if not isinstance(item, dict):
        raise MalformedQueryError(f'it is an object like {{"collection": "flights"}}, not {shown(item)}')
    allowed = _COMMON | ({"pipeline"} if "pipeline" in item else _FIND)
    if unknown := item.keys() - allowed:
        raise MalformedQueryError(f"unknown or contradicting: {', '.join(sorted(unknown))}")
    database, collection = _namespace(item, default)
    name, command = _command(item, collection)
    return name, command, database


def _namespace(item: Mapping[str, Any], default: str | None) -> tuple[str, str]:
    collection = item.get("collection")
    database = item.get("database", default)
    if not isinstance(collection, str) or not collection or "\0" in collection:
        raise MalformedQueryError(f"collection is a name, not {shown(collection)}")
    if "database" not in item and "." in collection:
        first, _, rest = collection.partition(".")
        if default is None or first == default:
            database, collection = first, rest
    if not isinstance(database, str) or not database or not collection or "." in database:
        raise MalformedQueryError(f"the database of {shown(collection)} is not known: name it")
    return database, collection


def _command(item: Mapping[str, Any], collection: str) -> tuple[str, dict[str, Any]]:
    command: dict[str, Any] = {}
    for name in ("collation", "let"):
        if name in item:
            command[name] = _object(item, name)
    if "pipeline" in item:
        pipeline = item["pipeline"]
        if not isinstance(pipeline, list) or not all(isinstance(stage, dict) for stage in pipeline):
            raise MalformedQueryError("pipeline is an array of objects")
        return "aggregate", {"aggregate": collection, "pipeline": pipeline, **command}
    condition = _object(item, "filter") if "filter" in item else {}
    if "distinct" in item:
        if not isinstance(item["distinct"], str):
            raise MalformedQueryError(f"distinct is a field name, not {shown(item['distinct'])}")
        _only(item, "distinct", {"filter"})
        return "distinct", {"distinct": collection, "key": item["distinct"], "query": condition, **command}
    window = {name: _number(item, name) for name in ("skip", "limit") if name in item}
    if flag(item, "count"):
        _only(item, "count", {"filter", "skip", "limit"})
        # Like a driver's count_documents: with an empty filter too the records are counted, not the collection's metadata.
        return "aggregate", {"aggregate": collection, "pipeline": _counting(condition, window), **command}
    command |= {"find": collection, "filter": condition, **window}
    if "sort" in item:
        command["sort"] = _sort(item["sort"])
    if "projection" in item:
        command["projection"] = _object(item, "projection")
    return "find", command


def _counting(condition: Mapping[str, Any], window: Mapping[str, int]) -> list[dict[str, Any]]:
    stages: list[dict[str, Any]] = [{"$match": condition}]
    stages += [{f"${name}": value} for name, value in window.items() if value]
    return [*stages, {"$group": {"_id": 1, "n": {"$sum": 1}}}]


def _only(item: Mapping[str, Any], name: str, others: set[str]) -> None:
    if contradicting := item.keys() - _COMMON - others - {name}:
        raise MalformedQueryError(f"{name} does not go with {', '.join(sorted(contradicting))}")


def _object(item: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = item[name]
    if not isinstance(value, dict):
        raise MalformedQueryError(f"{name} is an object, not {shown(value)}")
    return value


def _number(item: Mapping[str, Any], name: str) -> int:
    value = item[name]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise MalformedQueryError(f"{name} is a number from 0, not {shown(value)}")
    return int(value)


def _sort(given: Any) -> dict[str, Any]:
    if isinstance(given, dict):
        return given
    if not isinstance(given, str) or not all(piece.strip().lstrip("-") for piece in given.split(",")):
        raise MalformedQueryError(f'sort is an object or fields like "scheduled,-_id", not {shown(given)}')
    pieces = [piece.strip() for piece in given.split(",")]
    return {piece.removeprefix("-"): -1 if piece.startswith("-") else 1 for piece in pieces}


def flag(item: Mapping[str, Any], name: str) -> bool:
    """Return a field that is true or false; false if it is absent. Raises MalformedQueryError for any other value."""
    value = item.get(name, False)
    if not isinstance(value, bool):
        raise MalformedQueryError(f"{name} is true or false, not {shown(value)}")
    return value


def shown(value: Any) -> str:
    """Return a value for a message, cut short."""
    return repr(value)[:80]

"""Pipelines of subscriptions: from Extended JSON of a stranger to stages that the sender may execute.

The checks come in this order: size, JSON, depth, number of stages, number of values. Then come operators that run code, sizes of
patterns, and the collections that the pipeline reads. The planner of the grid then refuses stages that write, and results that do
not follow from writes. Rules of single records become a part of the pipeline, wherever it reads records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from bson.code import Code
from bson.regex import Regex

from quaestor.live.websocket.limits import SocketLimits
from quaestor.live.websocket.problems import ProtocolError
from quaestor.model import Document
from quaestor.query import aggregation
from quaestor.rest import strict_json
from quaestor.rest.access import Action, addressable
from quaestor.rest.operators import NEVER
from quaestor.rest.rights import Rights

Pipeline = tuple[Document, ...]
PIPELINE_DEEPER: Final = 2
"""A pipeline may nest more than a filter: filters and expressions stand within its stages."""
_PATTERNS: Final = frozenset({"$regex", "regex"})


def permitted_pipeline(text: str, *, database: str, rights: Rights, limits: SocketLimits) -> Pipeline:
    """Return the stages of a pipeline, with what its sender may not see taken out.

    Raises ProtocolError: 400 for what is malformed, 403 for other collections that the sender may not read.
    """
    stages = _parsed(text, limits)
    try:
        others = aggregation.foreign_namespaces(stages, database)
    except (AttributeError, TypeError, ValueError, KeyError):
        raise _malformed("a stage has an argument of another type") from None
    for namespace in sorted(others):
        _require_readable(namespace, database, rights)
    rules = rights.guarded({}, "read")
    return _guarded(stages, rules) if rules else stages


def _parsed(text: str, limits: SocketLimits) -> Pipeline:
    if not limits.pipeline_stages:
        raise _malformed("this endpoint takes no pipelines (SocketLimits.pipeline_stages)")
    if len(text.encode("utf-8", "replace")) > limits.query.filter_bytes:
        raise _malformed(f"longer than {limits.query.filter_bytes} bytes")
    try:
        source = strict_json.parse(text, depth=PIPELINE_DEEPER * limits.query.filter_depth)
    except strict_json.JsonError as error:
        raise _malformed(error.reason) from error
    number = _number_of_stages(source)
    if number > limits.pipeline_stages:
        raise _malformed(f"{number} stages, with those of nested pipelines; at most {limits.pipeline_stages}")
    strict_json.walk(source, _Check(limits).visit)
    return tuple(source)


def _number_of_stages(stages: Any) -> int:
    """Return the number of stages, with those of nested pipelines. Raises ProtocolError if it is no pipeline."""
    if not isinstance(stages, list) or not all(isinstance(stage, Mapping) and len(stage) == 1 for stage in stages):
        raise _malformed("a pipeline is not an array of objects with one stage each")
    number = len(stages)
    for stage in stages:
        ((name, argument),) = stage.items()
        if name == "$facet":
            number += sum(map(_number_of_stages, _object(argument).values()))
        elif name in ("$lookup", "$graphLookup") or (name == "$unionWith" and not isinstance(argument, str)):
            number += _number_of_stages(_object(argument).get("pipeline", []))
    return number


class _Check:
    """Check of every value of a pipeline."""

    def __init__(self, limits: SocketLimits) -> None:
        self._limits = limits.query
        self._nodes = 0

    def visit(self, value: Any, pointer: tuple[str | int, ...]) -> None:
        """Take one value. Raises ProtocolError."""
        self._nodes += 1
        if self._nodes > self._limits.filter_nodes:
            raise _malformed(f"more than {self._limits.filter_nodes} names and values")
        if isinstance(value, Code):
            raise _malformed("code is not allowed")
        if isinstance(value, Mapping):
            for name in value:
                if name in NEVER:
                    raise _malformed(f"{name!r} is not an operator that may be used here")
        pattern = value.pattern if isinstance(value, Regex) else value
        if (isinstance(value, Regex) or (pointer and pointer[-1] in _PATTERNS)) and isinstance(pattern, str):
            self._require_short(pattern)

    def _require_short(self, pattern: str) -> None:
        if len(pattern) > self._limits.regex_characters:
            raise _malformed(f"a pattern of {len(pattern)} characters; at most {self._limits.regex_characters}")


def _require_readable(namespace: str, database: str, rights: Rights) -> None:
    own, _, collection = namespace.partition(".")
    if own != database or not addressable(collection) or not rights.may(collection, Action.READ):
        raise ProtocolError(403, f"pipeline: you may not read {collection}")


def _guarded(stages: Sequence[Document], rules: Document) -> Pipeline:
    """Return the stages behind the rules of records. The first stage stays the first where MongoDB requires it."""
    inner = tuple(_restricted(stage, rules) for stage in stages)
    first: Mapping[str, Any] = inner[0] if inner else {}
    if "$match" in first:
        return {"$match": _both(first["$match"], rules)}, *inner[1:]
    if "$geoNear" in first:
        near = _object(first["$geoNear"])
        return {"$geoNear": {**near, "query": _both(near.get("query", {}), rules)}}, *inner[1:]
    return {"$match": rules}, *inner


def _restricted(stage: Document, rules: Document) -> Document:
    """Return the stage with the rules wherever it reads records of a collection."""
    ((name, argument),) = stage.items()
    if name == "$facet":
        branches = _object(argument).items()
        return {name: {branch: [_restricted(inner, rules) for inner in stages] for branch, stages in branches}}
    if name == "$unionWith":
        argument = {"coll": argument} if isinstance(argument, str) else _object(argument)
    if name in ("$lookup", "$unionWith"):
        return {name: {**_object(argument), "pipeline": list(_guarded(argument.get("pipeline", ()), rules))}}
    if name == "$graphLookup":
        restriction = _both(_object(argument).get("restrictSearchWithMatch", {}), rules)
        return {name: {**argument, "restrictSearchWithMatch": restriction}}
    return stage


def _both(condition: Any, rules: Document) -> Document:
    return {"$and": [_object(condition), rules]}


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _malformed("a stage has an argument of another type")
    return value


def _malformed(reason: str) -> ProtocolError:
    return ProtocolError(400, f"pipeline: {reason}")

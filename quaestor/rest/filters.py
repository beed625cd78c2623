"""Filters and sorts from strangers: parsed, bounded, checked and compiled before the database receives them.

The checks come in this order: size, JSON, depth, number of nodes, operators by name, sizes of `$in` and of patterns. At last the
compiler of the query engine refuses filters that mongod would refuse. Each refusal is a 400 with the parameter, the position and
the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bson.code import Code
from bson.regex import Regex

from quaestor.errors import MalformedQueryError, QueryError, UnsupportedQueryError
from quaestor.model import Document, SortSpec
from quaestor.query import compile_query
from quaestor.rest import strict_json
from quaestor.rest.limits import Limits
from quaestor.rest.operators import NEVER
from quaestor.rest.problems import Problem

_DBREF = frozenset({"$ref", "$id", "$db"})
_NEAR = frozenset({"$near", "$nearSphere"})
_LISTS = frozenset({"$in", "$nin", "$all"})
_BRANCHES = frozenset({"$and", "$or", "$nor"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Filter of a list.

    document: the filter for the database.
    ordered: it decides the order of the records itself (`$near`).
    """

    document: Document
    ordered: bool = False


EVERYTHING = Filter(document={})


def parse_filter(text: str, limits: Limits) -> Filter:
    """Return the filter in a text. Raises Problem (400). O(size of the text)."""
    source = _object(text, "filter", limits)
    check = _Check(text, limits)
    strict_json.walk(source, check.visit)
    try:
        compile_query(source)
    except QueryError as error:
        pointer = _culprit(source)
        name = "filter-unsupported" if isinstance(error, UnsupportedQueryError) else "filter-malformed"
        raise _problem(text, "filter", name, str(error), pointer) from error
    return Filter(document=source, ordered=check.ordered)


def parse_sort(text: str, limits: Limits) -> SortSpec:
    """Return the sort in a text like `{"a": 1, "b": -1}`: pairs of path and direction. Raises Problem (400)."""
    source = _object(text, "sort", limits)
    if len(source) > limits.sort_fields:
        raise _problem(text, "sort", "sort-too-long", f"at most {limits.sort_fields} fields", ())
    for path, direction in source.items():
        if type(direction) is not int or direction not in (1, -1):
            raise _problem(text, "sort", "sort-malformed", "a direction is 1 or -1", (path,))
        if path.startswith("$") or not all(path.split(".")):
            raise _problem(text, "sort", "sort-malformed", f"{path!r} is not the path of a field", (path,))
    return tuple(source.items())


class _Check:
    """Check of every value of a filter; raises Problem at the first forbidden one."""

    def __init__(self, text: str, limits: Limits) -> None:
        self._text = text
        self._limits = limits
        self._nodes = 0
        self._regexes = 0
        self.ordered = False

    def visit(self, value: Any, pointer: tuple[str | int, ...]) -> None:
        self._nodes += 1
        if self._nodes > self._limits.filter_nodes:
            raise self._refuse("filter-too-large", f"more than {self._limits.filter_nodes} names and values", pointer)
        if isinstance(value, Mapping):
            self._names(value, pointer)
        elif isinstance(value, Regex | re.Pattern):
            self._pattern(value.pattern, pointer)
        elif isinstance(value, Code):
            raise self._refuse("filter-operator", "code is not allowed in a filter", pointer)
        elif pointer and pointer[-1] == "$regex" and isinstance(value, str):
            self._pattern(value, pointer)
        elif pointer and pointer[-1] in _LISTS and isinstance(value, list) and len(value) > self._limits.in_values:
            reason = f"{pointer[-1]} with {len(value)} values; at most {self._limits.in_values}"
            raise self._refuse("filter-too-large", reason, pointer)

    def _names(self, value: Mapping[str, Any], pointer: tuple[str | int, ...]) -> None:
        reference = "$ref" in value and "$id" in value
        for name in value:
            if not name.startswith("$") or (reference and name in _DBREF):
                continue
            if name in NEVER or name not in self._limits.operators:
                raise self._refuse(
                    "filter-operator", f"{name!r} is not an operator that may be used here", (*pointer, name)
                )
            self.ordered = self.ordered or name in _NEAR

    def _pattern(self, pattern: str | bytes, pointer: tuple[str | int, ...]) -> None:
        self._regexes += 1
        if self._regexes > self._limits.regexes:
            raise self._refuse(
                "filter-too-large", f"more than {self._limits.regexes} regular expressions in one filter", pointer
            )
        if len(pattern) > self._limits.regex_characters:
            reason = f"a pattern of {len(pattern)} characters; at most {self._limits.regex_characters}"
            raise self._refuse("filter-too-large", reason, pointer)

    def _refuse(self, name: str, reason: str, pointer: tuple[str | int, ...]) -> Problem:
        return _problem(self._text, "filter", name, reason, pointer)


def _object(text: str, parameter: str, limits: Limits) -> dict[str, Any]:
    if len(text.encode("utf-8", "replace")) > limits.filter_bytes:
        raise Problem(
            400, f"{parameter}-too-large", f"longer than {limits.filter_bytes} bytes",
            parameter=parameter, position=limits.filter_bytes,
        )  # fmt: skip
    try:
        source = strict_json.parse(text, depth=limits.filter_depth)
    except strict_json.JsonError as error:
        raise Problem(
            400, f"{parameter}-malformed", error.reason,
            parameter=parameter, position=error.position, pointer=error.pointer,
        ) from error  # fmt: skip
    if not isinstance(source, dict):
        raise _problem(text, parameter, f"{parameter}-malformed", "not a JSON object", ())
    return source


def _problem(text: str, parameter: str, name: str, reason: str, pointer: tuple[str | int, ...]) -> Problem:
    error = strict_json.refusal(text, reason, pointer)
    return Problem(400, name, reason, parameter=parameter, position=error.position, pointer=error.pointer)


def _culprit(source: Mapping[str, Any]) -> tuple[str | int, ...]:
    """Return the smallest part that is refused by itself; the compiler does not report the place."""
    for name, value in source.items():
        if not _refused({name: value}):
            continue
        if name in _BRANCHES and isinstance(value, list):
            for index, member in enumerate(value):
                if isinstance(member, Mapping) and _refused(member):
                    return (name, index, *_culprit(member))
        return (name,)
    return ()


def _refused(source: Mapping[str, Any]) -> bool:
    try:
        compile_query(source)
    except (MalformedQueryError, UnsupportedQueryError):
        return True
    return False

"""Keywords for documents.

mongod takes a name with a dot in `properties`, `required` and `dependencies` for a path, with the matching of paths through
arrays. Such names are refused here as unsupported. The schema of the empty name applies to the document itself, as in mongod.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from quaestor.errors import MalformedQueryError, UnsupportedQueryError
from quaestor.query.expressions.kinds import as_mapping, kind_of
from quaestor.query.json_schema import operands
from quaestor.query.json_schema.checks import Check, Context, Keyword
from quaestor.query.regex import pattern


def _for_documents(check: Callable[[Mapping[str, Any]], bool]) -> Check:
    """Return the check for documents; every other value is valid."""
    return lambda value: kind_of(value) != "object" or check(as_mapping(value))


def _plain(name: str) -> str:
    if "." in name:
        raise UnsupportedQueryError(f"the property name {name!r} in $jsonSchema")
    return name


def _size(relation: Callable[[int, int], bool]) -> Keyword:
    def size(keyword: str, value: Any, context: Context) -> Check:
        limit = operands.length(keyword, value)
        return _for_documents(lambda document: relation(len(document), limit))

    return size


def _required(keyword: str, value: Any, context: Context) -> Check:
    names = [_plain(name) for name in operands.names(keyword, value)]
    return _for_documents(lambda document: all(name in document for name in names))


def _properties(keyword: str, value: Any, context: Context) -> Check:
    checks = []
    for name, schema in operands.document(keyword, value).items():
        if kind_of(schema) != "object":
            raise MalformedQueryError(f"Nested schema for $jsonSchema property '{name}' must be an object")
        # mongod applies the schema of the property "" to the document around it.
        compile_nested = context.compile if name else context.whole
        checks.append((_plain(name), compile_nested(as_mapping(schema))))
    return _for_documents(
        lambda document: all(
            name not in document or check(document[name] if name else document) for name, check in checks
        )
    )


def _patterns(schema: Mapping[str, Any]) -> list[tuple[Callable[[str], bool], Mapping[str, Any]]]:
    keyword = "patternProperties"
    return [
        (_name_pattern(source), operands.document(keyword, nested))
        for source, nested in operands.document(keyword, schema.get(keyword, {})).items()
    ]


def _name_pattern(source: str) -> Callable[[str], bool]:
    """Return the test for property names. Unlike values, names are matched byte by byte: `.` is half of an é."""
    search = pattern(_bytewise(source), "").occurs
    return lambda name: search(_bytewise(name))


def _bytewise(text: str) -> str:
    return text if text.isascii() else text.encode().decode("latin-1")


def _pattern_properties(keyword: str, value: Any, context: Context) -> Check:
    checks = [(applies, context.compile(nested)) for applies, nested in _patterns(context.schema)]
    return _for_documents(
        lambda document: all(
            check(member) for name, member in document.items() for applies, check in checks if applies(name)
        )
    )


def _additional_properties(keyword: str, value: Any, context: Context) -> Check | None:
    """Compile `additionalProperties`: the schema for properties outside `properties` and `patternProperties`."""
    if kind_of(value) not in ("object", "bool"):
        raise MalformedQueryError("$jsonSchema keyword 'additionalProperties' must be an object or a boolean")
    if value is True:
        return None
    check = context.compile(as_mapping(value)) if value is not False else None
    known = frozenset(operands.document("properties", context.schema.get("properties", {})))
    patterns = [applies for applies, _ in _patterns(context.schema)]

    def is_valid(document: Mapping[str, Any]) -> bool:
        for name, member in document.items():
            if name in known or any(applies(name) for applies in patterns):
                continue
            if check is None or not check(member):
                return False
        return True

    return _for_documents(is_valid)


def _dependencies(keyword: str, value: Any, context: Context) -> Check:
    """Compile `dependencies`: if the property exists, other properties must, or the document must fit a schema."""
    checks = []
    for name, dependency in operands.document(keyword, value).items():
        if kind_of(dependency) == "object":
            checks.append((_plain(name), context.same(as_mapping(dependency))))
        elif kind_of(dependency) == "array":
            checks.append((_plain(name), _required(f"dependencies.{name}", dependency, context)))
        else:
            raise MalformedQueryError(
                f"property '{name}' in $jsonSchema keyword 'dependencies' must be either an object or an array"
            )
    return _for_documents(lambda document: all(name not in document or check(document) for name, check in checks))


KEYWORDS: Final[Mapping[str, Keyword]] = {
    "minProperties": _size(operator.ge),
    "maxProperties": _size(operator.le),
    "required": _required,
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "dependencies": _dependencies,
}

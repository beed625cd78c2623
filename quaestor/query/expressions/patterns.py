"""`$regexMatch`, `$regexFind`, `$regexFindAll`.

A linear engine decides whether a pattern occurs. The bounded engine finds the position and the groups; it raises
UncertainMatchError when a text takes it too long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from quaestor.errors import MalformedQueryError
from quaestor.query.bson_order import regex_flags
from quaestor.query.expressions.errors import ExpressionError
from quaestor.query.expressions.forms import compiled_member, members_of
from quaestor.query.expressions.kinds import is_nullish, is_string, kind_of
from quaestor.query.expressions.nodes import Compiled, Frame, Operator, Scope
from quaestor.query.regex import bounded_engine, pattern

if TYPE_CHECKING:
    import regex

Search = Callable[[str, str, str], Any]
"""Takes a text, a pattern and its options; returns the operator's result."""

_LETTERS: Final = frozenset("imsxu")


def _match(text: str, source: str, options: str) -> bool:
    return pattern(source, options).occurs(text)


def _find(text: str, source: str, options: str) -> Any:
    match = bounded_engine(source, options).search(text)
    return _described(match) if match is not None else None


def _find_all(text: str, source: str, options: str) -> list[Any]:
    engine = bounded_engine(source, options)
    matches = []
    position = 0
    while True:
        match = engine.search(text, position)
        if match is None:
            break
        matches.append(_described(match))
        position = match.end() if match.end() > match.start() else match.start() + 1
        if position >= len(text):
            break
    return matches


def _described(match: regex.Match[str]) -> dict[str, Any]:
    return {"match": match.group(), "idx": match.start(), "captures": list(match.groups())}


def _source_and_options(name: str, value: Any, given: Any) -> tuple[str, str] | None:
    """Return the pattern and its option letters; None if it is null. Raises ExpressionError like mongod."""
    own = ""
    if kind_of(value) == "regex":
        own = regex_flags(value.flags)
    elif not is_string(value) and not is_nullish(value):
        raise ExpressionError(f"{name} needs 'regex' to be of type string or regex")
    options = own
    if not is_nullish(given):
        if not is_string(given):
            raise ExpressionError(f"{name} needs 'options' to be of type string")
        if own:
            raise ExpressionError(f"{name}: found regex option(s) specified in both 'regex' and 'option' fields")
        options = given
    if unknown := set(options) - _LETTERS:
        raise ExpressionError(f"{name} invalid flag in regex options: {''.join(sorted(unknown))}")
    if is_nullish(value):
        return None
    source = value if is_string(value) else value.pattern
    source = source.decode() if isinstance(source, bytes) else source
    if "\0" in source:
        raise ExpressionError(f"{name}: regular expression cannot contain an embedded null byte")
    try:
        pattern(source, options)
    except MalformedQueryError as error:
        raise ExpressionError(f"Invalid Regex in {name}: {error}") from error
    return source, options


def _operator(search: Search, nothing: Callable[[], Any]) -> Operator:
    """Return the operator for a search. nothing: makes the result for a null text or pattern."""

    def build(name: str, operand: Any, scope: Scope) -> Compiled:
        members = members_of(
            name,
            operand,
            required=("input", "regex"),
            optional=("options",),
            missing="{name} requires '{field}' parameter",
            unknown="{name} found an unknown argument: {field}",
            not_object="{name} expects an object of named arguments but found: {kind}",
        )
        scope.build.patterns = True
        text, expression, options = (compiled_member(members, field, scope) for field in ("input", "regex", "options"))
        if expression.is_constant and options.is_constant:
            try:
                _source_and_options(name, expression.constant, options.constant)
            except ExpressionError as error:
                scope.build.failures.append(error)
        text_of, expression_of, options_of = text.evaluate, expression.evaluate, options.evaluate

        def evaluate(frame: Frame) -> Any:
            value = text_of(frame)
            if not is_string(value) and not is_nullish(value):
                raise ExpressionError(f"{name} needs 'input' to be of type string")
            compiled = _source_and_options(name, expression_of(frame), options_of(frame))
            if compiled is None or is_nullish(value):
                return nothing()
            return search(value, *compiled)

        return Compiled(evaluate)

    return build


OPERATORS: Final[Mapping[str, Operator]] = {
    "$regexMatch": _operator(_match, lambda: False),
    "$regexFind": _operator(_find, lambda: None),
    "$regexFindAll": _operator(_find_all, list),
}

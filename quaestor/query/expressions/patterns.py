"""`$regexMatch`, `$regexFind`, `$regexFindAll`.

Whether a pattern is found takes linear time; where, and what its groups captured, is asked of the bounded engine, which
raises UncertainMatchError when a text takes it too long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import regex

from quaestor.errors import MalformedQueryError, UncertainMatchError, UnsupportedQueryError
from quaestor.query.bson_order import regex_flags
from quaestor.query.expressions.errors import ExpressionError
from quaestor.query.expressions.forms import compiled_member, members_of
from quaestor.query.expressions.kinds import is_nullish, is_string, kind_of
from quaestor.query.expressions.nodes import Compiled, Frame, Operator, Scope
from quaestor.query.pcre.pieces import Options
from quaestor.query.pcre.translate import translate
from quaestor.query.regex import TIME_LIMIT_S, pattern

Search = Callable[[str, str, str], Any]
"""Answers for a text, a pattern and its options."""

_LETTERS: Final = frozenset("imsxu")


def _match(text: str, source: str, options: str) -> bool:
    return pattern(source, options).found(text)


def _find(text: str, source: str, options: str) -> Any:
    found = _search(_engine(source, options), text, 0)
    return _described(found) if found is not None else None


def _find_all(text: str, source: str, options: str) -> list[Any]:
    engine = _engine(source, options)
    matches = []
    position = 0
    while True:
        found = _search(engine, text, position)
        if found is None:
            break
        matches.append(_described(found))
        position = found.end() if found.end() > found.start() else found.start() + 1
        if position >= len(text):
            break
    return matches


def _described(found: regex.Match[str]) -> dict[str, Any]:
    return {"match": found.group(), "idx": found.start(), "captures": list(found.groups())}


def _search(engine: regex.Pattern[str], text: str, position: int) -> regex.Match[str] | None:
    try:
        return engine.search(text, position, timeout=TIME_LIMIT_S)
    except TimeoutError as error:
        raise UncertainMatchError(f"regular expression {engine.pattern!r} took longer than {TIME_LIMIT_S} s") from error


@lru_cache(maxsize=1024)
def _engine(source: str, options: str) -> regex.Pattern[str]:
    letters = Options(
        ignore_case="i" in options, multiline="m" in options, dot_all="s" in options, extended="x" in options
    )
    try:
        return regex.compile(translate(source, letters).full, regex.VERSION0)
    except regex.error as error:
        raise UnsupportedQueryError(f"a regular expression that no engine here can run ({error})") from error


def _source_and_options(name: str, value: Any, given: Any) -> tuple[str, str] | None:
    """The pattern and its option letters; None if it is null. Raises ExpressionError as mongod does."""
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
    """nothing: what a null text or pattern gives."""

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

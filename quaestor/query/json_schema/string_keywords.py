"""Keywords for strings: `minLength` and `maxLength` in code points, `pattern`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from quaestor.query.expressions.kinds import is_string
from quaestor.query.json_schema import operands
from quaestor.query.json_schema.checks import Check, Context, Keyword
from quaestor.query.regex import pattern


def _length(relation: Callable[[int, int], bool]) -> Keyword:
    def length(keyword: str, value: Any, context: Context) -> Check:
        limit = operands.length(keyword, value)
        return lambda text: not is_string(text) or relation(len(text), limit)

    return length


def _pattern(keyword: str, value: Any, context: Context) -> Check | None:
    source = operands.text(keyword, value)
    if context.at_top:
        return None
    search = pattern(source, "").occurs
    return lambda text: not is_string(text) or search(text)


KEYWORDS: Final[Mapping[str, Keyword]] = {
    "minLength": _length(operator.ge),
    "maxLength": _length(operator.le),
    "pattern": _pattern,
}

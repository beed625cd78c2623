"""Templates of texts: queries whose texts differ only in values that columns are compared with are compiled once.

The template is compiled with a mark in the place of each value. A value may differ only if its mark leaves the plan as a
constant. Other texts are compiled one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import sqlglot
from sqlglot import Token, TokenType, exp

from quaestor.continuous.compilation import CompiledQuery
from quaestor.continuous.rules.constants import Constant, constant_of

_COMPARISONS: Final = frozenset(
    {TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE, TokenType.LIKE}
)
_BEFORE: Final = frozenset(
    {TokenType.WHERE, TokenType.AND, TokenType.OR, TokenType.ON, TokenType.NOT, TokenType.L_PAREN}
)
_AFTER: Final = frozenset({TokenType.AND, TokenType.OR, TokenType.R_PAREN, TokenType.SEMICOLON})
_VALUES: Final = frozenset({TokenType.STRING, TokenType.NUMBER})
_FIRST_MARK: Final = 7_310_000_000_000


@dataclass(frozen=True, slots=True)
class Template:
    """Text of a query, with its values taken out.

    pieces: of the text, around the values.
    texts: for each value, whether it is a text; otherwise it is a number.
    """

    pieces: tuple[str, ...]
    texts: tuple[bool, ...]

    def marked(self) -> str:
        """Return the text with a mark in the place of each value."""
        marks = [f"'{mark}'" if isinstance(mark, str) else str(mark) for mark in self.marks]
        return "".join(part for pair in zip(self.pieces, [*marks, ""], strict=True) for part in pair)

    @property
    def marks(self) -> list[int | float | str]:
        """Values that no other part of the text has."""
        return [f"~value {place}~" if text else _FIRST_MARK + place for place, text in enumerate(self.texts)]

    def places(self, compiled: CompiledQuery) -> Places | None:
        """Return the places of the values among the constants of the marked text; None: the plan keeps a value."""
        marks = self.marks
        places = tuple(
            marks.index(constant.value) if constant.value in marks else None for constant in compiled.constants
        )
        if set(places) - {None} != set(range(len(marks))) or any(str(mark) in compiled.signature for mark in marks):
            return None
        return Places(compiled.constants, places)


@dataclass(frozen=True, slots=True)
class Places:
    """Constants of a template, some of which are values of its texts.

    places: number of the value for each constant; None: all texts have this constant.
    """

    constants: tuple[Constant, ...]
    places: tuple[int | None, ...]

    def filled(self, values: Sequence[exp.Expr]) -> tuple[Constant, ...] | None:
        """Return the constants of a text; None: a value does not fit the type of its column."""
        filled = []
        for constant, place in zip(self.constants, self.places, strict=True):
            own: Constant | None = constant if place is None else constant_of(values[place], constant.type)
            if own is None:
                return None
            filled.append(own)
        return tuple(filled)


def template_of(text: str) -> tuple[Template, list[exp.Expr]]:
    """Return the template of a text and its values. A text that cannot be read has no values."""
    try:
        tokens = sqlglot.tokenize(text, dialect="duckdb")
    except sqlglot.errors.SqlglotError:
        return Template((text,), ()), []
    clause = next((place for place, token in enumerate(tokens) if token.token_type is TokenType.FROM), 0)
    names = Counter(token.text.lower() for token in tokens[clause:])
    pieces: list[str] = []
    values: list[Token] = []
    end = 0
    for place, token in enumerate(tokens):
        if token.token_type in _VALUES and _is_free(tokens, place, names):
            pieces.append(text[end : token.start])
            values.append(token)
            end = token.end + 1
    pieces.append(text[end:])
    texts = tuple(token.token_type is TokenType.STRING for token in values)
    literals: list[exp.Expr] = [
        exp.Literal.string(token.text) if is_text else exp.Literal.number(token.text)
        for token, is_text in zip(values, texts, strict=True)
    ]
    return Template(tuple(pieces), texts), literals


def _is_free(tokens: Sequence[Token], place: int, names: Counter[str]) -> bool:
    """Whether a value is compared with a column that has no other condition.

    names: how often FROM, and the clauses after it, have each word.

    No rule can then join the comparison with another one, whatever the value is.
    """
    if place < 3 or tokens[place - 1].token_type not in _COMPARISONS:
        return False
    if place + 1 < len(tokens) and tokens[place + 1].token_type not in _AFTER:
        return False
    column = tokens[place - 2]
    before = place - 5 if tokens[place - 3].token_type is TokenType.DOT else place - 3
    return (
        column.token_type is TokenType.VAR
        and names[column.text.lower()] == 1
        and before >= 0
        and tokens[before].token_type in _BEFORE
    )

"""Evaluate expressions here and on a real mongod, and compare: value, type, and whether they fail."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import bson
from bson import CodecOptions, Decimal128
from bson.codec_options import DatetimeConversion
from pymongo.database import Database
from pymongo.errors import OperationFailure

from quaestor.errors import MalformedQueryError, UncertainMatchError, UnsupportedQueryError
from quaestor.query.expressions import MISSING, ExpressionError, compile_expression
from tests.oracle.expressions.generator import INEXACT, count

Document = dict[str, Any]
DECODING: CodecOptions[Document] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO, unicode_decode_error_handler="backslashreplace"
)
_LAST_DIGITS = Decimal("1e-25")


@dataclass(frozen=True)
class Failure:
    """A failed evaluation. Failures are equal with any reason, which is for people."""

    reason: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Failure)

    def __hash__(self) -> int:
        return 0


TOO_LARGE = object()
"""mongod's answer does not fit into a document."""


class UnknownError(Exception):
    """This engine does not claim to know."""


def as_stored(document: Document) -> Document:
    """The document as the driver would decode it."""
    return bson.decode(bson.encode(document), DECODING)


def ours(expression: Any, documents: Sequence[Document]) -> list[Any]:
    try:
        evaluate = compile_expression(expression)
    except MalformedQueryError as error:
        return [Failure(str(error))] * len(documents)
    except (UnsupportedQueryError, UncertainMatchError) as error:
        raise UnknownError(str(error)) from error
    return [_evaluated(evaluate, document) for document in documents]


def _evaluated(evaluate: Any, document: Document) -> Any:
    try:
        return evaluate(document)
    except ExpressionError as error:
        return Failure(str(error))
    except (UnsupportedQueryError, UncertainMatchError) as error:
        raise UnknownError(str(error)) from error


def theirs(database: Database[Document], expressions: Sequence[Any], documents: Sequence[Document]) -> list[list[Any]]:
    """mongod's answers, per expression and document; one aggregate as long as nothing fails, halves where something does."""
    try:
        return _aggregate(database, expressions, documents)
    except OperationFailure as error:
        if len(expressions) > 1:
            half = len(expressions) // 2
            return theirs(database, expressions[:half], documents) + theirs(database, expressions[half:], documents)
        if len(documents) > 1:
            return [[theirs(database, expressions, [document])[0][0] for document in documents]]
        return [[TOO_LARGE if error.code == 10334 else Failure(str(error))]]


def _aggregate(
    database: Database[Document], expressions: Sequence[Any], documents: Sequence[Document]
) -> list[list[Any]]:
    pipeline = [
        {"$documents": [{"$literal": document} for document in documents]},
        {"$replaceWith": {f"r{position}": expression for position, expression in enumerate(expressions)}},
    ]
    rows = list(database.aggregate(pipeline))
    return [[row.get(f"r{position}", MISSING) for row in rows] for position in range(len(expressions))]


def same(left: Any, right: Any, *, exact: bool = True) -> bool:
    """Equal in value and type; of inexact computations the last digits may differ."""
    if isinstance(left, Failure) or isinstance(right, Failure):
        return left == right
    if left is MISSING or right is MISSING:
        return left is right
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[name], right[name], exact=exact) for name in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(same(a, b, exact=exact) for a, b in zip(left, right, strict=True))
    if isinstance(left, float):
        return _same_double(left, right, exact)
    if isinstance(left, Decimal128):
        return left.bid == right.bid or str(left) == str(right) == "NaN" or (not exact and _close_decimals(left, right))
    return bool(left == right) or (not exact and isinstance(left, str))


def _same_double(left: float, right: float, exact: bool) -> bool:
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    if left == right:
        return math.copysign(1, left) == math.copysign(1, right) or not exact
    return not exact and math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9)


def _close_decimals(left: Decimal128, right: Decimal128) -> bool:
    a, b = left.to_decimal(), right.to_decimal()
    if not a.is_finite() or not b.is_finite():
        return str(a) == str(b)
    return a == b or abs(a - b) <= abs(b) * _LAST_DIGITS or max(abs(a), abs(b)) < _LAST_DIGITS


def disagreements(database: Database[Document], expressions: Sequence[Any], documents: Sequence[Document]) -> list[str]:
    """A line for every expression and document on which the two differ."""
    stored = [as_stored(document) for document in documents]
    judged = []
    for expression in expressions:
        try:
            judged.append((expression, ours(expression, stored)))
        except UnknownError:
            continue
    fine = [pair for pair in judged if Failure("") not in pair[1]]
    doubtful = [pair for pair in judged if Failure("") in pair[1]]
    lines = []
    for group in (fine, *([pair] for pair in doubtful)):
        if not group:
            continue
        answers = theirs(database, [expression for expression, _ in group], stored)
        for (expression, mine), yours in zip(group, answers, strict=True):
            inexact = count(expression, INEXACT)
            if inexact and not (inexact == 1 and isinstance(expression, dict) and next(iter(expression)) in INEXACT):
                continue  # what is done with an inexact result can magnify its last digit at will
            lines += [
                f"{expression!r} on {document!r}: {a!r}, mongod says {b!r}"
                for document, a, b in zip(stored, mine, yours, strict=True)
                if b is not TOO_LARGE and not same(a, b, exact=not inexact)
            ]
    return lines

"""The error of an expression that compiles but cannot be evaluated."""

from __future__ import annotations

from quaestor.errors import QueryError


class ExpressionError(QueryError):
    """mongod fails the whole query here: division by zero, a string where a number is needed, no matching branch.

    Raised when a document is evaluated. A query whose constant part fails is refused when it is compiled instead: mongod
    folds that part while it optimises, and fails whatever the documents are.
    """


class ConversionError(ExpressionError):
    """A value could not be converted: what `onError` of `$convert` and `$dateFromString` answers."""

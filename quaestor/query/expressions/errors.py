"""The errors of expressions that compile but cannot be evaluated."""

from __future__ import annotations

from quaestor.errors import QueryError


class ExpressionError(QueryError):
    """An expression on which mongod fails the whole query: division by zero, a string instead of a number, no matching branch.

    Raised when a document is evaluated. A query whose constant part fails is refused at compilation instead: mongod
    folds that part while it optimises, and fails whatever the documents are.
    """


class ConversionError(ExpressionError):
    """A value that could not be converted; `onError` of `$convert` and `$dateFromString` replaces it."""

"""Aggregation expressions: `$expr` in filters, and the expressions of pipeline stages."""

from __future__ import annotations

from quaestor.query.bson_order import MISSING
from quaestor.query.expressions.compiler import compile_expression, field_paths
from quaestor.query.expressions.errors import ExpressionError
from quaestor.query.expressions.kinds import truthy

__all__ = ["MISSING", "ExpressionError", "compile_expression", "field_paths", "truthy"]

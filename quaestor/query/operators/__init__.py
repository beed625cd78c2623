"""Every operator of the filter language, by name. To add one: write its module, add its table here.

A later table overrides an earlier one, so naming a refused operator once more below makes it supported.
"""

from __future__ import annotations

from typing import Final

from quaestor.query.geo import near, within
from quaestor.query.operators import (
    array,
    bits,
    comparison,
    element,
    evaluation,
    logical,
    membership,
    modulo,
    refused,
    regex_match,
)
from quaestor.query.operators.contract import DocumentOperator, FieldOperator
from quaestor.query.text import operator as text

FIELD_OPERATORS: Final[dict[str, FieldOperator]] = {
    **refused.OPERATORS,
    **comparison.OPERATORS,
    **membership.OPERATORS,
    **logical.OPERATORS,
    **element.OPERATORS,
    **array.OPERATORS,
    **modulo.OPERATORS,
    **bits.OPERATORS,
    **regex_match.OPERATORS,
    **within.OPERATORS,
    **near.OPERATORS,
}
"""Operators on a path: `{path: {$name: operand}}`."""

DOCUMENT_OPERATORS: Final[dict[str, DocumentOperator]] = {
    **refused.DOCUMENT_OPERATORS,
    **logical.DOCUMENT_OPERATORS,
    **evaluation.DOCUMENT_OPERATORS,
    **text.DOCUMENT_OPERATORS,
}
"""Operators in place of a field name: `{$name: operand}`."""

__all__ = ["DOCUMENT_OPERATORS", "FIELD_OPERATORS", "DocumentOperator", "FieldOperator"]

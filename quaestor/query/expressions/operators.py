"""Operators of expressions. To add an operator: write its module, add its table here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quaestor.query.expressions import (
    accumulators,
    arithmetic,
    arrays,
    comparison,
    conditional,
    conversion,
    date_parts,
    date_shift,
    date_spans,
    date_strings,
    iteration,
    literals,
    logic,
    objects,
    patterns,
    refused,
    rounding,
    selection,
    sets,
    strings,
    transcendental,
    trigonometry,
    trimming,
)
from quaestor.query.expressions.nodes import Operator

OPERATORS: Final[Mapping[str, Operator]] = {
    **accumulators.OPERATORS,
    **arithmetic.OPERATORS,
    **arrays.OPERATORS,
    **comparison.OPERATORS,
    **conditional.OPERATORS,
    **conversion.OPERATORS,
    **date_parts.OPERATORS,
    **date_shift.OPERATORS,
    **date_spans.OPERATORS,
    **date_strings.OPERATORS,
    **iteration.OPERATORS,
    **literals.OPERATORS,
    **logic.OPERATORS,
    **objects.OPERATORS,
    **patterns.OPERATORS,
    **refused.OPERATORS,
    **rounding.OPERATORS,
    **selection.OPERATORS,
    **sets.OPERATORS,
    **strings.OPERATORS,
    **transcendental.OPERATORS,
    **trigonometry.OPERATORS,
    **trimming.OPERATORS,
}
"""Every operator by name."""

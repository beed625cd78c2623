"""`$dateToString` and `$dateFromString`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from quaestor.query.expressions.date_format import ISO_FORMAT, PRINTED, READ, check_format, print_date, read_date
from quaestor.query.expressions.date_parts import zone_member
from quaestor.query.expressions.date_text import parse_date
from quaestor.query.expressions.dates import date, moment_ms
from quaestor.query.expressions.errors import ConversionError, ExpressionError
from quaestor.query.expressions.forms import compiled_member, members_of
from quaestor.query.expressions.kinds import is_nullish, is_string, kind_of
from quaestor.query.expressions.nodes import Compiled, Evaluate, Frame, Operator, Scope, folded
from quaestor.query.expressions.zones import zone_of


def _checked_format(name: str, form: Any, letters: str) -> None:
    if is_nullish(form):
        return
    if not is_string(form):
        raise ExpressionError(f"{name} requires that 'format' be a string, found: {kind_of(form)}")
    check_format(form, letters)


def _foldable(evaluate: Evaluate, operands: list[Compiled], scope: Scope) -> Compiled:
    compiled = Compiled(evaluate)
    return folded(compiled, scope) if all(part.is_constant for part in operands) else compiled


def _date_to_string(name: str, operand: Any, scope: Scope) -> Compiled:
    members = members_of(
        name,
        operand,
        required=("date",),
        optional=("format", "timezone", "onNull"),
        unknown="Unrecognized argument to {name}: {field}",
    )
    form_part = scope.compile(members.get("format", ISO_FORMAT))
    on_null_part = compiled_member({"onNull": None, **members}, "onNull", scope)
    date_part, zone_part = scope.compile(members["date"]), zone_member(members, scope)
    date_of, form_of, zone_value, on_null = (part.evaluate for part in (date_part, form_part, zone_part, on_null_part))

    def evaluate(frame: Frame) -> Any:
        value, form = date_of(frame), form_of(frame)
        _checked_format(name, form, PRINTED)
        local = zone_of(zone_value(frame))
        if is_nullish(value):
            return on_null(frame)
        if local is None or is_nullish(form):
            return None
        return print_date(moment_ms(value), form, local)

    return _foldable(evaluate, [date_part, form_part, zone_part, on_null_part], scope)


def _date_from_string(name: str, operand: Any, scope: Scope) -> Compiled:
    members = members_of(
        name,
        operand,
        required=("dateString",),
        optional=("format", "timezone", "onNull", "onError"),
        unknown="Unrecognized argument to {name}: {field}",
        not_object="{name} only supports an object as an argument, found: {kind}",
    )
    fields = ("dateString", "format", "timezone", "onNull", "onError")
    operands = [compiled_member(members, field, scope) for field in fields]
    text_of, form_of, zone_value, on_null, on_error = (part.evaluate for part in operands)
    has_format, has_zone, has_on_null, has_on_error = (field in members for field in fields[1:])

    def evaluate(frame: Frame) -> Any:
        text, form = text_of(frame), form_of(frame)
        _checked_format(name, form, READ)
        local = zone_of(zone_value(frame))
        if is_nullish(text):
            return on_null(frame) if has_on_null else None
        try:
            if not is_string(text):
                raise ConversionError(f"$dateFromString requires that 'dateString' be a string, found: {kind_of(text)}")
            if (has_zone and local is None) or (has_format and is_nullish(form)):
                return None
            return date(read_date(text, form, local) if has_format else parse_date(text, local))
        except ConversionError:
            if not has_on_error:
                raise
        return on_error(frame)

    return _foldable(evaluate, operands, scope)


OPERATORS: Final[Mapping[str, Operator]] = {
    "$dateToString": _date_to_string,
    "$dateFromString": _date_from_string,
}

"""Operators that mongod has and this engine does not evaluate: the query is widened, with the reason given here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from quaestor.errors import MalformedQueryError, UnsupportedQueryError
from quaestor.query.operators.contract import DocumentOperator, FieldOperator, Level, Parser

_INTERNAL_FIELD: Final = (
    "$_internalExprEq",
    "$_internalExprGt",
    "$_internalExprGte",
    "$_internalExprLt",
    "$_internalExprLte",
    "$_internalEqHash",
    "$_internalSchemaAllElemMatchFromIndex",
    "$_internalSchemaBinDataEncryptedType",
    "$_internalSchemaBinDataSubType",
    "$_internalSchemaEq",
    "$_internalSchemaFmod",
    "$_internalSchemaMatchArrayIndex",
    "$_internalSchemaMaxItems",
    "$_internalSchemaMaxLength",
    "$_internalSchemaMinItems",
    "$_internalSchemaMinLength",
    "$_internalSchemaObjectMatch",
    "$_internalSchemaType",
    "$_internalSchemaUniqueItems",
)
_INTERNAL_DOCUMENT: Final = (
    "$_internalBucketGeoWithin",
    "$_internalSchemaAllowedProperties",
    "$_internalSchemaCond",
    "$_internalSchemaMaxProperties",
    "$_internalSchemaMinProperties",
    "$_internalSchemaRootDocEq",
    "$_internalSchemaXor",
)


def _refuse_field(reason: str) -> Callable[[Parser, str, Any, Mapping[str, Any], Level], NoReturn]:
    def parse(parser: Parser, path: str, operand: Any, siblings: Mapping[str, Any], level: Level) -> NoReturn:
        raise UnsupportedQueryError(reason)

    return parse


def _refuse(reason: str) -> Callable[[Parser, Any, Level], NoReturn]:
    def parse(parser: Parser, operand: Any, level: Level) -> NoReturn:
        raise UnsupportedQueryError(reason)

    return parse


def _parse_where(parser: Parser, operand: Any, level: Level) -> NoReturn:
    if level is Level.ELEMENT:
        raise MalformedQueryError("$elemMatch cannot contain $where")
    raise UnsupportedQueryError("$where runs JavaScript in the database")


OPERATORS: Final = {
    **{name: FieldOperator(parse=_refuse_field(f"{name} is not evaluated")) for name in _INTERNAL_FIELD},
}
DOCUMENT_OPERATORS: Final = {
    "$where": DocumentOperator(parse=_parse_where),
    "$sampleRate": DocumentOperator(parse=_refuse("$sampleRate is random")),
    **{name: DocumentOperator(parse=_refuse(f"{name} is not evaluated")) for name in _INTERNAL_DOCUMENT},
}

"""Operators that mongod knows and this engine does not evaluate, each with its reason for `explain`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn

from quaestor.errors import UnsupportedQueryError
from quaestor.query.expressions.nodes import Operator, Scope

_REASONS: Final[Mapping[str, str]] = {
    "$rand": "$rand is different on every evaluation",
    "$sampleRate": "$sampleRate is different on every evaluation",
    "$function": "$function runs arbitrary code",
    "$accumulator": "$accumulator runs arbitrary code",
    "$where": "$where runs arbitrary code",
    "$meta": "$meta reads what the query plan computed, not the document",
    "$toHashedIndexKey": "$toHashedIndexKey is the server's own hash",
    "$createObjectId": "$createObjectId is different on every evaluation",
}
_NEWER: Final = (
    "$bitAnd",
    "$bitNot",
    "$bitOr",
    "$bitXor",
    "$deserializeEJSON",
    "$encStrContains",
    "$encStrEndsWith",
    "$encStrNormalizedEq",
    "$encStrStartsWith",
    "$hash",
    "$hexHash",
    "$median",
    "$minMaxScaler",
    "$percentile",
    "$replaceRegex",
    "$serializeEJSON",
    "$sigmoid",
    "$similarityCosine",
    "$similarityDotProduct",
    "$similarityEuclidean",
    "$subtype",
    "$toArray",
    "$toObject",
    "$toUUID",
)
"""Operators of servers newer than 6.0."""


def _refuse(name: str, operand: Any, scope: Scope) -> NoReturn:
    raise UnsupportedQueryError(_REASONS.get(name, f"{name} is newer than the expressions this engine knows"))


OPERATORS: Final[Mapping[str, Operator]] = dict.fromkeys((*_REASONS, *_NEWER), _refuse)

"""Limits of one request. Every bound is checked before the database is called."""

from __future__ import annotations

from dataclasses import dataclass, fields

from quaestor.errors import ConfigurationError
from quaestor.rest.operators import FILTER_OPERATORS


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one request.

    filter_bytes: size of `filter` and of `sort`, as text.
    filter_depth: nesting of objects and arrays.
    filter_nodes: number of names and values altogether.
    in_values: members of one `$in`, `$nin` or `$all`.
    regex_characters: length of one pattern.
    regexes: number of patterns.
    operators: the permitted filter operators.
    sort_fields, skip: upper bounds.
    default_limit: records of a list without `limit`.
    limit: upper bound of `limit`.
    response_bytes: BSON of all records of one list.
    body_bytes, body_depth: of a request's record.
    time_ms: time of all database calls of a request; after that 503 with Retry-After.
    require_preconditions: PUT, PATCH and DELETE of a record need If-Match or If-None-Match (428 otherwise).
    """

    filter_bytes: int = 8_192
    filter_depth: int = 12
    filter_nodes: int = 1_000
    in_values: int = 500
    regex_characters: int = 256
    regexes: int = 4
    operators: frozenset[str] = FILTER_OPERATORS
    sort_fields: int = 8
    skip: int = 10_000
    default_limit: int = 100
    limit: int = 1_000
    response_bytes: int = 16 * 1024 * 1024
    body_bytes: int = 1024 * 1024
    body_depth: int = 64
    time_ms: int = 2_000
    require_preconditions: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "int" and (not isinstance(value, int) or value < (0 if field.name == "skip" else 1)):
                raise ConfigurationError(f"Limits.{field.name} must be a positive integer, not {value!r}")
        if self.default_limit > self.limit:
            raise ConfigurationError(f"default_limit ({self.default_limit}) is above limit ({self.limit})")
        if self.filter_depth > 100 or self.body_depth > 100:
            raise ConfigurationError("MongoDB nests 100 levels: filter_depth and body_depth cannot be larger")

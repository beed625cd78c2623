"""Immutable copies of BSON values, and findings about their content.

The driver passes its listeners the very dicts that the handler holds. A handler may go on using them: add a clause to the
filter and query again, or turn `_id` into a string. Everything that outlives the call therefore has to be copied. The copy is
plain (dict, list) and has the same meaning for every codec. Values that only the client's own codec options could encode are
converted or reported.
"""

from __future__ import annotations

import datetime
import decimal
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from bson import DBRef, MaxKey, MinKey, ObjectId, Timestamp, decode
from bson.binary import Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from bson.regex import Regex

from quaestor.capture.clock_values import ClockValue, Form, of_datetime, of_number, of_text
from quaestor.model import Reason, Uncacheable
from quaestor.planning.moments import DeclaredTime, ms_of

UuidRepresentation = Callable[[], int | None]
"""Returns which of bson's UUID representations the running command uses; None if unknown."""

OPERATORS: Mapping[str, tuple[Uncacheable, str]] = {
    "$where": (Uncacheable.SERVER_SIDE_SCRIPT, "$where runs arbitrary code"),
    "$function": (Uncacheable.SERVER_SIDE_SCRIPT, "$function runs arbitrary code"),
    "$accumulator": (Uncacheable.SERVER_SIDE_SCRIPT, "$accumulator runs arbitrary code"),
    "$rand": (Uncacheable.RANDOM, "$rand"),
    "$sampleRate": (Uncacheable.RANDOM, "$sampleRate"),
}
"""Operators that no write can invalidate. https://www.mongodb.com/docs/manual/reference/operator/"""

NOW = (Uncacheable.CLOCK, "$$NOW is the time of the read")
VARIABLES: Mapping[str, tuple[Uncacheable, str]] = {
    "$$NOW": NOW,
    "$$CLUSTER_TIME": (Uncacheable.CLOCK, "$$CLUSTER_TIME is the time of the read"),
    "$$USER_ROLES": (Uncacheable.UNREADABLE, "$$USER_ROLES depends on the user of the request"),
}
"""Variables that no write can invalidate. https://www.mongodb.com/docs/manual/reference/aggregation-variables/"""

_IMMUTABLE = (
    bool, type(None), bytes, Binary, ObjectId, Decimal128, Regex, MinKey, MaxKey,
)  # fmt: skip
_NEVER_A_TIME = (decimal.Decimal, Enum, set, frozenset)
_NO_RECORD = bytes(8)
"""The end of an ObjectId from `from_datetime`; a record's own ends differently."""


@dataclass(slots=True)
class Findings:
    """Findings of a copy: properties of the value that matter for caching the response.

    reasons: why a response that used the value must not be cached.
    moments: every point in time in the value, to be judged with the time of the request: datetimes, and moments in ms since
        the epoch. The latter come from Timestamps, ISO 8601 strings and numbers of the size of epoch seconds or milliseconds.
    clock_values: every value that may follow the clock, judged in the same way.
    opaque: description of a value that only the client's codec can encode: the copy differs from mongod's view.
    declared: times that follow the clock in a declared way; the copy still holds them.
    """

    reasons: list[Reason] = field(default_factory=list)
    moments: list[datetime.datetime | int] = field(default_factory=list)
    clock_values: list[ClockValue] = field(default_factory=list)
    opaque: str | None = None
    declared: list[DeclaredTime] = field(default_factory=list)

    def instants(self) -> tuple[int, ...]:
        """Return the moments in ms since the epoch."""
        return tuple(moment if isinstance(moment, int) else ms_of(moment) for moment in self.moments)


def snapshot(value: Any, findings: Findings, uuid_representation: UuidRepresentation) -> Any:
    """Return a deep copy of a BSON value, in plain dicts and lists; O(size). Never raises on odd values: it reports them."""
    kind = type(value)
    if kind is str:
        _string(value, findings)
        return value
    if kind is int or kind is float:
        _number(value, findings)
        return value
    if kind is dict:
        return _mapping(value, findings, uuid_representation)
    if kind is list or kind is tuple:
        return [snapshot(item, findings, uuid_representation) for item in value]
    if kind is datetime.datetime:
        return _datetime(value, findings)
    if kind is ObjectId and value.binary.endswith(_NO_RECORD):
        seconds = int.from_bytes(value.binary[:4])
        findings.clock_values.append(ClockValue(Form.INSTANT, seconds * 1000, (0,), zoned=True))
    if isinstance(value, _IMMUTABLE):
        return value
    return _rare(value, findings, uuid_representation)


def _mapping(value: Mapping[str, Any], findings: Findings, uuid_representation: UuidRepresentation) -> dict[str, Any]:
    copy: dict[str, Any] = {}
    for key, item in value.items():
        if key in OPERATORS:
            findings.reasons.append(Reason(*OPERATORS[key]))
        copy[key] = snapshot(item, findings, uuid_representation)
    return copy


def _rare(value: Any, findings: Findings, uuid_representation: UuidRepresentation) -> Any:
    if isinstance(value, DeclaredTime):
        findings.moments.append(value)
        findings.declared.append(value)
        return value
    if isinstance(value, datetime.datetime):
        return _datetime(value, findings)
    if isinstance(value, RawBSONDocument):
        return _mapping(decode(value.raw), findings, uuid_representation)
    if isinstance(value, Code):
        findings.reasons.append(Reason(Uncacheable.SERVER_SIDE_SCRIPT, "JavaScript in the query"))
        return value
    if isinstance(value, DatetimeMS):
        findings.moments.append(int(value))
        findings.clock_values.append(ClockValue(Form.INSTANT, int(value)))
        return value
    if isinstance(value, Timestamp):
        findings.moments.append(value.time * 1000)
        findings.clock_values.append(ClockValue(Form.INSTANT, value.time * 1000, (0,), zoned=True))
        return value
    if isinstance(value, uuid.UUID):
        return _uuid(value, findings, uuid_representation)
    if isinstance(value, re.Pattern):
        return value
    if isinstance(value, DBRef):
        return _mapping(value.as_doc(), findings, uuid_representation)
    if isinstance(value, Mapping):
        return _mapping(value, findings, uuid_representation)
    if isinstance(value, list | tuple):
        return [snapshot(item, findings, uuid_representation) for item in value]
    # bson encodes a subclass of str, int or float as its base class.
    if isinstance(value, str):
        return snapshot(str.__str__(value), findings, uuid_representation)
    if isinstance(value, int):
        _number(value, findings)
        return value if isinstance(value, Int64) else int(value)
    if isinstance(value, float):
        _number(value, findings)
        return float(value)
    return _opaque(value, findings)


def _opaque(value: Any, findings: Findings) -> None:
    """Report a value of the client's own codec. The value may become a date close to now, unless its type rules that out."""
    name = type(value).__qualname__
    findings.opaque = f"a value of type {name}, which only the client's own codec encodes"
    if not isinstance(value, _NEVER_A_TIME):
        findings.reasons.append(Reason(Uncacheable.UNREADABLE, findings.opaque))


def _uuid(value: uuid.UUID, findings: Findings, uuid_representation: UuidRepresentation) -> Any:
    representation = uuid_representation()
    if not representation:
        findings.opaque = "a native UUID whose BSON representation is not known"
        return None
    return Binary.from_uuid(value, representation)


def _string(value: str, findings: Findings) -> None:
    if value.startswith("$$"):
        reason = VARIABLES.get(value.partition(".")[0])
        if reason is not None:
            findings.reasons.append(Reason(*reason))
        return
    clock_value = of_text(value)
    if clock_value is not None:
        findings.clock_values.append(clock_value)
    if len(value) >= 16 and value[4] == "-" and value[10] in "T ":
        _iso_string(value, findings)


def _datetime(value: datetime.datetime, findings: Findings) -> datetime.datetime:
    """Return naive UTC in milliseconds, as BSON stores it."""
    findings.moments.append(value)
    findings.clock_values.append(of_datetime(value))
    if value.microsecond % 1000:
        # BSON keeps milliseconds, so this value did not come from the database: it was computed from a clock.
        findings.reasons.append(
            Reason(
                Uncacheable.CLOCK, f"{value.isoformat()} is finer than the database's milliseconds: computed from now"
            )
        )
    if value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return value.replace(microsecond=value.microsecond // 1000 * 1000)


def _number(value: float, findings: Findings) -> None:
    clock_value = of_number(value)
    if clock_value is not None:
        findings.clock_values.append(clock_value)
    if 1e9 < value < 1e10:
        findings.moments.append(int(value * 1000))
    elif 1e12 < value < 1e13:
        findings.moments.append(int(value))


def _iso_string(value: str, findings: Findings) -> None:
    try:
        findings.moments.append(datetime.datetime.fromisoformat(value))
    except ValueError:
        return

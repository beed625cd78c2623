"""Structured field values (RFC 9651), as far as caches need them: a Dictionary of bare items, a List of Strings. Pure.

Parsed by http-sf, which is strict as the RFC demands: one mistake anywhere makes the whole field count as absent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from quaestor.first_use import FirstUse

if TYPE_CHECKING:
    import http_sf
else:
    http_sf = FirstUse("http_sf")


MAX_FIELD_BYTES: Final = 16_384
"""A longer field is not parsed."""


class Token(str):
    """A bare word, as opposed to a quoted string."""

    __slots__ = ()


Item = int | float | bool | str | Token | None
"""None: a kind of item that is not used here (byte sequence, date, display string, inner list)."""


def dictionary(field_lines: Sequence[bytes]) -> Mapping[str, Item] | None:
    """Return the members of a Dictionary, the last of each name; parameters are dropped. None: malformed, empty or too long."""
    members = _parsed(field_lines, "dictionary")
    return {name: _item(value) for name, (value, _) in members.items()} if members else None


def strings(field_lines: Sequence[bytes]) -> tuple[str, ...] | None:
    """Return the Strings of a List of Strings; parameters are dropped. None: malformed, too long, or a member is no String."""
    members = _parsed(field_lines, "list")
    if members is None or not all(isinstance(value, str) for value, _ in members):
        return None
    return tuple(value for value, _ in members)


def _parsed(field_lines: Sequence[bytes], kind: str) -> Any:
    """Return members with their parameters; None: malformed or too long."""
    field = b",".join(field_lines)
    if len(field) > MAX_FIELD_BYTES:
        return None
    try:
        return http_sf.parse(field, tltype=kind)
    except http_sf.StructuredFieldError:
        return None


def _item(value: Any) -> Item:
    if isinstance(value, http_sf.Token):
        return Token(value)
    if isinstance(value, Decimal):
        return float(value)
    return value if isinstance(value, int | str) else None

"""The audience of a request, given by the values of one of its fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ByField:
    """The `by` of cookie() and header().

    reads: the request field that it reads.
    values: returns the deciding values out of a request's fields; none: the request bypasses the cache.
    """

    reads: tuple[str, ...]
    values: Callable[[Sequence[tuple[bytes, bytes]]], list[bytes]]

    def __call__(self, scope: Mapping[str, Any]) -> str | None:
        """Return the values as text; None without any."""
        values = self.values(scope["headers"])
        return repr(values) if values else None

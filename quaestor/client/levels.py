"""Freshness that an answer has to have, of a whole client or of one request."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from quaestor.errors import ConfigurationError

EXTENSION = "quaestor"
"""Where a request carries its level (`extensions={"quaestor": ...}`), and its answer says where it comes from."""
FROM_CACHE = "from_cache"
"""Where an answer says whether its body comes from this client's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Consistency level of reads. Whatever is asked for beyond Δ costs answers that could have come from memory.

    delta_s: an answer is what the server would have answered at most so many seconds ago (Δ); 0: the server is always asked;
        None: what the server recommends, 60 until it has said so.
    read_your_writes: reads see what this client has written before, in queries too.
    monotonic_reads: of one URL no older version is answered after a newer one, unless the server itself answers it.
    causal: reads see all that answers to this client have shown before, whatever they were asked for.
    strong: no copy is used, and caches on the way are told to ask the server.

    Raises ConfigurationError for a delta_s that is no time.
    """

    delta_s: float | None = None
    read_your_writes: bool = True
    monotonic_reads: bool = True
    causal: bool = False
    strong: bool = False

    def __post_init__(self) -> None:
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if not isinstance(value, bool):
                raise ConfigurationError(f"{field.name} of a level must be True or False, not {value!r}")
        delta = self.delta_s
        if delta is None:
            return
        if isinstance(delta, bool) or not isinstance(delta, int | float) or not 0 <= delta < math.inf:
            raise ConfigurationError(f"delta_s must be a number of seconds, 0 or more, or None; not {delta!r}")


_NAMES = [field.name for field in fields(Level)]


def of_request(said: object, usual: Level) -> Level:
    """The level of one request.

    said: what its extension holds: nothing, a Level, or those of its fields that differ from the client's.
    usual: the client's.

    Raises ConfigurationError for anything else.
    """
    if said is None:
        return usual
    if isinstance(said, Level):
        return said
    if not isinstance(said, Mapping):
        raise ConfigurationError(f"extensions['{EXTENSION}'] must be a Level or a mapping of its fields, not {said!r}")
    unknown = [name for name in said if name not in _NAMES]
    if unknown:
        raise ConfigurationError(f"a level has no {unknown[0]!r}; it has {', '.join(_NAMES)}")
    return replace(usual, **said)

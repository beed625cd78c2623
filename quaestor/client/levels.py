"""Required freshness of answers, of a whole client or of one request."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from quaestor.errors import ConfigurationError

EXTENSION = "quaestor"
"""Name of the extension that carries a request's level (`extensions={"quaestor": ...}`), and an answer's source."""
FROM_CACHE = "from_cache"
"""Name of the extension that tells whether an answer's body comes from this client's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Consistency level of reads. Every demand beyond Δ costs answers that could have come from memory.

    delta_s: an answer equals the server's answer of at most so many seconds ago (Δ); 0: always ask the server;
        None: the server's recommendation, 60 until it is known.
    read_your_writes: reads see this client's own earlier writes, in queries too.
    monotonic_reads: no older version of a URL follows a newer one, unless the server itself answers it.
    causal: reads see everything that earlier answers to this client have shown, for any URL.
    strong: no copy is used, and caches on the way have to ask the server.

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
    """Return the level of one request.

    said: the content of its extension: nothing, a Level, or the fields that differ from the client's.
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

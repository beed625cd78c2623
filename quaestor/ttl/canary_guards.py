"""Absolute guards of a canary: shares that its results may not pass, whatever a trace predicts of them. Pure.

A prediction moves with the present parameters: where those are bad, a canary that is as bad lies within its band. A guard does
not move. The guard is broken when all of the canary's interval lies beyond it. Then the canary ends at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from quaestor.errors import ConfigurationError

NAMES: Final = ("stale_at_most", "hits_at_least")


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """Guards of one canary; None: no such guard. Raises ConfigurationError for what is no share.

    stale_at_most: share of the requests (0..1) that may be answered with something older.
    hits_at_least: share of the requests (0..1) that a copy has to be able to answer.
    """

    stale_at_most: float | None = None
    hits_at_least: float | None = None

    def __post_init__(self) -> None:
        for name in NAMES:
            value = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, int | float) or isinstance(value, bool) or not _is_share(value):
                raise ConfigurationError(f"{name} of a canary must be a share in 0..1, not {str(value)[:50]}")

    def __bool__(self) -> bool:
        return self != NO_GUARDS

    def plain(self) -> dict[str, float]:
        """The guards that there are, as plain data for JSON."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def check_prediction(self, chosen: Mapping[str, float]) -> None:
        """Refuse a canary of which its own trace predicts that it breaks a guard. Raises ConfigurationError.

        chosen: by figure, its share on the trace with the canary's parameters.
        """
        for figure, limit, more_is_worse in self.limits():
            share = chosen.get(figure)
            if share is not None and (share > limit if more_is_worse else share < limit):
                side, name = ("above", "stale_at_most") if more_is_worse else ("below", "hits_at_least")
                raise ConfigurationError(
                    f"no canary is begun: on the trace {figure} is {share:.4f} with these parameters, {side} the guard {name} of "
                    f"{limit:g}; choose other parameters, or another guard"
                )

    def limits(self) -> list[tuple[str, float, bool]]:
        """The guards that there are: figure, limit, and whether more of it is worse."""
        several = ("stale", self.stale_at_most, True), ("hits", self.hits_at_least, False)
        return [(figure, limit, worse) for figure, limit, worse in several if limit is not None]


NO_GUARDS: Final = Guards()


def guards_of(value: Any) -> Guards:
    """Guards of plain data. Raises ConfigurationError that says what is wrong with it."""
    if not isinstance(value, dict) or not value.keys() <= set(NAMES):
        raise ConfigurationError(f"guards of a canary are an object of {' and '.join(NAMES)}, and nothing else")
    return Guards(**value)


def _is_share(value: float) -> bool:
    return math.isfinite(value) and 0 <= value <= 1

"""Canary: other parameters for a share of the results first, with what is predicted of them. Pure.

A result belongs to it by the hash of its queries, so all processes agree, and all URLs that show the same do.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from quaestor.errors import ConfigurationError
from quaestor.ttl.canary_guards import NO_GUARDS, Guards
from quaestor.ttl.parameters import TtlParameters, decoded

MOST_SHARE: Final = 50
"""More than half is no canary: the rest is what it is compared with."""
_FARTHEST: Final = 100.0
_BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    "share": (1, MOST_SHARE),
    "after": (100, 10_000_000),
    "hold_ms": (0, 86_400_000),
    "delta_ms": (100, 3_600_000),
}


class Prediction(NamedTuple):
    """Prediction of one figure, from a recorded trace.

    low, high: of the logarithm of the odds ratio, canary to rest.
    now, chosen: the figure itself on that trace (0..1), with the parameters that count and with the canary's.
    """

    low: float
    high: float
    now: float
    chosen: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """Parameters under trial. Raises ConfigurationError for what cannot be.

    parameters: of the canary's results.
    share: of the results, in percent (1..50).
    predicted: by figure (see `canary_rule`).
    after: requests of the canary's results before it may be promoted (100..10,000,000).
    hold_ms: for so long a figure has to be worse than predicted before it is rolled back (0..86,400,000).
    delta_ms: what a client may be behind, as the prediction took it.
    promote: whether it is promoted without being asked.
    guards: shares that it may not pass, whatever is predicted.
    """

    parameters: TtlParameters
    share: int
    predicted: Mapping[str, Prediction]
    after: int = 2_000
    hold_ms: int = 60_000
    delta_ms: int = 10_000
    promote: bool = False
    guards: Guards = NO_GUARDS

    def __post_init__(self) -> None:
        check_terms({name: getattr(self, name) for name in (*_BOUNDS, "promote")})
        if not self.predicted:
            raise ConfigurationError("a canary needs a prediction to be judged by: try its parameters on a trace first")
        for name, prediction in self.predicted.items():
            if (
                not all(math.isfinite(value) and abs(value) <= _FARTHEST for value in prediction)
                or prediction.low > prediction.high
            ):
                raise ConfigurationError(f"the prediction of {name[:50]!r} is none: {str(tuple(prediction))[:100]}")
        self.guards.check_prediction({name: prediction.chosen for name, prediction in self.predicted.items()})

    def plain(self) -> dict[str, Any]:
        """The canary as plain data for JSON, without its guards: a process of an older version refuses what it does not know."""
        return {
            "parameters": json.loads(self.parameters.encoded()), "share": self.share, "after": self.after,
            "hold_ms": self.hold_ms, "delta_ms": self.delta_ms, "promote": self.promote,
            "predicted": {name: list(prediction) for name, prediction in self.predicted.items()},
        }  # fmt: skip


def check_terms(terms: Mapping[str, Any]) -> None:
    """Refuse terms of a canary that cannot be, whichever of them are there. Raises ConfigurationError."""
    if unknown := terms.keys() - {*_BOUNDS, "promote"}:
        raise ConfigurationError(f"unknown terms of a canary: {', '.join(sorted(unknown))[:200]}")
    for name, (low, high) in _BOUNDS.items():
        value = terms.get(name, low)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ConfigurationError(
                f"{name} of a canary must be a whole number in {low}..{high}, not {str(value)[:50]}"
            )
    if not isinstance(terms.get("promote", False), bool):
        raise ConfigurationError(f"promote must be true or false, not {str(terms['promote'])[:50]!r}")


def canary_of(value: Any, guards: Guards = NO_GUARDS) -> Canary:
    """Canary of plain data, with its guards. Raises ConfigurationError that says what is wrong with it."""
    known = {"parameters", "share", "after", "hold_ms", "delta_ms", "promote", "predicted"}
    if not isinstance(value, dict) or value.keys() != known:
        raise ConfigurationError(f"a canary is an object of {', '.join(sorted(known))}, and nothing else")
    try:
        predicted = {str(name): Prediction(*map(float, numbers)) for name, numbers in value["predicted"].items()}
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise ConfigurationError(f"the predictions of a canary cannot be read: {str(error)[:100]}") from error
    return Canary(
        parameters=decoded(json.dumps(value["parameters"])), predicted=predicted, guards=guards,
        **{name: value[name] for name in known - {"parameters", "predicted"}},
    )  # fmt: skip


def result_of(hashes: Iterable[int]) -> int:
    """Number of a result, out of the hashes of its queries, in whatever order they were read."""
    combined = 0
    for hashed in set(hashes):
        combined ^= hashed
    return combined


def in_canary(result: int, share: int) -> bool:
    """Whether a result belongs to a canary of so many percent. Not by the bits that choose a query partition."""
    return (result >> 16) % 100 < share

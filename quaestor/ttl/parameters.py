"""Parameters of lifetime estimation: which estimator with which numbers, for each collection or class of its queries; as JSON,
checked. Pure.

One object for all that is not named, and one for each kind that is. A named kind inherits from the object for all.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final

from quaestor.errors import ConfigurationError
from quaestor.settings import LifetimeSettings
from quaestor.ttl.query_classes import collections_of

ESTIMATORS: Final = ("lifetimes", "static", "age", "dynamic")
MOST_KINDS: Final = 64
LONGEST_MS: Final = 36_500 * 86_400_000
BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    "quantile": (1e-6, 1 - 1e-6),
    "alpha": (0.0, 0.999),
    "exponent": (0.25, 4.0),
    "ttl_min_ms": (1, LONGEST_MS),
    "ttl_max_ms": (1, LONGEST_MS),
    "static_ms": (1, LONGEST_MS),
    "fraction": (0.001, 1.0),
    "false_positives": (0.0, 0.999),
    "invalidations_hz": (0.0, 1e9),
}
"""Of the numbers of a tuning, both ends included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Tuning of the estimator of one kind of result. Raises ConfigurationError for what cannot be.

    estimator: "lifetimes" (see `estimator`), or one of the baselines "static", "age", "dynamic".
    quantile: share of the results that change before their lifetime ends (0..1, exclusive); of "lifetimes" and "dynamic".
    alpha: weight of the past when a lifetime is observed (0..1, exclusive of 1); of "lifetimes".
    exponent: of the mean lifetime; of "lifetimes". 1: each query has the quantile. Above 1: the kind as a whole has the
        quantile; results with few writes get longer lifetimes, results with many writes shorter ones.
    daily: whether the writes follow the time of day; of "lifetimes".
    ttl_min_ms, ttl_max_ms: no lifetime lies outside these.
    static_ms: the lifetime of "static".
    fraction: share of the age (0..1); of "age".
    false_positives: budget of the sketch's false positives (0..1); 0: without limit.
    invalidations_hz: budget of the invalidations a second that reach copies outside; 0: without limit.
    """

    estimator: str = "lifetimes"
    quantile: float = 0.5
    alpha: float = 0.8
    exponent: float = 1.0
    daily: bool = False
    ttl_min_ms: int = 1_000
    ttl_max_ms: int = 3_600_000
    static_ms: int = 60_000
    fraction: float = 0.1
    false_positives: float = 0.0
    invalidations_hz: float = 0.0

    def __post_init__(self) -> None:
        if self.estimator not in ESTIMATORS:
            raise ConfigurationError(f"estimator {str(self.estimator)[:50]!r} is none of {', '.join(ESTIMATORS)}")
        for name, (low, high) in BOUNDS.items():
            value = getattr(self, name)
            if not _is_number(value) or not low <= value <= high:
                raise ConfigurationError(f"{name} must lie in {low}..{high}, not {str(value)[:50]}")
        for name in ("ttl_min_ms", "ttl_max_ms", "static_ms"):
            if not isinstance(getattr(self, name), int):
                raise ConfigurationError(f"{name} must be a whole number of ms, not {getattr(self, name)}")
        if not isinstance(self.daily, bool):
            raise ConfigurationError(f"daily must be true or false, not {str(self.daily)[:50]!r}")
        if self.ttl_min_ms > self.ttl_max_ms:
            raise ConfigurationError(f"ttl_max_ms ({self.ttl_max_ms}) is below ttl_min_ms ({self.ttl_min_ms})")


@dataclass(frozen=True, slots=True, kw_only=True)
class TtlParameters:
    """Parameters of all kinds.

    default: for what is not named.
    kinds: by collection (`shop.items`) or class of its queries (`shop.items:find`; see query_classes); several that one answer
        was read from: sorted, a space between. Of a class and its collection the class counts.
    """

    default: Tuning = field(default_factory=Tuning)
    kinds: Mapping[str, Tuning] = field(default_factory=dict)

    def of(self, kind: str) -> Tuning:
        """Tuning of one kind: its own, that of its collections, or the default."""
        if not self.kinds:
            return self.default
        own = self.kinds.get(kind)
        return self.kinds.get(collections_of(kind), self.default) if own is None else own

    def encoded(self) -> str:
        """The parameters as JSON."""
        return json.dumps(
            {"default": asdict(self.default), "kinds": {kind: asdict(tuning) for kind, tuning in self.kinds.items()}}
        )


def tuning_of(settings: LifetimeSettings) -> Tuning:
    """The tuning that counts until another one is published."""
    return Tuning(ttl_min_ms=settings.ttl_min_ms, ttl_max_ms=settings.ttl_max_ms, quantile=settings.ttl_quantile)


def decoded(text: str | bytes) -> TtlParameters:
    """Parameters of a JSON text. Raises ConfigurationError that says what is wrong with it."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"the parameters are no JSON ({error}); write them with `quaestor ttl fit`") from error
    if not isinstance(value, dict) or set(value) - {"default", "kinds"}:
        raise ConfigurationError("the parameters must be an object with 'default' and 'kinds', and nothing else")
    kinds = value.get("kinds", {})
    if not isinstance(kinds, dict) or len(kinds) > MOST_KINDS:
        raise ConfigurationError(f"'kinds' must be an object of at most {MOST_KINDS} collections")
    default = _tuning(value.get("default", {}), Tuning(), "default")
    return TtlParameters(
        default=default, kinds={kind: _tuning(fields_of_kind, default, kind) for kind, fields_of_kind in kinds.items()}
    )


_NAMES: Final = frozenset(parameter.name for parameter in fields(Tuning))


def _tuning(value: Any, base: Tuning, what: str) -> Tuning:
    if not isinstance(value, dict):
        raise ConfigurationError(f"the parameters of {what[:100]!r} must be an object")
    unknown = sorted(set(value) - _NAMES)
    if unknown:
        raise ConfigurationError(f"{what[:100]!r} has unknown parameters {', '.join(unknown)[:200]}")
    try:
        return replace(base, **value)
    except ConfigurationError as error:
        raise ConfigurationError(f"{what[:100]!r}: {error}") from error


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)

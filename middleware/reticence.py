"""Reticence: how far an answer that was not stored forbids others to keep it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto

from quaestor.model import Uncacheable
from quaestor.read_path.doorkeeper import REASON as DOORKEEPER
from quaestor.read_path.freshness import STORABLE_STATUSES


class Reticence(Enum):
    """How far an answer that was not stored forbids others to keep it."""

    UNTOUCHED = auto()
    """The handler's fields stand: an error, an answer that forbids sharing itself, or one without reads."""
    UNKNOWN = auto()
    """Its reads may have escaped the capture: the handler's fields stand; without any, `no-cache`."""
    UNSTORED = auto()
    """Storable, and not stored this once: `private, no-cache`, whatever the handler's fields are."""
    PERSONAL = auto()
    """Made for one user: `private, no-cache`, unless the handler set Cache-Control."""
    FORBIDDEN = auto()
    """Shows records whose change would go unnoticed: `no-store`, whatever the handler's fields are."""


_HANDLER_SAID = frozenset({"status", "bypass", "no-store", "private", "no-cache", "partial"})
_PERSONAL = frozenset({"authorization", "cookie", "credentials", "set-cookie", "private-route", "scope"})
_UNKNOWN = frozenset({Uncacheable.NO_READS.value, Uncacheable.UNCAPTURED.value})
_NOT_OURS = frozenset({Uncacheable.NO_READS.value})
_SHOWS_RECORDS = frozenset(
    {"refused", "lagging", "died", "failed", "lifetime", *(reason.value for reason in Uncacheable)}
)


def reticence(status: int, reasons: Iterable[str], *, explicit: bool = False) -> Reticence:
    """Return the reticence for an answer with this status that was not stored for these reasons.

    explicit: without evidence that the answer shows records, the origin's fields stand.
    """
    reasons = set(reasons)
    if DOORKEEPER in reasons:
        return Reticence.UNSTORED
    if explicit and (Uncacheable.NO_READS.value in reasons or reasons.isdisjoint(_SHOWS_RECORDS)):
        return Reticence.UNTOUCHED
    if status not in STORABLE_STATUSES or reasons & _HANDLER_SAID:
        return Reticence.UNTOUCHED
    if reasons & _PERSONAL:
        return Reticence.PERSONAL
    if reasons == _NOT_OURS:
        return Reticence.UNTOUCHED
    if Uncacheable.NO_READS.value in reasons and reasons <= _UNKNOWN:
        return Reticence.UNKNOWN
    return Reticence.FORBIDDEN

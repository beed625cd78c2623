"""Reticence on answers that were not stored: the amount that is said of who may keep them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto

from quaestor.model import Uncacheable
from quaestor.read_path.doorkeeper import REASON as DOORKEEPER
from quaestor.read_path.freshness import STORABLE_STATUSES


class Reticence(Enum):
    """The amount that is said on an answer that was not stored, about who may keep it."""

    UNTOUCHED = auto()
    """The handler's word stands: an error, it said itself that nobody may share it, or it read nothing."""
    UNKNOWN = auto()
    """It may depend on reads that nobody listened to: the handler's word stands; if it said nothing, `no-cache`."""
    UNSTORED = auto()
    """It could have been stored, and was not this once: `private, no-cache`, whatever the handler said."""
    PERSONAL = auto()
    """Made for one user: `private, no-cache` unless the handler said something."""
    FORBIDDEN = auto()
    """It shows records, and nobody would learn of their change: `no-store`, whatever the handler said."""


_HANDLER_SAID = frozenset({"status", "bypass", "no-store", "private", "no-cache", "partial"})
_PERSONAL = frozenset({"authorization", "cookie", "credentials", "set-cookie", "private-route", "scope"})
_UNKNOWN = frozenset({Uncacheable.NO_READS.value, Uncacheable.UNCAPTURED.value})
_NOT_OURS = frozenset({Uncacheable.NO_READS.value})
_SHOWS_RECORDS = frozenset(
    {"refused", "lagging", "died", "failed", "lifetime", *(reason.value for reason in Uncacheable)}
)


def reticence(status: int, reasons: Iterable[str], *, explicit: bool = False) -> Reticence:
    """The amount that is said on an answer with this status that was not stored for these reasons.

    explicit: without evidence that it shows records, the origin's word stands.
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

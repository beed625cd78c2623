"""Notices to subscribers, between events: whether every change has an event, and whether the result is up to date."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from quaestor.model import Version


class DeliveryMode(StrEnum):
    """Mode of delivery of a result's changes, while the grid runs without a break."""

    EXACT = "exact"
    """Each write that changes the result has an event, once and in order, except after `Resynchronized` or a full result.
    Every collection of the query records post-images."""
    STATE = "state"
    """Records are looked up after their updates. Updates in quick succession may share one event, or have none if the last
    undoes the first. After the last write the result is right."""
    RECOMPUTED = "recomputed"
    """The query cannot be maintained. After writes that may concern it, the result is read again, at most once in the poll
    interval; events are the difference. After the last write the result is right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalled:
    """The result stands still: for longer than the staleness bound the grid has not proved it up to date. Ends with `Resumed`.

    since_ms: writes that the database performed before then are contained; later writes are unknown.
    """

    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """The result goes on after it stood still. Events before or after this notice report the changes in between.

    since_ms: of the `Stalled`.
    fresh_as_of_ms: writes that the database performed before then are contained now.
    """

    since_ms: int
    fresh_as_of_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryChanged:
    """The delivery mode changes from now on: post-images were switched on or off, or one had been lost.

    lacking: the collections without post-images, if known.
    """

    delivery: DeliveryMode
    lacking: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resynchronized:
    """The result was read anew, because the writes in between are not known one by one. Sent where delivery is exact.

    A part of the grid began anew, or a window had used up the records that it keeps behind its end.

    events: number of the following events; together they are the difference.
    """

    events: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Position of a result behind one change or one full result. Subscribers that ask for steps receive one after each.

    epoch, sequence: of the change, equal in every process that follows the query.
    version: of the newest write that the result may contain.
    """

    epoch: str
    sequence: int
    version: Version


Notice = Stalled | Resumed | DeliveryChanged | Resynchronized | Step


def delivery_of(lacking: tuple[str, ...] | None) -> DeliveryMode:
    """Delivery mode of a query.

    lacking: its collections without post-images; None: not known.
    """
    return DeliveryMode.EXACT if lacking == () else DeliveryMode.STATE


def remedy(lacking: Iterable[str]) -> str:
    """Reason why a query cannot be followed exactly, with the commands that mend it."""
    pairs = [namespace.partition(".")[::2] for namespace in lacking]
    commands = "; ".join(
        f"db.getSiblingDB({database!r}).runCommand({{collMod: {name!r}, changeStreamPreAndPostImages: {{enabled: true}}}})"
        for database, name in pairs
    )
    return (
        "changes can only be told one by one if the collections record post-images; "
        + (f"run {commands}" if commands else "which of them do is not known, ask again later")
        + ", or follow with delivery='state'"
    )

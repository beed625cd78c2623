"""Caches that are wrong on purpose, to show that the check can fail: the product with one of its rules taken out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from quaestor import Quaestor
from quaestor.capture import recorder
from quaestor.invalidation.registry.notification_handler import NotificationHandler
from quaestor.model import Invalidated, Notification


def without_fields() -> dict[str, Any]:
    """A key that leaves out what the handler asked for."""
    return {"ignored_fields": ("x-org-id", "x-shop", "accept-language", "user-agent", "anything")}


def without_invalidations() -> dict[str, Any]:
    """Entries that are kept over writes."""
    take = NotificationHandler.take

    def deaf(self: NotificationHandler, notifications: Sequence[Notification], *, complete: bool) -> None:
        take(
            self,
            [notification for notification in notifications if not isinstance(notification, Invalidated)],
            complete=complete,
        )

    NotificationHandler.take = deaf  # type: ignore[method-assign]
    return {}


def without_own_writes() -> dict[str, Any]:
    """Answers to writes that leave before these have taken effect."""
    return {"read_your_writes_ms": 0}


def without_clock() -> dict[str, Any]:
    """Times are constants."""
    recorder.clock_values.valid_until_ms = lambda *args, **options: None  # type: ignore[attr-defined]
    return {}


MUTATIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "fields": without_fields, "invalidations": without_invalidations, "own writes": without_own_writes, "clock": without_clock,
}  # fmt: skip


def mutated(name: str) -> Quaestor:
    """A Quaestor with this mutation, and nothing that would notice it; with none if it is empty."""
    if not name:
        return Quaestor.from_env()
    return Quaestor.from_env(verification=False, **MUTATIONS[name]())

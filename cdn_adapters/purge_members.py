"""Targets as members of an outbox's queue: a phase, one digit, and the target. Pure.

Phase 0 is the purge of an invalidation. The later phases follow a purge that was done, each in its time. One removes answers that
were on their way to the place during the purge. The other removes answers from a cache above it that was purged later.
"""

from __future__ import annotations

from typing import Final

from quaestor.cdn_adapters.place import Target

ASKED: Final = "0"
ON_ITS_WAY: Final = "1"
TIERS: Final = "2"


def member(target: Target, phase: str = ASKED) -> str:
    """Return the member that stands for a target."""
    return f"{phase}{target.by} {target.value}"


def target_of(text: str) -> Target:
    """Return the target that a member stands for."""
    by, _, value = text[1:].partition(" ")
    return Target(by, value)

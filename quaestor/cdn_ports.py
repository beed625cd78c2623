"""Ports by which CDN adapters report on themselves: findings, the facts for their judgement, and reports."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable


class Level(StrEnum):
    """Levels of a finding."""

    OK = "ok"
    WARN = "warn"
    """Right, but of less use than it could be."""
    BLOCK = "block"
    """Purges have no effect: nothing may rely on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Finding about one CDN.

    sentence: the finding, and the remedy.
    """

    level: Level
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts about an application that decide whether a CDN suits it.

    lives_ms: longest life of copies outside.
    tags: tags of an answer, as every answer has them: its own first, its deployment's last.
    """

    lives_ms: int
    tags: tuple[str, ...]


@runtime_checkable
class DiagnosedCdn(Protocol):
    """CDN adapter that knows the abilities of its CDN."""

    async def diagnose(self, facts: Facts) -> list[Finding]:
        """Findings; none: all is well. Raises StoreError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CdnReport:
    """Report of one place of a CDN, for `quaestor status`.

    place: name of its queue.
    state: ok, throttled, dark or over-budget.
    open: purges that it has not acknowledged.
    dead: purges that it has refused for good.
    stale_s: longest time for which it may still serve the answers that open purges concern; None: not known.
    """

    place: str
    state: str
    open: int
    dead: int
    stale_s: float | None


@runtime_checkable
class ReportingCdn(Protocol):
    """CDN adapter that knows how its places accept purges."""

    def reports(self) -> list[CdnReport]:
        """Report of each place, about a second old. No I/O."""

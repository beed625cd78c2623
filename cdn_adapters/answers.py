"""Answers of a place to a purge request. What may be tried again as it is (no answer, 5xx) is a retryable CdnError instead."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Pace that a provider's own rate fields ask for (X-RateLimit-*, RateLimit).

    remaining: requests that are left before it refuses.
    reset_s: seconds until there are more.
    """

    remaining: float
    reset_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """Success: the purge is effective within `Capabilities.effective_within_ms`."""

    pace: Pace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """Acceptance: the completion of the purge is to be asked for.

    ticket: what it is asked by: `Connection.completed`.
    ask_after_s: not before then.
    """

    ticket: str
    ask_after_s: float = 1.0
    pace: Pace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """Refusal of a purge, which would be refused again.

    reason: for people, without a secret.
    place_wide: it is not about these targets (credentials, zone, plan): all purges are kept until it is mended. Otherwise
        the targets are tried one by one, and those that are refused alone become dead letters.
    """

    reason: str
    place_wide: bool = False
    pace: Pace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttled:
    """Refusal of a purge because there were too many.

    retry_after_s: what the provider said; None: nothing.
    """

    retry_after_s: float | None = None
    reason: str = "too many purges"
    pace: Pace | None = None


Answer = Delivered | Accepted | Rejected | Throttled

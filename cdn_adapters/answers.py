"""Answers of a place to a purge request. A failure that a retry may mend (no answer, 5xx) is a retryable CdnError instead."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Pace that a provider's rate fields ask for (X-RateLimit-*, RateLimit).

    remaining: requests left before the provider refuses.
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
    """Acceptance: the sender polls for the completion of the purge.

    ticket: argument of `Connection.completed`.
    ask_after_s: pause before the first poll.
    """

    ticket: str
    ask_after_s: float = 1.0
    pace: Pace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """Refusal of a purge; the same purge would be refused again.

    reason: for people, without a secret.
    place_wide: the refusal is not about these targets but about credentials, zone or plan. All purges are kept until it is
        mended.
        Otherwise the targets are tried one by one, and targets that are refused alone become dead letters.
    """

    reason: str
    place_wide: bool = False
    pace: Pace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttled:
    """Refusal of a purge because there were too many.

    retry_after_s: pause that the provider named; None: it named none.
    """

    retry_after_s: float | None = None
    reason: str = "too many purges"
    pace: Pace | None = None


Answer = Delivered | Accepted | Rejected | Throttled

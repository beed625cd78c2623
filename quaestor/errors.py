"""What can go wrong, by who is to blame: the configuration, the query, or a part we depend on.

Every message says what was wrong, with which value, and what to do. Driver exceptions are translated at the adapter
that met them and chained, so nothing outside an adapter names a driver's exception.
"""

from __future__ import annotations


class QuaestorError(Exception):
    """The root: catching it catches everything that Quaestor raises on purpose."""


class ConfigurationError(QuaestorError):
    """A setting is missing, contradictory or out of range; nothing was started."""


class QueryError(QuaestorError):
    """A query could not be understood."""


class MalformedQueryError(QueryError):
    """mongod would refuse this filter, sort or pipeline too; the message carries the reason."""


class UnsupportedQueryError(QueryError):
    """mongod accepts it, this engine does not match it exactly: the dependency is widened instead.

    reason: a short sentence for `explain`, the metric and the debug header.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class UncertainMatchError(QueryError):
    """Whether this record matches this query could not be decided in the time allowed: treat it as matching."""


class DependencyError(QuaestorError):
    """A part outside this process failed.

    retryable: whether the same call may succeed later without anyone mending anything by hand.
    retry_after_s: when to try again, if the part said so.
    """

    def __init__(self, message: str, *, retryable: bool = True, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after_s = retry_after_s


class StoreError(DependencyError):
    """The response store or the dependency index did not answer."""


class SketchError(DependencyError):
    """The Cache Sketch's backing server did not answer."""


class EventLayerError(DependencyError):
    """A pipeline could not be appended to or read."""


class EventLayerResetError(EventLayerError):
    """The event layer lost its contents (it was restarted without its data): whatever was in flight is gone.

    Whoever meets it treats every cached result as possibly stale and starts over.
    """


class DatabaseError(DependencyError):
    """MongoDB did not answer, or cannot serve change streams."""


class RegistrationRefusedError(DependencyError):
    """The grid did not activate a registration in time, or refused it; the response is served but not cached.

    reason: one of metrics.REASONS.
    """

    reason = "refused"


class PartitionLagsError(RegistrationRefusedError):
    """The grid does not keep up with a query partition: nothing of it is cached until it has caught up."""

    reason = "lagging"


class SubscriptionError(DependencyError):
    """A query cannot be followed (any more); the message says why. retryable: subscribing again may succeed."""


class NotCacheableError(QuaestorError):
    """What was read can go stale without a write that anyone could see.

    reasons: values of `model.Uncacheable`.
    """

    def __init__(self, reasons: tuple[str, ...]) -> None:
        super().__init__(f"not cacheable: {', '.join(reasons)}")
        self.reasons = reasons


class CdnError(DependencyError):
    """A CDN did not accept a purge."""

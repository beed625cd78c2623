"""Errors, by who is to blame: the configuration, the query, or a part we depend on.

Every message says what was wrong, with which value, and what to do. Driver exceptions are translated at the adapter
that met them and chained, so nothing outside an adapter names a driver's exception.
"""

from __future__ import annotations


class QuaestorError(Exception):
    """Root of all errors: catching it catches everything that Quaestor raises on purpose."""


class ConfigurationError(QuaestorError):
    """Error of the configuration: a setting is missing, contradictory or out of range; nothing was started."""


class QueryError(QuaestorError):
    """Error of a query: it could not be understood."""


class MalformedQueryError(QueryError):
    """Error of a query that mongod would refuse too: its filter, sort or pipeline; the message carries the reason."""


class UnsupportedQueryError(QueryError):
    """Error of a query that mongod accepts and this engine does not match exactly: the dependency is widened instead.

    reason: a short sentence for `explain`, the metric and the debug header.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class UncertainMatchError(QueryError):
    """Error of a match that could not be decided in the time allowed: treat the record as matching the query."""


class DependencyError(QuaestorError):
    """Failure of a part outside this process.

    retryable: whether the same call may succeed later without anyone mending anything by hand.
    retry_after_s: when to try again, if the part said so.
    """

    def __init__(self, message: str, *, retryable: bool = True, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after_s = retry_after_s


class StoreError(DependencyError):
    """Failure of the response store or the dependency index: it did not answer."""


class SketchError(DependencyError):
    """Failure of the Cache Sketch: its backing server did not answer."""


class EventLayerError(DependencyError):
    """Failure of the event layer: a pipeline could not be appended to or read."""


class EventLayerResetError(EventLayerError):
    """Loss of the event layer's contents (it was restarted without its data): whatever was in flight is gone.

    Its receiver treats every cached result as possibly stale and starts over.
    """


class DatabaseError(DependencyError):
    """Failure of MongoDB: it did not answer, or cannot serve change streams."""


class RegistrationRefusedError(DependencyError):
    """Refusal of a registration: the grid did not activate it in time, or refused it. The response is served but not cached.

    reason: one of vocabularies.REASONS.
    """

    reason = "refused"


class PartitionLagsError(RegistrationRefusedError):
    """Refusal because the grid does not keep up with a query partition: nothing of it is cached until it has caught up."""

    reason = "lagging"


class SubscriptionError(DependencyError):
    """Failure of a subscription: the query cannot be followed (any more); the message says why.

    retryable: subscribing again may succeed.
    """


class NotCacheableError(QuaestorError):
    """Refusal of reads that can go stale without a write that anyone could see.

    reasons: values of `model.Uncacheable`.
    """

    def __init__(self, reasons: tuple[str, ...]) -> None:
        super().__init__(f"not cacheable: {', '.join(reasons)}")
        self.reasons = reasons


class CdnError(DependencyError):
    """Failure of a CDN: it did not accept a purge."""

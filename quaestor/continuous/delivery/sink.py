"""Sinks: receivers of results. Each delivers a whole batch, or raises a DeliveryError with a reason."""

from __future__ import annotations

from typing import Protocol

from quaestor.continuous.delivery.batch import ResultBatch
from quaestor.errors import DependencyError


class DeliveryError(DependencyError):
    """Failure of one delivery: the receiver has not confirmed the batch, and may have it nevertheless.

    reason: one of vocabularies.DELIVERY_FAILURES.
    """

    def __init__(
        self, message: str, *, reason: str, retryable: bool = True, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, retryable=retryable, retry_after_s=retry_after_s)
        self.reason = reason


class Sink(Protocol):
    """Receiver of results."""

    @property
    def name(self) -> str:
        """Address of the receiver, without secrets: https://..., mailto:..., file:..."""
        ...

    @property
    def kind(self) -> str:
        """One of vocabularies.SINKS."""
        ...

    async def deliver(self, batch: ResultBatch) -> None:
        """Deliver a batch. Returns once the receiver has confirmed it.

        A repeated delivery of the same batch has the same keys. Raises DeliveryError within the sink's own time limit.
        """
        ...

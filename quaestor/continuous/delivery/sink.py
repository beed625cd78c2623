"""Sinks: receivers of results. Each delivers a whole batch, or raises a DeliveryError with a reason."""

from __future__ import annotations

import hashlib
import re
from typing import Final, Protocol

from quaestor.continuous.delivery.batch import ResultBatch
from quaestor.errors import DependencyError

_URL: Final = re.compile(r"(https?)://([^/?#\\]*)", re.IGNORECASE)
_SHOWN: Final = re.compile(r"https?://[^/?#\\@]*/#[0-9a-f]{8}", re.IGNORECASE)


def shown(address: str) -> str:
    """Return an address without the secrets that a URL may hold: scheme, host and a short hash of the whole."""
    url = _URL.match(address)
    if url is None or _SHOWN.fullmatch(address):
        return address
    host = url[2].rpartition("@")[2]
    return f"{url[1]}://{host}/#{hashlib.sha256(address.encode()).hexdigest()[:8]}"


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
        """Address of the receiver: https://..., mailto:..., file:... A URL may hold a secret: `shown` leaves it out."""
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

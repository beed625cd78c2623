"""Webhooks: batches of results as signed HTTP requests (www.standardwebhooks.com)."""

from __future__ import annotations

import time
from collections.abc import Callable

from pydantic import SecretStr

from quaestor.continuous.delivery.batch import ResultBatch, moment, to_json
from quaestor.continuous.delivery.networks import Networks
from quaestor.continuous.delivery.signed_requests import SignedRequests
from quaestor.webhook_signatures import Signer


class WebhookSink:
    """Receiver of signed HTTP requests. Implements Sink.

    url: https, or http within the allowed private networks.
    key: `whsec_` and base64 of 24 to 64 bytes, shared with the receiver.
    timeout_s, clock: see SignedRequests.

    `webhook-id` is the batch's key.
    """

    kind = "webhook"

    def __init__(
        self,
        url: str,
        *,
        key: SecretStr,
        networks: Networks,
        timeout_s: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = url
        signer = Signer(key, name="the setting webhook_key")
        self._requests = SignedRequests(url, signer=signer, networks=networks, timeout_s=timeout_s, clock=clock)

    async def deliver(self, batch: ResultBatch) -> None:
        """See Sink."""
        await self._requests.post(batch.key, _body(batch), {})


def _body(batch: ResultBatch) -> str:
    rows = [{"key": key, "row": row} for key, row in batch.keyed_rows()]
    data = {"query": batch.query, "run": batch.run, "instant": batch.instant, "rows": rows}
    return to_json({"type": "continuous.results", "timestamp": moment(batch.instant), "data": data})

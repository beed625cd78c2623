"""Sinks of brokers: a notification, a message with results, or records for the feed of another instance."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from quaestor.channels.brokers.registry import Broker, Kind
from quaestor.channels.brokers.wire import DATAVERSE, feed_body, pull_body, push_body
from quaestor.continuous.delivery.batch import ResultBatch
from quaestor.continuous.delivery.networks import Networks
from quaestor.continuous.delivery.signed_requests import SignedRequests

PUSH: Final = "push"
PULL: Final = "pull"


def address_of(broker: str, *, push: bool) -> str:
    """Return the address of a broker as a sink."""
    return f"broker:{broker}/{PUSH if push else PULL}"


class BrokerSink:
    """Broker of a channel. Implements Sink.

    push: whether the broker receives results; otherwise it receives notifications.
    dataverse: name of this instance's database, in messages.

    A row of a batch has `subscriptions` and `record`. The key of the batch is `webhook-id` and `idempotency-key`.
    """

    kind = "broker"

    def __init__(
        self,
        broker: Broker,
        *,
        push: bool,
        networks: Networks,
        timeout_s: float,
        dataverse: str = DATAVERSE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = address_of(broker.name, push=push)
        self._broker = broker
        self._push = push
        self._dataverse = dataverse
        self._requests = SignedRequests(
            broker.url, signer=broker.signer, networks=networks, timeout_s=timeout_s, clock=clock
        )

    async def deliver(self, batch: ResultBatch) -> None:
        """See Sink."""
        fields = {"idempotency-key": f'"{batch.key}"'}
        if not self._push:
            subscriptions = (identity for row in batch.rows for identity in row["subscriptions"])
            body = pull_body(batch.query, batch.run, subscriptions, dataverse=self._dataverse)
        elif self._broker.kind is Kind.BAD:
            fields["content-type"] = "application/x-ndjson"
            body = feed_body(batch.rows)
        else:
            body = push_body(batch.query, batch.run, batch.rows, dataverse=self._dataverse)
        await self._requests.post(batch.key, body, fields)

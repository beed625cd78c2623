"""Delivery to brokers: the results of runs that a broker has not received yet, in order, at least once."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from quaestor.channels.brokers.acknowledgements import Acknowledgements
from quaestor.channels.brokers.registry import Broker, Brokers
from quaestor.channels.brokers.sinks import PUSH, BrokerSink, address_of
from quaestor.channels.brokers.wire import DATAVERSE
from quaestor.channels.pages import ResultPages, RunPage
from quaestor.clock import Clock, system_clock
from quaestor.continuous.delivery.batch import ResultBatch
from quaestor.continuous.delivery.courier import Courier, Replayed
from quaestor.continuous.delivery.dead_letters import DeadLetters
from quaestor.continuous.delivery.networks import Networks
from quaestor.continuous.delivery.sink import DeliveryError, Sink
from quaestor.errors import ConfigurationError, DependencyError, QuaestorError
from quaestor.observability.telemetry import Telemetry
from quaestor.tables.storage import LogStorage

MOST_ROWS: Final = 1_000
"""Results of one message."""
_PAGE_ROWS: Final = 10_000


def letters_of(root: LogStorage) -> DeadLetters:
    """Return the dead letters of the channels of a folder."""
    return DeadLetters(root.below("_channels"))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryParts:
    """Parts of the delivery.

    courier: with dead letters of its own: their addresses are those of brokers.
    timeout_s: for one message.
    """

    brokers: Brokers
    pages: ResultPages
    acknowledgements: Acknowledgements
    courier: Courier
    telemetry: Telemetry
    networks: Networks
    timeout_s: float = 10.0
    dataverse: str = DATAVERSE
    clock: Clock = system_clock


class BrokerDownError(DependencyError):
    """Failure of a health check before a message: its broker is down, and the message is not sent."""


class BrokerDelivery:
    """Delivery of channels to their brokers. No broker delays another one.

    A broker that is down receives nothing: its results wait, and no message to it becomes a dead letter.

    A push channel sends results. Each part of a run has the key `<channel>/<run>/<first row>`, in every attempt. A pull channel
    sends one notification for each run and broker. A part without a confirmation becomes a dead letter, and the next run follows.
    """

    def __init__(self, parts: DeliveryParts) -> None:
        self._parts = parts
        self._locks: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)

    async def deliver(self, channel: str, *, push: bool) -> int:
        """Deliver all runs of a channel that its brokers have not received; return the number of results.

        Raises DependencyError only if the list of brokers cannot be read.
        """
        brokers = await asyncio.to_thread(self._parts.brokers.all)
        now = self._parts.clock() * 1_000
        delivered = await asyncio.gather(
            *(self._deliver_to(broker, channel, push=push) for broker in brokers if not self._is_over(broker, now))
        )
        return sum(delivered)

    async def replay(self, channel: str | None = None) -> Replayed:
        """Send dead letters again, each once and with its old keys. See Courier.replay."""
        return await self._parts.courier.replay(self._sink_or_none_left, channel)

    def _sink_or_none_left(self, address: str) -> Sink:
        """Return the sink of a broker; letters to a dropped broker stay."""
        try:
            return self._sink_of(address)
        except ConfigurationError as error:
            return _Gone(address, str(error))

    def _is_over(self, broker: Broker, now: int) -> bool:
        """Whether a broker is down, or its lease is over. Its results stay until their retention."""
        if broker.is_down:
            return True
        if not broker.has_expired(now):
            return False
        self._parts.telemetry.failure(
            "delivery", "channels.lease_over", f"the lease of broker {broker.name} is over", broker=broker.name
        )
        return True

    async def _deliver_to(self, broker: Broker, channel: str, *, push: bool) -> int:
        try:
            async with self._locks[broker.name, channel]:
                delivered = 0
                while pages := await asyncio.to_thread(self._pending, broker.name, channel, push):
                    for page in pages:
                        await self._deliver_run(broker.name, channel, page, push=push)
                        delivered += len(page.rows)
                return delivered
        except BrokerDownError:
            return 0  # the health check reports the broker, and has the rest delivered
        except QuaestorError as error:
            self._parts.telemetry.failure(
                "delivery", "channels.delivery_stopped", error, broker=broker.name, channel=channel
            )
            return 0

    def _pending(self, broker: str, channel: str, push: bool) -> Sequence[RunPage]:
        state = self._parts.acknowledgements.of(broker, channel)
        after = state.upto if push else max(state.upto, state.notified)
        return self._parts.pages.after(channel, broker, after, _PAGE_ROWS)

    async def _deliver_run(self, broker: str, channel: str, page: RunPage, *, push: bool) -> None:
        """Deliver one run, and keep that it was delivered. A process that ends in between sends it again."""
        rows = [{"subscriptions": list(row.subscriptions), "record": row.record} for row in page.rows]
        if not push:
            distinct = list(dict.fromkeys(identity for row in page.rows for identity in row.subscriptions))
            rows = [{"subscriptions": distinct, "record": "null"}]
        batch = ResultBatch(query=channel, run=page.run, instant=page.run, rows=rows)
        confirmed = True
        for part in batch.parts(MOST_ROWS):
            sink = await asyncio.to_thread(self._sink_of, address_of(broker, push=push))
            confirmed &= await self._parts.courier.deliver(_WhileUp(sink, self._parts.brokers, broker), part)
        acknowledgements = self._parts.acknowledgements
        keep = acknowledgements.advance if push else acknowledgements.note_notified
        await asyncio.to_thread(keep, broker, channel, page.run)
        if confirmed:
            await asyncio.to_thread(self._parts.brokers.renew, broker)

    def _sink_of(self, address: str) -> BrokerSink:
        """Return the sink of a broker at its present address. Raises ConfigurationError."""
        kind, _, rest = address.partition(":")
        name, _, form = rest.rpartition("/")
        if kind != "broker":
            raise ConfigurationError(f"{address!r} is no address of a broker")
        return BrokerSink(
            self._parts.brokers.get(name),
            push=form == PUSH,
            networks=self._parts.networks,
            timeout_s=self._parts.timeout_s,
            dataverse=self._parts.dataverse,
        )


class _Gone:
    """Sink of a broker that was dropped: nothing is delivered. Implements Sink."""

    kind = "broker"

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self._reason = reason

    async def deliver(self, batch: ResultBatch) -> None:
        """See Sink."""
        raise DeliveryError(self._reason, reason="unreachable", retryable=False)


class _WhileUp:
    """Sink of a broker that sends nothing once the broker is down. Implements Sink. Raises BrokerDownError besides."""

    def __init__(self, sink: BrokerSink, brokers: Brokers, broker: str) -> None:
        self.name = sink.name
        self.kind = sink.kind
        self._sink = sink
        self._brokers = brokers
        self._broker = broker

    async def deliver(self, batch: ResultBatch) -> None:
        """See Sink."""
        broker = await asyncio.to_thread(self._brokers.get, self._broker)
        if broker.is_down:
            raise BrokerDownError(f"broker {broker.name} is down")
        await self._sink.deliver(batch)

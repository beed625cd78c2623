"""Running of channels: the service of a folder, with the delivery to brokers after each run."""

from __future__ import annotations

from pathlib import Path

from quaestor.channels.administration import Channels
from quaestor.channels.brokers.acknowledgements import Acknowledgements
from quaestor.channels.brokers.delivery import BrokerDelivery, DeliveryParts
from quaestor.channels.hosting import executor_of_channel, hosted
from quaestor.channels.runs.stored_pages import StoredPages
from quaestor.channels.service import ChannelParts
from quaestor.clock import Clock, system_clock
from quaestor.continuous.delivery.courier import Courier
from quaestor.continuous.delivery.dead_letters import DeadLetters
from quaestor.continuous.delivery.networks import Networks
from quaestor.observability.telemetry import Telemetry
from quaestor.settings.continuous import ContinuousSettings


async def run_channels(
    channels: Channels, settings: ContinuousSettings, telemetry: Telemetry, *, clock: Clock = system_clock
) -> None:
    """Run the channels of a folder until cancelled, as soon as no other process does, and deliver their results."""
    parts = channels.parts
    root = parts.catalogue.root
    delivery = BrokerDelivery(
        DeliveryParts(
            brokers=channels.brokers,
            pages=StoredPages(parts.catalogue),
            acknowledgements=Acknowledgements(root),
            courier=Courier(DeadLetters(root.below("_channels")), telemetry, attempts=settings.delivery_attempts),
            telemetry=telemetry,
            networks=Networks(settings.webhook_networks),
            timeout_s=settings.delivery_timeout_ms / 1_000,
            clock=clock,
        )
    )

    async def deliver(channel: str, push: bool) -> int:
        return await delivery.deliver(channel, push=push)

    await hosted(
        Path(settings.continuous_folder),
        ChannelParts(
            catalogue=parts.catalogue,
            channels=parts.definitions.channels,
            executor_of=executor_of_channel,
            telemetry=telemetry,
            deliver=deliver,
            clock=clock,
        ),
    )

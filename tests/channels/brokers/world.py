"""World of brokers: real tables, real HTTP receivers on local ports, pauses that only pass time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from quaestor.channels.brokers.acknowledgements import Acknowledgements
from quaestor.channels.brokers.delivery import BrokerDelivery, DeliveryParts
from quaestor.channels.brokers.registry import Brokers
from quaestor.channels.pages import ResultPages
from quaestor.continuous.delivery.courier import Courier
from quaestor.continuous.delivery.dead_letters import DeadLetters
from quaestor.continuous.delivery.networks import Networks
from quaestor.observability.telemetry import Telemetry
from quaestor.tables.catalogue import Catalogue
from tests.channels.brokers.stored_pages import StoredPages

KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
LOCAL = Networks(("127.0.0.0/8",))
RUN = 1_700_000_000_000_000
"""First run; further runs are a second apart."""


class Time:
    """Clock, in ms."""

    ms = RUN // 1_000

    def __call__(self) -> int:
        return self.ms


class World:
    """Channel `offers`, its brokers and their delivery, below one folder. reach: networks that deliveries may reach."""

    def __init__(self, folder: Path, *, attempts: int = 3, reach: Networks = LOCAL) -> None:
        self.clock = Time()
        self.catalogue = Catalogue(folder)
        self.pages = StoredPages(self.catalogue)
        self.brokers = Brokers(self.catalogue.root, networks=LOCAL, clock=self.clock)
        self.acknowledgements = Acknowledgements(self.catalogue.root)
        self.letters = DeadLetters(self.catalogue.root.below("_broker_letters"))
        self.telemetry = Telemetry()
        self.seen: list[str] = []
        self.telemetry.hooks.failures.append(lambda failure: self.seen.append(failure.name))
        self._attempts, self._reach = attempts, reach
        self.use(self.pages)

    def use(self, pages: ResultPages) -> None:
        """Deliver these results."""
        self.delivery = BrokerDelivery(
            DeliveryParts(
                brokers=self.brokers,
                pages=pages,
                acknowledgements=self.acknowledgements,
                courier=Courier(self.letters, self.telemetry, attempts=self._attempts, sleep=self._sleep),
                telemetry=self.telemetry,
                networks=self._reach,
                clock=self.clock,
            )
        )

    async def _sleep(self, pause_s: float) -> None:
        self.clock.ms += int(pause_s * 1_000)

    def broker(self, name: str, port: int, **options: Any) -> None:
        """Register a broker on a local port, or move it there."""
        self.brokers.register(name, f"http://127.0.0.1:{port}/", options={"key": KEY, **options}, replaces=True)

    def run(self, number: int, *rows: tuple[str, Sequence[str], Any]) -> int:
        """Publish a run of the channel; return it."""
        if "offers_results" not in self.catalogue.names():
            self.pages.create("offers")
        self.pages.publish("offers", RUN + number * 1_000_000, rows)
        return RUN + number * 1_000_000

"""Health of brokers: each is asked at intervals whether it answers. The results of a broker that is down wait for it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from quaestor.channels.brokers.registry import Broker, Brokers
from quaestor.clock import Clock, system_clock
from quaestor.continuous.delivery.networks import Networks
from quaestor.continuous.delivery.signed_requests import SignedRequests
from quaestor.continuous.delivery.sink import DeliveryError
from quaestor.errors import QuaestorError
from quaestor.observability.telemetry import Telemetry

FAILURES: Final = 2
"""Checks in a row that fail before a broker counts as down."""
_LOOK_S: Final = 10.0
_MOST_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthParts:
    """Parts of the health checks.

    recovered: called after brokers have come back, so that the waiting results leave at once.
    timeout_s: for one check.
    pause: waits for some seconds.
    """

    brokers: Brokers
    networks: Networks
    telemetry: Telemetry
    recovered: Callable[[], Awaitable[object]]
    timeout_s: float = 5.0
    clock: Clock = system_clock
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep


class BrokerHealth:
    """Health checks of the brokers of one folder. One process at a time makes them."""

    def __init__(self, parts: HealthParts) -> None:
        self._parts = parts
        self._failures: Counter[str] = Counter()

    async def keep_running(self) -> None:
        """Check brokers at intervals, until cancelled."""
        while True:
            await self.check()
            await self._parts.pause(_LOOK_S)

    async def check(self) -> None:
        """Check each broker once. A broker whose lease is over, or that takes no checks, is left out."""
        parts, now = self._parts, self._parts.clock() * 1_000
        try:
            brokers = await asyncio.to_thread(parts.brokers.all)
        except QuaestorError as error:
            parts.telemetry.failure("delivery", "channels.brokers_unchecked", error)
            return
        room = asyncio.Semaphore(_MOST_AT_ONCE)
        checked = [broker for broker in brokers if broker.is_checked and not broker.has_expired(now)]
        came_back = await asyncio.gather(*(self._check(broker, now, room) for broker in checked))
        for name in self._failures.keys() - {broker.name for broker in checked}:
            del self._failures[name]
        parts.telemetry.channels.brokers_down.set(
            sum(self._failures[broker.name] >= FAILURES or broker.is_down for broker in checked) - sum(came_back)
        )
        if any(came_back):
            await parts.recovered()

    async def _check(self, broker: Broker, now: int, room: asyncio.Semaphore) -> bool:
        """Check a broker; return whether it has come back."""
        parts = self._parts
        try:
            async with room:
                await self._requests(broker).probe(f"health/{broker.name}/{now}")
        except DeliveryError as error:
            self._failures[broker.name] += 1
            if self._failures[broker.name] == FAILURES and not broker.is_down:
                await self._note(broker, now)
                parts.telemetry.failure("delivery", "channels.broker_down", error, broker=broker.name)
            return False
        except Exception as error:  # a broker must not end the checks of the others, whatever a driver raises
            parts.telemetry.failure("delivery", "channels.brokers_unchecked", error, broker=broker.name)
            return False
        self._failures[broker.name] = 0
        if broker.lease:
            await self._written(broker, partial(parts.brokers.renew, broker.name))
        if broker.is_down and await self._note(broker, 0):
            parts.telemetry.event("channels.broker_up", broker=broker.name)
            return True
        return False

    async def _note(self, broker: Broker, since: int) -> bool:
        """Keep the state of a broker; return whether that was possible."""
        return await self._written(broker, partial(self._parts.brokers.note_down, broker.name, since))

    async def _written(self, broker: Broker, write: Callable[[], object]) -> bool:
        """Write to the registration of a broker; return whether that was possible."""
        try:
            await asyncio.to_thread(write)
        except QuaestorError as error:  # dropped meanwhile, or the storage fails
            self._parts.telemetry.failure("delivery", "channels.brokers_unchecked", error, broker=broker.name)
            return False
        return True

    def _requests(self, broker: Broker) -> SignedRequests:
        return SignedRequests(
            broker.url, signer=broker.signer, networks=self._parts.networks, timeout_s=self._parts.timeout_s
        )

"""Courier: delivers batches with retries; a batch that cannot be delivered becomes a dead letter."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_exponential_jitter

from quaestor.continuous.delivery.batch import ResultBatch
from quaestor.continuous.delivery.dead_letters import DeadLetter, DeadLetters
from quaestor.continuous.delivery.sink import DeliveryError, Sink, shown
from quaestor.errors import QuaestorError
from quaestor.observability.telemetry import Telemetry

_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 300.0
_WAIT: Final = wait_exponential_jitter(initial=_FIRST_WAIT_S, max=_LONGEST_WAIT_S, jitter=_FIRST_WAIT_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """Outcome of sending dead letters again.

    asked: letters that the process with their receiver will send.
    """

    delivered: int
    failed: int
    asked: int = 0


class Courier:
    """Delivery with retries, dead letters and metrics.

    attempts: the most for each batch.
    sleep: replaced in tests.
    """

    def __init__(
        self,
        letters: DeadLetters,
        telemetry: Telemetry,
        *,
        attempts: int = 8,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._letters = letters
        self._telemetry = telemetry
        self._attempts = attempts
        self._sleep = sleep

    async def deliver(self, sink: Sink, batch: ResultBatch) -> bool:
        """Deliver a batch; return whether the sink has it. Otherwise it is a durable dead letter when this returns.

        Every attempt has the same keys. Raises DependencyError only if the dead letter could not be kept.
        """
        attempts = AsyncRetrying(
            retry=retry_if_exception(lambda error: isinstance(error, DeliveryError) and error.retryable),
            stop=stop_after_attempt(self._attempts),
            wait=_wait_s,
            sleep=self._sleep,
            reraise=True,
        )
        tried = 0
        try:
            async for attempt in attempts:
                with attempt:
                    tried += 1
                    await self._try(sink, batch)
        except DeliveryError as error:
            await self._bury(sink, batch, error, tried)
            return False
        return True

    async def replay(self, sinks: Callable[[str], Sink | None], query: str | None = None) -> Replayed:
        """Send dead letters again, each once and with its old keys; a delivered letter is removed.

        sinks: returns the sink of an address; None: another process has it, which `replay_asked` reaches.
        query: None: of all queries.

        Raises DependencyError if the letters cannot be read, ConfigurationError if a sink's setting is missing.
        """
        delivered = failed = asked = 0
        for letter in await asyncio.to_thread(lambda: list(self._letters.list(query))):
            sink = sinks(letter.sink)
            if sink is None:
                await asyncio.to_thread(self._letters.ask, letter)
                asked += 1
            elif await self._sent(sink, letter):
                delivered += 1
            else:
                failed += 1
        await self._count()
        return Replayed(delivered=delivered, failed=failed, asked=asked)

    async def replay_asked(self, sinks: Callable[[str], Sink | None]) -> Replayed:
        """Send the letters that another process has asked for, if this process has their receivers. Raises as `replay` does."""
        delivered = failed = 0
        for letter in await asyncio.to_thread(lambda: list(self._letters.asked())):
            sink = sinks(letter.sink)
            if sink is None:
                continue
            if await self._sent(sink, letter):
                delivered += 1
            else:
                failed += 1
            await asyncio.to_thread(self._letters.answer, letter)
        if delivered or failed:
            await self._count()
        return Replayed(delivered=delivered, failed=failed)

    async def _sent(self, sink: Sink, letter: DeadLetter) -> bool:
        """Send a letter once; return whether it was delivered. A delivered letter is removed."""
        try:
            await self._try(sink, letter.batch)
        except DeliveryError:
            return False
        await asyncio.to_thread(self._letters.remove, letter)
        return True

    async def _try(self, sink: Sink, batch: ResultBatch) -> None:
        metrics = self._telemetry.continuous
        try:
            await _delivered(sink, batch)
        except DeliveryError as error:
            metrics.deliveries.labels(sink.kind, "failed").inc()
            metrics.delivery_failures.labels(sink.kind, error.reason).inc()
            self._telemetry.failure(
                "delivery", "delivery.failed", error, sink=shown(sink.name), reason=error.reason, key=batch.key
            )
            raise
        metrics.deliveries.labels(sink.kind, "delivered").inc()
        metrics.delivered_rows.labels(sink.kind).inc(len(batch.rows))

    async def _bury(self, sink: Sink, batch: ResultBatch, error: DeliveryError, attempts: int) -> None:
        letter = DeadLetter(batch=batch, sink=sink.name, reason=error.reason, error=str(error), attempts=attempts)
        await asyncio.to_thread(self._letters.put, letter)
        self._telemetry.continuous.deliveries.labels(sink.kind, "dead").inc()
        self._telemetry.failure(
            "delivery", "delivery.dead_letter", error, sink=shown(sink.name), reason=error.reason, key=batch.key
        )
        await self._count()

    async def _count(self) -> None:
        self._telemetry.continuous.dead_letters.set(await asyncio.to_thread(self._letters.count))


async def _delivered(sink: Sink, batch: ResultBatch) -> None:
    """Deliver a batch. Raises DeliveryError also for an error that no sink foresees. Other errors of ours pass."""
    try:
        await sink.deliver(batch)
    except QuaestorError:
        raise
    except Exception as error:
        raise DeliveryError(f"{shown(sink.name)} failed: {error!r}", reason="sink") from error


def _wait_s(state: RetryCallState) -> float:
    """Return the wait before the next attempt: at least as long as the receiver wants."""
    error = state.outcome.exception() if state.outcome is not None else None
    wanted_s = error.retry_after_s if isinstance(error, DeliveryError) else None
    return max(_WAIT(state), wanted_s or 0.0)

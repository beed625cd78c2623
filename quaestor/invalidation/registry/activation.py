"""Activation of a miss's registrations: sent to the grid, confirmed in the notification thread, awaited on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from quaestor.errors import RegistrationRefusedError
from quaestor.event_layer import codec, streams
from quaestor.event_layer.partitioning import query_partition
from quaestor.invalidation.registry.cancellation import Cancellations
from quaestor.invalidation.registry.process_registrations import ProcessRegistrations
from quaestor.invalidation.registry.registration_ids import in_round
from quaestor.model import Activated, Cell, GridShape, Registration
from quaestor.runtime.supervision.process_context import ProcessContext


@dataclass(slots=True)
class Activation:
    """Registrations of one response, waiting for the cells of their query partitions.

    loop: event loop of the waiting miss.
    done: result: the summed write rate of the members.
    missing: registration ids and cells that have not answered.
    rate_hz: sum of the write rates so far.
    """

    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[float]
    missing: set[tuple[str, Cell]]
    rate_hz: float = 0.0

    def observe(self, activated: Activated) -> None:
        """Note the answer of one cell; the last answer releases the miss."""
        self.rate_hz += activated.write_rate_hz
        self.missing.discard((activated.registration_id, activated.cell))
        if not self.missing:
            self.finish()

    def finish(self, error: Exception | None = None) -> None:
        """Release the miss, with an error if it failed. From any thread; the first call counts."""
        with suppress(RuntimeError):  # the loop is closed: no miss waits any more
            self.loop.call_soon_threadsafe(self._conclude, error)

    def expire(self, deadline_ms: int) -> None:
        """Fail the miss because its deadline has passed. On the event loop."""
        self._conclude(RegistrationRefusedError(f"not activated within {deadline_ms} ms by {len(self.missing)} cells"))

    def _conclude(self, error: Exception | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(self.rate_hz)
        else:
            self.done.set_exception(error)


class Activations:
    """Activations under way in this process. activate() runs on the event loop; the answers may come from any thread.

    pending: activations by registration id.
    """

    def __init__(
        self, registrations: ProcessRegistrations, cancellations: Cancellations, process: ProcessContext
    ) -> None:
        self.pending: dict[str, Activation] = {}
        self._shared = registrations.shared
        self._sender = registrations.sender
        self._cancellations = cancellations
        self._settings = process.settings
        self._telemetry = process.telemetry
        self._clock = process.clock

    async def activate(
        self, registrations: Sequence[Registration], shape: GridShape, *, renewed: bool = False
    ) -> float:
        """Send these registrations and wait for every cell of their query partitions. Return the members' summed write rate.

        renewed: the registrations are further rounds of known ones.

        Raises RegistrationRefusedError if a cell refuses or misses the deadline; then they are cancelled.
        """
        partitions = {r.id: query_partition(r.query_id, shape.query_partitions) for r in registrations}
        activation = self._open(registrations, partitions, shape)
        for r in registrations if not renewed else ():
            self._shared.open(r)
        for r in registrations:
            stream = streams.queries(self._settings.deployment, partitions[r.id], shape.generation)
            self._sender.send(stream, codec.encode_query_event(r), activation)
        started_ms, deadline_ms = self._clock(), self._settings.grid.activation_deadline_ms
        deadline = activation.loop.call_later(deadline_ms / 1000, activation.expire, deadline_ms)
        try:
            rate_hz = await activation.done
        except BaseException:
            if renewed:
                for r in registrations:
                    self._cancellations.cancel_rounds(r.query_id, [r.id])
            else:
                self._cancellations.cancel([r.id for r in registrations])
            raise
        finally:
            deadline.cancel()
            for r in registrations:
                self.pending.pop(r.id, None)
        self._telemetry.grid.activation_s.observe((self._clock() - started_ms) / 1000)
        for r in registrations:
            self._shared.offer(in_round(r.id, 0), rate_hz=rate_hz / len(registrations))
        return rate_hz

    def observe(self, activated: Activated) -> None:
        """Note that one cell has activated one registration."""
        if (activation := self.pending.get(activated.registration_id)) is not None:
            activation.observe(activated)

    def refuse(self, registration_id: str, why: str) -> None:
        """Fail the response that waits for this registration: it was refused, or died meanwhile."""
        if (activation := self.pending.get(registration_id)) is not None:
            activation.finish(RegistrationRefusedError(why))

    def refuse_all(self, why: str) -> None:
        """Fail every waiting response."""
        for activation in list(self.pending.values()):
            activation.finish(RegistrationRefusedError(why))

    def _open(
        self, registrations: Sequence[Registration], partitions: Mapping[str, int], shape: GridShape
    ) -> Activation:
        loop = asyncio.get_running_loop()
        activation = Activation(
            loop=loop,
            done=loop.create_future(),
            missing={
                (registration_id, Cell(query_partition=partition, write_partition=write_partition))
                for registration_id, partition in partitions.items()
                for write_partition in range(shape.write_partitions)
            },
        )
        for r in registrations:
            self.pending[r.id] = activation
        return activation

"""Repetition of a call to a store or to the sketch until it succeeds: every effect of an invalidation is carried out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from quaestor.errors import SketchError, StoreError
from quaestor.observability.telemetry import Telemetry

Answer = TypeVar("Answer")

RETRY_S: Final = 0.5
"""Pause before the next attempt after a failure; where pauses grow, the first one."""


async def until_done(
    telemetry: Telemetry,
    part: str,
    call: Callable[[], Awaitable[Answer]],
    meanwhile: Callable[[], None] = lambda: None,
) -> Answer:
    """Return the answer to a call, repeated after each failure. Each failure is reported.

    part: name of the called part.
    meanwhile: called after each failure.
    """
    while True:
        try:
            return await call()
        except (StoreError, SketchError) as error:
            telemetry.failure(part, f"effects.{part}_failed", error)
            meanwhile()
            await asyncio.sleep(RETRY_S)

"""Repetition of a call to a store or to the sketch until it succeeds: no effect of an invalidation is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from quaestor.errors import SketchError, StoreError
from quaestor.observability.telemetry import Telemetry

Answer = TypeVar("Answer")

RETRY_S: Final = 0.5
"""Pause before what failed is tried again; where pauses grow, the first."""


async def until_done(
    telemetry: Telemetry,
    part: str,
    call: Callable[[], Awaitable[Answer]],
    meanwhile: Callable[[], None] = lambda: None,
) -> Answer:
    """The answer to a call, made again after each failure, which is told.

    part: whose failure it is.
    meanwhile: called after each one.
    """
    while True:
        try:
            return await call()
        except (StoreError, SketchError) as error:
            telemetry.failure(part, f"effects.{part}_failed", error)
            meanwhile()
            await asyncio.sleep(RETRY_S)

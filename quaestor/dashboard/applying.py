"""Applying of parameters from the dashboard: the parameters that count, the audit trail, and the return to earlier ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

import anyio.to_thread

from quaestor.admin.request import Refused
from quaestor.clock import Clock
from quaestor.ttl.canary import Canary
from quaestor.ttl.parameters import TtlParameters, decoded
from quaestor.ttl.published import Publication, PublishedParameters

MOST_SHOWN: Final = 100
"""Most entries of the audit trail that are shown."""
_LONGEST_NAME: Final = 60

T = TypeVar("T")


class Applying:
    """Applying for one app. Use from one event loop. Raises EventLayerError.

    own: parameters of the settings, which count while nothing is published.
    """

    def __init__(self, published: PublishedParameters, *, own: TtlParameters, clock: Clock) -> None:
        self._published = published
        self._clock = clock
        self._lock = asyncio.Lock()
        self.own = own

    async def history(self) -> list[Publication]:
        """All publications, the oldest first. Before them stands an entry for the settings."""
        return list(await self._alone(self._published.history))

    async def decided_on(self, base: int) -> Publication:
        """Entry that counts. Raises SupersededError if it is not number `base`."""
        return await self._alone(partial(self._published.decided_on, base))

    async def apply(
        self, parameters: TtlParameters | None, *, base: int, by: str, canary: Canary | None = None
    ) -> Publication:
        """Publish parameters. Raises SupersededError, and changes nothing, if another entry than `base` counts by now.

        parameters: None: each app uses its settings.
        canary: canary with other parameters for a share of the results; None: the parameters count for all results.
        """
        publish = partial(self._published.publish, parameters, base=base, by=by, now_ms=self._clock(), canary=canary)
        return await self._alone(publish)

    async def restore(self, number: int, *, base: int, by: str) -> Publication:
        """Publish the parameters of an earlier entry again. Raises Refused if there is none, and as apply() does."""
        history = await self.history()
        if not 0 <= number < len(history):
            raise Refused(400, f"there is no entry {number} that could be restored; the newest is {len(history) - 1}")
        return await self.apply(history[number].parameters, base=base, by=by)

    async def state(self) -> dict[str, Any]:
        """Parameters that count, with their canary, and the audit trail, the newest first."""
        history = await self.history()
        newest = history[-1]
        return {
            "number": newest.number,
            "parameters": _plain(newest.parameters or self.own),
            "own": _plain(self.own),
            "canary": None if newest.canary is None else _shown(newest, newest.canary),
            "history": [
                {
                    "number": publication.number, "base": publication.base, "at_ms": publication.at_ms, "by": publication.by,
                    "parameters": _plain(publication.parameters or self.own),
                    "settings": publication.parameters is None, "why": publication.why,
                    "canary": publication.canary and {
                        "share": publication.canary.share, "parameters": _plain(publication.canary.parameters),
                    },
                }
                for publication in reversed(history[-MOST_SHOWN:])
            ],
        }  # fmt: skip

    async def _alone(self, call: Callable[[], T]) -> T:
        async with self._lock:
            return await anyio.to_thread.run_sync(call)


def name_of(value: Any) -> str:
    """Name of the operator who applies parameters. Raises Refused."""
    if not isinstance(value, str) or not 0 < len(value.strip()) <= _LONGEST_NAME or not value.isprintable():
        raise Refused(400, f"say who you are: `by` is a name of 1 to {_LONGEST_NAME} printable characters")
    return value.strip()


def number_of(value: Any, name: str) -> int:
    """Number of an entry of the audit trail. Raises Refused."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Refused(400, f"{name} is the number of an entry of the audit trail, from 0")
    return value


def parameters_of(value: Any) -> TtlParameters:
    """Parameters that an operator has sent. Raises ConfigurationError, which names what is wrong with them."""
    try:
        return decoded(json.dumps(value))
    except RecursionError as error:
        raise Refused(400, "the parameters are nested too deep") from error


def _shown(publication: Publication, canary: Canary) -> dict[str, Any]:
    return {"by": publication.by, "at_ms": publication.at_ms, "guards": canary.guards.plain(), **canary.plain()}


def _plain(parameters: TtlParameters) -> Any:
    return json.loads(parameters.encoded())

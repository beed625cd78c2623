"""Continuous queries on the dashboard: an overview for every viewer; pause, resume and replay for operators."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread

from quaestor.admin.request import Refused
from quaestor.clock import Clock
from quaestor.dashboard.folder_calls import change_of, named
from quaestor.observability.telemetry import Telemetry

if TYPE_CHECKING:
    from quaestor.continuous.administration import Administration

CALLS: Final = {"/continuous": "GET", "/continuous/query": "GET", "/continuous/change": "POST"}


class ContinuousView:
    """Continuous queries of one folder, for the page. Use from one event loop.

    administration: returns the administration of the folder; None: there is no folder, and the page shows no queries.
    """

    def __init__(self, administration: Callable[[], Administration] | None, telemetry: Telemetry, clock: Clock) -> None:
        self._administration = administration
        self._telemetry = telemetry
        self._clock = clock

    async def look(self, call: str, query: bytes, *, may_change: bool) -> dict[str, Any]:
        """Answer `/continuous`, or `/continuous/query?name=`: the texts and the dead letters of a query.

        Raises Refused, ConfigurationError, QueryError, DependencyError.
        """
        if call == "/continuous":
            if self._administration is None:
                return {"queries": None, "may_change": False}
            return await anyio.to_thread.run_sync(self._all, may_change)
        return await anyio.to_thread.run_sync(self._query, named(query, "query"))

    async def change(self, body: Any) -> dict[str, Any]:
        """Do {"do": "pause", "resume" or "replay", "name": ...}. Raises as `look` does; nothing has changed then."""
        do, name = change_of(body, ("pause", "resume", "replay"))
        return await anyio.to_thread.run_sync(self._change, do, name)

    def _all(self, may_change: bool) -> dict[str, Any]:
        from quaestor.continuous.overview import overview

        queries = overview(self._open(), now=self._clock() * 1_000)
        return {"queries": queries, "may_change": may_change, "now_ms": self._clock()}

    def _query(self, name: str) -> dict[str, Any]:
        from quaestor.continuous.overview import dead_letters, texts
        from quaestor.errors import QueryError

        administration = self._open()
        letters = dead_letters(administration, name)
        try:
            shown = texts(administration, name)
        except QueryError as error:  # a table or a column of an old query is gone
            shown = {"meaning": str(error), "standard": "", "monotone": "", "incremental": ""}
        return {"texts": shown, "dead_letters": letters}

    def _change(self, do: str, name: str) -> dict[str, Any]:
        from quaestor.continuous.delivery.batch import to_json
        from quaestor.continuous.delivery.sink import shown
        from quaestor.continuous.overview import replay

        administration = self._open()
        if do == "replay":
            return {"done": replay(administration, name, self._telemetry)}
        changed = administration.pause(name) if do == "pause" else administration.resume(name)
        done: dict[str, Any] = json.loads(to_json(changed))
        return {"done": done | {"sinks": [shown(sink) for sink in done["sinks"]]}}

    def _open(self) -> Administration:
        if self._administration is None:
            raise Refused(404, "There are no continuous queries here: set continuous_folder.")
        return self._administration()

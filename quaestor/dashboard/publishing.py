"""Publishing from the dashboard: an operator's call is checked and done, or refused in one sentence."""

from __future__ import annotations

from typing import Any, Final

from quaestor.admin.request import Refused
from quaestor.dashboard.applying import Applying, name_of, number_of, parameters_of
from quaestor.dashboard.canaries import Canaries
from quaestor.dashboard.leaving import while_there
from quaestor.middleware.interface import Receive
from quaestor.ttl.canary_guards import NAMES
from quaestor.ttl.published import Publication

CALLS: Final = ("/apply", "/canary", "/promote", "/rollback")
_TERMS: Final = frozenset({"share", "after", "hold_ms", "promote", *NAMES})


class Publishing:
    """Publishing for one app. Use from one event loop. Raises Refused, ConfigurationError, EventLayerError and StoreError;
    nothing has changed then."""

    def __init__(self, applying: Applying, canaries: Canaries) -> None:
        self._applying, self._canaries = applying, canaries

    async def __call__(self, call: str, body: Any, receive: Receive) -> Publication:
        """Do one of CALLS."""
        if not isinstance(body, dict):
            raise Refused(400, "the body is a JSON object")
        if call == "/apply":
            return await self._apply(body)
        if call == "/canary":
            return await self._begin(body, receive)
        by, base = _who(body, body.keys() == {"by", "base"}, '{"by": ..., "base": ...}')
        end = self._canaries.promote if call == "/promote" else self._canaries.roll_back
        return await end(base=base, by=by)

    async def _apply(self, body: dict[str, Any]) -> Publication:
        """Apply {"by": ..., "base": 3, "parameters": {...}}, or an earlier entry with "restore": 1 instead of parameters."""
        known = body.keys() in ({"by", "base", "parameters"}, {"by", "base", "restore"})
        by, base = _who(body, known, '{"by": ..., "base": ..., "parameters": {...}}, or with "restore": a number')
        if "restore" in body:
            return await self._applying.restore(number_of(body["restore"], "restore"), base=base, by=by)
        return await self._applying.apply(parameters_of(body["parameters"]), base=base, by=by)

    async def _begin(self, body: dict[str, Any], receive: Receive) -> Publication:
        """Begin a canary {"by": ..., "base": 3, "parameters": {...}, "share": 10}, after its prediction from the trace. If the
        client goes before that, nothing begins."""
        needed = {"by", "base", "parameters", "share"}
        known = needed <= body.keys() <= needed | _TERMS
        shape = (
            '{"by": ..., "base": ..., "parameters": {...}, "share": ...}, and if wanted "after", "hold_ms", "promote", '
            '"stale_at_most", "hits_at_least"'
        )
        by, base = _who(body, known, shape)
        parameters = parameters_of(body["parameters"])
        terms = {name: body[name] for name in _TERMS & body.keys()}
        newest = await self._applying.decided_on(base)
        canary = await while_there(self._canaries.predicted(newest, parameters, terms), receive)
        return await self._applying.apply(newest.parameters, base=base, by=by, canary=canary)


def _who(body: dict[str, Any], known: bool, shape: str) -> tuple[str, int]:
    if not known:
        raise Refused(400, f"the body is {shape}")
    return name_of(body["by"]), number_of(body["base"], "base")

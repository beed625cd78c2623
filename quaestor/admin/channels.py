"""Endpoints of the admin API on channels: statements, and what they have created."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from quaestor.admin.request import Call, Refused
from quaestor.app import Quaestor

if TYPE_CHECKING:
    from quaestor.channels.administration import Channels

_LISTED = ("brokers", "channels", "datasets", "feeds", "functions", "procedures", "runs", "subscriptions", "types")
_MOST_THREADS = 4
"""Statements under way at a time. Threads that wait for a query would otherwise be missing in the application's own routes."""


class ChannelEndpoints:
    """Endpoints on the datasets and channels below `continuous_folder`. Without that setting each answers 400."""

    def __init__(self, quaestor: Quaestor) -> None:
        self._quaestor = quaestor

    async def execute(self, call: Call) -> Mapping[str, Any]:
        """Execute statements in order: {"text": "...", "user": "...", "values": {"name": ...}}.

        A value of `$name` is bound: it is never read as text of a statement.
        """
        call.only()
        body = call.body
        if not isinstance(body, dict) or not isinstance(body.get("text"), str):
            raise Refused(400, "the body is an object with the text of statements in `text`")
        if unknown := body.keys() - {"text", "user", "values"}:
            raise Refused(400, f"unknown: {', '.join(sorted(unknown))[:200]}; known: text, user, values")
        user, values = body.get("user", ""), body.get("values", {})
        if not isinstance(user, str) or not isinstance(values, dict):
            raise Refused(400, "user is a text, values is an object")

        def work(channels: Channels) -> Mapping[str, Any]:
            answers = channels.interpreter.run(body["text"], user=user, values=values)
            return {"answers": [answer.described() for answer in answers]}

        return await self._answer(work)

    async def resources(self, call: Call) -> Mapping[str, Any]:
        """Everything of one kind. `kind` is the noun of a SHOW statement, such as channels.

        `channel` restricts runs and subscriptions to a channel, `user` restricts subscriptions to those of a user.
        """
        call.only("kind", "channel", "user")
        kind, channel, user = call.required("kind"), call.parameter("channel"), call.parameter("user") or ""
        if kind not in _LISTED:
            raise Refused(400, f"kind is one of {', '.join(_LISTED)}")

        def work(channels: Channels) -> Mapping[str, Any]:
            from quaestor.channels.statements.model import Show

            answer = channels.interpreter.execute(Show(what=kind, channel=channel), user=user)
            return {kind: [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]}

        return await self._answer(work)

    async def _answer(self, work: Callable[[Channels], Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return the answer as plain JSON values."""
        return await anyio.to_thread.run_sync(self._answered, work, limiter=self._threads)

    @cached_property
    def _threads(self) -> anyio.CapacityLimiter:
        return anyio.CapacityLimiter(_MOST_THREADS)  # older versions of anyio need the event loop here

    def _answered(self, work: Callable[[Channels], Mapping[str, Any]]) -> Mapping[str, Any]:
        channels = self._quaestor.parts.channels.administration()
        from quaestor.continuous.delivery.batch import to_json

        answer: dict[str, Any] = json.loads(to_json(work(channels)))
        return answer

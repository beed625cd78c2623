"""A count of the requests that reach the application behind a cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any


class Counting:
    """A middleware that counts requests in `asked`: under "polls" the waiting ones, under "others" the rest."""

    def __init__(self, app: Any, asked: Counter[str], waits: Callable[[Any], bool]) -> None:
        self._app, self._asked, self._waits = app, asked, waits

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            self._asked["polls" if self._waits(scope) else "others"] += 1
        await self._app(scope, receive, send)

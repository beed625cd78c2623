"""Waits for purges: whoever put one in hears of it when it was sent after that, by whomever. Use from one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence


class _Wait:
    """One caller that waits for its members."""

    def __init__(self, members: Iterable[str]) -> None:
        self.left = set(members)
        self.done = asyncio.get_running_loop().create_future()

    def over(self, member: str) -> None:
        """Note that a member was acknowledged."""
        self.left.discard(member)
        if not self.left and not self.done.done():
            self.done.set_result(None)


class UnderWay:
    """Waits that one request under way will end: not those that came after it had been sent."""

    def __init__(self, waits: PurgeWaits, taken: dict[str, list[_Wait]]) -> None:
        self._waits = waits
        self._taken = taken

    def done(self) -> None:
        """Note that it was acknowledged."""
        for member, some in self._taken.items():
            for wait in some:
                wait.over(member)
        self._taken = {}

    def missed(self) -> None:
        """Note that it was not."""
        self._waits.put_back(self._taken)
        self._taken = {}


class PurgeWaits:
    """All waits of one sender."""

    def __init__(self) -> None:
        self._waits: dict[str, list[_Wait]] = {}

    def expect(self, members: Sequence[str]) -> Callable[[], Awaitable[None]]:
        """Begin to wait for these; what returns when all were acknowledged, or the sender has ended."""
        wait = _Wait(members)
        if not members:
            wait.done.set_result(None)
        for member in members:
            self._waits.setdefault(member, []).append(wait)

        async def acknowledged() -> None:
            await wait.done

        return acknowledged

    def members(self) -> list[str]:
        """Members that somebody waits for and that are not under way."""
        return list(self._waits)

    def under_way(self, members: Iterable[str]) -> UnderWay:
        """The waits for these, from now on those of a request."""
        return UnderWay(self, {member: some for member in members if (some := self._waits.pop(member, None))})

    def put_back(self, taken: dict[str, list[_Wait]]) -> None:
        """Wait on for what was not acknowledged."""
        for member, some in taken.items():
            self._waits.setdefault(member, []).extend(some)

    def over(self, members: Iterable[str]) -> None:
        """Note that these were acknowledged to another process."""
        for member in members:
            for wait in self._waits.pop(member, ()):
                wait.over(member)

    def end(self) -> None:
        """Let nobody wait any longer."""
        for some in self._waits.values():
            for wait in some:
                if not wait.done.done():
                    wait.done.set_result(None)
        self._waits.clear()

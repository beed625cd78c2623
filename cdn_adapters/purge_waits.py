"""Waits for purges: whoever put one in hears of it when it was sent after that, by whomever. Use from one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence


class Wait:
    """Wait of one caller for its members.

    put: whether the outbox has them, or has refused them: before that it does not know what is waited for.
    """

    def __init__(self, members: Iterable[str]) -> None:
        self.left = set(members)
        self.put = False
        self.done = asyncio.get_running_loop().create_future()
        if not self.left:
            self.done.set_result(None)

    async def acknowledged(self) -> None:
        """Return when all were acknowledged, or the sender has ended."""
        await self.done

    def over(self, member: str) -> None:
        """Note that a member was acknowledged."""
        self.left.discard(member)
        if not self.left and not self.done.done():
            self.done.set_result(None)


class UnderWay:
    """Waits that one request under way will end: not those that came after it had been sent."""

    def __init__(self, waits: PurgeWaits, taken: dict[str, list[Wait]]) -> None:
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
        self._waits: dict[str, list[Wait]] = {}

    def expect(self, members: Sequence[str]) -> Wait:
        """Begin to wait for these, before they are put in."""
        wait = Wait(members)
        for member in members:
            self._waits.setdefault(member, []).append(wait)
        return wait

    def put(self) -> dict[str, list[Wait]]:
        """The waits for each member of which the outbox knows, and that are not under way."""
        known = {member: [wait for wait in some if wait.put] for member, some in self._waits.items()}
        return {member: some for member, some in known.items() if some}

    def under_way(self, members: Iterable[str]) -> UnderWay:
        """The waits for these, from now on those of a request."""
        return UnderWay(self, {member: some for member in members if (some := self._waits.pop(member, None))})

    def put_back(self, taken: Mapping[str, list[Wait]]) -> None:
        """Wait on for what was not acknowledged."""
        for member, some in taken.items():
            self._waits.setdefault(member, []).extend(some)

    def over(self, waits: Mapping[str, list[Wait]]) -> None:
        """Note that these were acknowledged to another process."""
        for member, some in waits.items():
            for wait in some:
                wait.over(member)
            left = [wait for wait in self._waits.pop(member, ()) if wait not in some]
            if left:
                self._waits[member] = left

    def end(self) -> None:
        """Let nobody wait any longer."""
        for some in self._waits.values():
            for wait in some:
                if not wait.done.done():
                    wait.done.set_result(None)
        self._waits.clear()

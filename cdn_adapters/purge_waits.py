"""Waits for purges: a caller waits until its purge was sent after it was put in, by any process. Use from one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence


class Wait:
    """Wait of one caller for its members.

    put: whether the outbox has the members, or has refused them. Before that the outbox does not know them.
    """

    def __init__(self, members: Iterable[str]) -> None:
        self.left = set(members)
        self.put = False
        self.done = asyncio.get_running_loop().create_future()
        if not self.left:
            self.done.set_result(None)

    async def acknowledged(self) -> None:
        """Return when all members were acknowledged, or the sender has ended."""
        await self.done

    def over(self, member: str) -> None:
        """Note that a member was acknowledged."""
        self.left.discard(member)
        if not self.left and not self.done.done():
            self.done.set_result(None)


class UnderWay:
    """Waits that one request under way will end: only waits that began before the request was sent."""

    def __init__(self, waits: PurgeWaits, taken: dict[str, list[Wait]]) -> None:
        self._waits = waits
        self._taken = taken

    def done(self) -> None:
        """Note that the request was acknowledged."""
        for member, some in self._taken.items():
            for wait in some:
                wait.over(member)
        self._taken = {}

    def missed(self) -> None:
        """Note that the request was not acknowledged."""
        self._waits.put_back(self._taken)
        self._taken = {}


class PurgeWaits:
    """All waits of one sender."""

    def __init__(self) -> None:
        self._waits: dict[str, list[Wait]] = {}

    def expect(self, members: Sequence[str]) -> Wait:
        """Begin to wait for these members, before they are put in."""
        wait = Wait(members)
        for member in members:
            self._waits.setdefault(member, []).append(wait)
        return wait

    def put(self) -> dict[str, list[Wait]]:
        """Return the waits for each member that the outbox knows and that is not under way."""
        known = {member: [wait for wait in some if wait.put] for member, some in self._waits.items()}
        return {member: some for member, some in known.items() if some}

    def under_way(self, members: Iterable[str]) -> UnderWay:
        """Assign the waits for these members to a request."""
        return UnderWay(self, {member: some for member in members if (some := self._waits.pop(member, None))})

    def put_back(self, taken: Mapping[str, list[Wait]]) -> None:
        """Continue the waits for members that were not acknowledged."""
        for member, some in taken.items():
            self._waits.setdefault(member, []).extend(some)

    def over(self, waits: Mapping[str, list[Wait]]) -> None:
        """Note that these members were acknowledged to another process."""
        for member, some in waits.items():
            for wait in some:
                wait.over(member)
            left = [wait for wait in self._waits.pop(member, ()) if wait not in some]
            if left:
                self._waits[member] = left

    def end(self) -> None:
        """End every wait."""
        for some in self._waits.values():
            for wait in some:
                if not wait.done.done():
                    wait.done.set_result(None)
        self._waits.clear()

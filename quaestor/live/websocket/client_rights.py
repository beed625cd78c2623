"""Rights of one client: its grant now, and its replacement by that of a newer token or of a newer look."""

from __future__ import annotations

import asyncio

from starlette.types import Scope

from quaestor.clock import Clock
from quaestor.live.websocket.principals import Grant, WhoSubscribes, granted
from quaestor.rest.access import Principal


class ClientRights:
    """Rights of one client. Use from one event loop.

    Nothing is awaited between the change of the rights and the return of the method that changed them. The caller therefore
    takes away what the client may not see before any other task runs.
    """

    __slots__ = ("_clock", "_grant", "_judging", "_scope", "_who", "token")

    def __init__(self, who: WhoSubscribes | None, scope: Scope, clock: Clock) -> None:
        self.token: str | None = None
        self._who = who
        self._scope = scope
        self._clock = clock
        self._grant: Grant | None = None
        self._judging = asyncio.Lock()
        """Held while `who` is asked: the answer to an older token must not replace that to a newer one."""

    @property
    def user(self) -> str | None:
        """User of the principal; None: anonymous, or no grant."""
        return None if self._grant is None else self._grant.principal.user

    async def present(self) -> Principal:
        """The principal now. Raises what `granted` raises."""
        async with self._judging:
            if self._grant is None:
                self._grant = await self._granted(self.token)
            return self._grant.principal

    def still(self, principal: Principal) -> bool:
        """Whether the principal is still the present one, and no look is under way that could change that."""
        return self._grant is not None and self._grant.principal == principal and not self._judging.locked()

    def expire(self) -> bool:
        """End the grant if its time is over; whether it ended."""
        ended = self._grant is not None and self._grant.ended(self._clock())
        if ended:
            self._grant = None
        return ended

    async def renew(self, token: str | None) -> Principal | None:
        """Take the rights that a token gives. Return the new principal; None: it is the same as before.

        Raises what `granted` raises; the client has no rights then.
        """
        async with self._judging:
            return await self._judge(token)

    async def look_again(self) -> Principal | None:
        """Look anew at the rights of the newest token, as `renew` does. A client without a grant has nothing to lose."""
        async with self._judging:
            return None if self._grant is None else await self._judge(self.token)

    async def _judge(self, token: str | None) -> Principal | None:
        before, self.token = self._grant, token  # also if it is refused, or cannot be judged now: the older one is over
        try:
            grant = self._grant = await self._granted(token)
        except BaseException:
            self._grant = None
            raise
        return None if before is None or before.principal == grant.principal else grant.principal

    async def _granted(self, token: str | None) -> Grant:
        return await granted(self._who, self._scope, token, clock=self._clock)

"""Quarantines: routes that bypass the cache because two of their answers diverged or their handler writes.

All known entries of such a route die as after a write: here, in other processes, and in copies outside. The same holds for
a route whose queries turn out to have a hidden input.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from typing import Any

from quaestor.errors import StoreError
from quaestor.middleware.routes import Plan, Routes
from quaestor.read_path.service import ReadPath
from quaestor.read_path.verification import Fingerprint

_NAMES_AT_ONCE = 1_000


class Quarantines:
    """The quarantines of one middleware. Use from one event loop; on_write() may be called in any thread."""

    def __init__(self, read_path: ReadPath, routes: Routes) -> None:
        self._read_path = read_path
        self._probation = read_path.probation
        self._routes = routes
        self._releases: dict[Any, asyncio.TimerHandle] = {}
        self._under_way = read_path.process.supervisor.errands("quarantines")
        read_path.admission.earlier.hidden_inputs.on_learned.append(self.hidden_input)

    async def stop(self) -> None:
        """End the releases and the work under way."""
        for timer in self._releases.values():
            timer.cancel()
        await self._under_way.aclose()

    async def diverged(
        self,
        plan: Plan,
        key: str,
        registration: str,
        differs: tuple[str, ...],
        answers: tuple[Fingerprint, Fingerprint],
    ) -> None:
        """Quarantine a route with two different answers although no write explains the difference.

        key, registration: of the entry, and its own registration.
        answers: the stored one, and the one that was made for comparison.
        """
        if self._probation.barred(plan.route):
            return  # another of its answers diverged before
        keys = self._begin(plan, differs)
        stored, again = answers
        self._read_path.process.telemetry.verification.divergences.inc()
        self._read_path.process.telemetry.failure(
            "handler", "verification.diverged",
            f"{plan.route_name} answered otherwise ({', '.join(differs)}) though no write changed what it read",
            route=plan.route_name, differs=list(differs),
            stored=stored.digest, stored_bytes=stored.size_bytes, again=again.digest, again_bytes=again.size_bytes,
        )  # fmt: skip
        await self.forget([registration, *await self._own_registrations(keys)], [key, *keys])

    def on_write(self, plan: Plan) -> Callable[[], None]:
        """Return a callback for the first write in the context of a request, callable in any thread and at any time."""
        loop = asyncio.get_running_loop()

        def noticed() -> None:
            try:
                if asyncio.get_running_loop() is loop:
                    return self.writes(plan)
            except RuntimeError:
                pass  # a thread without a loop
            try:
                loop.call_soon_threadsafe(self.writes, plan)
            except RuntimeError:
                return None  # the loop is closed: nothing is served any more

        return noticed

    def writes(self, plan: Plan) -> None:
        """Quarantine a route whose handler writes, or leaves work behind that writes: a hit would lose the write, and a
        background run would repeat it. This process serves no entry of it from now on, and notifies the others at once."""
        if self._probation.barred(plan.route):
            return
        keys = self._begin(plan, ())
        self._read_path.process.telemetry.failure(
            "handler", "handler.writes",
            f"{plan.route_name} writes to the database: its answers are not cached, and its handler is not run again in the"
            " background",
            route=plan.route_name,
        )  # fmt: skip
        self._start_forgetting(keys)

    def hidden_input(self, route: Any) -> None:
        """End the known entries of a route whose queries turned out to have a hidden input. The route goes on being cached."""
        self._start_forgetting(self._routes.forget_route(route))

    def _start_forgetting(self, keys: Sequence[str]) -> None:
        # In a new context, because this may run in the context of the request.
        self._under_way.start(self._forget_route(keys), context=contextvars.Context())

    async def forget(self, registrations: Sequence[str], keys: Sequence[str]) -> None:
        """Drop these entries here, and notify every process that they are dead, as after a write."""
        for key in keys:
            self._read_path.lookup.drop(key)
        for start in range(0, len(registrations), _NAMES_AT_ONCE):
            await self._read_path.explicit.tell(registrations[start : start + _NAMES_AT_ONCE])

    def _begin(self, plan: Plan, differs: tuple[str, ...]) -> list[str]:
        """Bypass a route from now on. Returns the keys that are known of it."""
        probation = self._probation
        probation.begin_anew(plan.probation)
        probation.quarantine(plan.route, plan.route_name, differs, now_ms=self._read_path.clock())
        self._releases[plan.route] = asyncio.get_running_loop().call_later(
            probation.quarantine_ms / 1000, self._release, plan.route
        )
        return self._routes.forget_route(plan.route)

    def release_early(self, plan: Plan) -> None:
        """End a quarantine because runs of the handler agree. The route's next quarantine lasts for its whole time."""
        timer = self._releases.get(plan.route)
        if timer is not None:
            timer.cancel()
        self._probation.note_shortened(plan.route, now_ms=self._read_path.clock())
        self._release(plan.route)

    def _release(self, route: Any) -> None:
        self._releases.pop(route, None)
        self._probation.release(route)
        self._routes.forget_route(route)

    async def _forget_route(self, keys: Sequence[str]) -> None:
        await self.forget(await self._own_registrations(keys), keys)

    async def _own_registrations(self, keys: Sequence[str]) -> list[str]:
        """Return the own registrations of the entries under these keys, here or in the shared store."""
        registrations: list[str] = []
        try:
            for key in keys:
                response = await self._read_path.store.get(key)
                if response is not None:
                    registrations += response.registrations[:1]
        except StoreError as error:
            self._read_path.process.telemetry.failure("store", "read_path.lookup_failed", error)
        return registrations

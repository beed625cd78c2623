"""Rests of a loop: what comes all the time is worked off in fewer batches, what comes seldom at once."""

from __future__ import annotations

import asyncio

import pytest

from quaestor.tasks import Rests


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while it sleeps."""

    now_s = 1_000.0

    def time(self) -> float:
        return self.now_s


def test_a_rest_is_as_long_as_the_batch_and_no_longer_than_the_longest() -> None:
    loop = Loop()

    async def rest_after(took_s: float, idle_s: float = 0.0) -> float:
        rests = Rests(most_s=0.010)
        begun_s = await rests.over()
        loop.now_s += took_s
        rests.worked(begun_s)
        loop.now_s += idle_s
        slept: list[float] = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("quaestor.tasks.asyncio.sleep", sleep)
            await rests.over()
        return sum(slept)

    async def all_of_them() -> list[float]:
        return [
            await rest_after(0.002),
            await rest_after(0.5),
            await rest_after(0.002, 0.001),
            await rest_after(0.002, 1),
        ]

    try:
        assert loop.run_until_complete(all_of_them()) == pytest.approx([0.002, 0.010, 0.001, 0])
    finally:
        loop.close()

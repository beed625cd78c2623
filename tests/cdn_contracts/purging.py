"""Purges through a place, without the queue before it."""

from __future__ import annotations

from collections.abc import Sequence

from quaestor.cdn_adapters import Accepted, Answer, Target
from quaestor.cdn_adapters.requests import requests_of
from tests.cdn_contracts.providers import World


async def purge(world: World, *, tags: Sequence[str] = (), urls: Sequence[str] = ()) -> list[Answer]:
    """The answer to each request of one purge; what was only accepted is completed and asked after."""
    return await send(world, world.place.targets(tags=tags, urls=urls))


async def send(world: World, targets: Sequence[Target]) -> list[Answer]:
    """The same for targets, in as many requests as the place's capabilities ask for."""
    answers = []
    async with world.place.connect() as connection:
        for batch in requests_of(world.place.capabilities, targets):
            answer = await connection.send(batch)
            if isinstance(answer, Accepted):
                assert isinstance(await connection.completed(answer.ticket), Accepted), (
                    "it is under way until it is done"
                )
                world.contract.complete()
                answer = await connection.completed(answer.ticket)
            answers.append(answer)
    return answers


async def send_at_once(world: World, targets: Sequence[Target]) -> Answer:
    """The answer to one request, however many targets it has."""
    async with world.place.connect() as connection:
        return await connection.send(targets)

"""Gentle traffic that keeps the numbers of the demo moving: some readers look at boards, some at one flight.

Popularity is Zipf-like, as in the papers' workloads. Half of the readers come through Varnish, half ask the app.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import accumulate

import httpx

ORIGINS = ("JFK", "EWR", "LGA")
DESTINATIONS = ("LAX", "ORD", "ATL", "BOS", "SFO", "MCO", "CLT", "FLL", "MIA", "DCA", "DTW", "DFW")


def paths(flight_ids: Sequence[str], day: str) -> list[str]:
    """Paths that readers ask for, the most popular first."""
    boards = [f"/departures/{origin}?limit=20" for origin in ORIGINS]
    filtered = [f"/departures/{origin}?dest={dest}&limit=10" for dest in DESTINATIONS for origin in ORIGINS]
    others = [f"/delays?day={day}", *(f"/counts/{origin}?day={day}" for origin in ORIGINS)]
    return boards + others + filtered + [f"/flights/{flight_id}" for flight_id in flight_ids]


def choices(paths: Sequence[str], random_numbers: random.Random, *, exponent: float = 0.8) -> Iterator[str]:
    """Endless draws of paths: the path of rank r has a weight of r ** -exponent."""
    cumulative = list(accumulate(rank**-exponent for rank in range(1, len(paths) + 1)))
    while True:
        yield random_numbers.choices(paths, cum_weights=cumulative)[0]


async def send(
    urls: Sequence[str], drawn: Iterator[str], *, host: str, per_second: float, readers: int = 4, seed: int = 2013
) -> None:
    """Send requests for ever, at about this rate in all, each to one of the base URLs. Failures are ignored.

    host: sent as Host with every URL, so that all readers ask for the same pages.
    """
    random_numbers = random.Random(seed)

    async def read(client: httpx.AsyncClient) -> None:
        for path in drawn:
            with suppress(httpx.HTTPError):
                await client.get(random_numbers.choice(urls) + path)
            await asyncio.sleep(random_numbers.expovariate(per_second / readers))

    async with httpx.AsyncClient(timeout=5.0, headers={"host": host}) as client:
        await asyncio.gather(*(read(client) for _ in range(readers)))

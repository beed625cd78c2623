"""Worlds of one provider each: its contract on a port of this machine, and a place that talks to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cdn_contracts.providers import PROVIDERS, World
from tests.cdn_contracts.serving import serving


def world_of(name: str) -> Iterator[World]:
    """One world, until it is asked for the next."""
    provider = PROVIDERS[name]
    contract = provider.contract()
    with serving(contract) as served:
        if hasattr(contract, "url"):
            contract.url = served.url
        if hasattr(contract, "scheme"):
            contract.scheme = "https"  # as Akamai signs, whatever carries it here
        yield World(provider, contract, served, provider.place(served.url))


@pytest.fixture(params=PROVIDERS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Each provider in turn."""
    yield from world_of(request.param)

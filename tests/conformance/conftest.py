"""The shared Redis in both its forms: what is promised of store, index and sketch on one server is promised on a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from quaestor.redis.clients import SharedClient, shared_client


@pytest.fixture
async def client(shared_url: str, prefix: str) -> AsyncIterator[SharedClient]:
    """As an app process has it, but patient; what carries the prefix is removed in the end."""
    client = shared_client(shared_url, timeout_s=30)
    yield client
    names = [name async for name in client.scan_iter(match=f"*{prefix}*")]
    if names:
        await client.delete(*names)
    await client.aclose()

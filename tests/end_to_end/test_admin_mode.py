"""The mode in the admin API's status: the part of a deployment with a Redis that runs the matching."""

from __future__ import annotations

from contextlib import closing

import httpx
import pytest
from fastapi import FastAPI

from quaestor import Quaestor
from quaestor.admin import AdminApi, AdminToken
from quaestor.event_layer import streams
from quaestor.event_layer.connecting import event_layer
from quaestor.invalidation.grid.resizing.state import GridState, Run, put_state
from quaestor.model import GridShape
from quaestor.testing.servers import Server
from tests.end_to_end.test_admin import API, BEARER, TOKEN

pytestmark = pytest.mark.anyio


async def test_status_names_the_part_that_runs_the_matching(valkey: Server, prefix: str) -> None:
    """Nobody, an elected process with its name, a grid; unknown while Redis does not answer."""
    quaestor = Quaestor(redis_url=valkey.url, deployment=prefix, elect_grid=False)
    site = AdminApi(FastAPI(), quaestor=quaestor, token=AdminToken(TOKEN))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(site), base_url="http://site") as client:

        async def mode() -> tuple[str, str | None]:
            status = (await client.get(f"{API}/status", headers=BEARER)).json()
            return status["mode"], status.get("leader")

        try:
            with closing(event_layer(valkey.url, prefix)) as layer:
                assert await mode() == ("nobody", None)
                assert layer.lease(streams.leader(prefix), "shop-1:77:1f", lease_ms=600_000)
                assert await mode() == ("elected", "shop-1:77")
                serving = Run(run="of a grid", shape=GridShape(query_partitions=1, write_partitions=1))
                put_state(layer, prefix, GridState(serving=serving))
                assert await mode() == ("grid", None)
            valkey.stop()
            assert await mode() == ("unknown", None)
        finally:
            await quaestor.stop()

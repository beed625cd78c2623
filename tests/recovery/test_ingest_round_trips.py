"""Round trips of ingest for one write: the append, which also tells whether a process waits for its own writes."""

from __future__ import annotations

from typing import Any

from quaestor.event_layer import streams
from quaestor.event_layer.redis import RedisEventLayer
from quaestor.event_layer.redis_requests import Command
from tests.recovery.ingesting import Client, count, ingesting

WRITES = 20


class Counting(RedisEventLayer):
    """An event layer that notes its requests."""

    def __init__(self, url: str, deployment: str) -> None:
        super().__init__(url, deployment)
        self.requests: list[tuple[Command, ...]] = []

    def request(self, name: str, *commands: Command) -> list[Any]:
        self.requests.append(commands)
        return super().request(name, *commands)


def test_ingest_asks_along_with_the_append_whether_somebody_waits(
    client: Client, database: Any, prefix: str, redis_url: str
) -> None:
    """Before, each write cost a request of its own for that."""
    layer, beside = Counting(redis_url, prefix), ("GET", streams.awaited(prefix))
    with ingesting(client, layer, prefix, partitions=2) as pipelines:
        layer.requests.clear()
        for key in range(WRITES):
            database.items.insert_one({"_id": key})
            pipelines.until(count(f"{prefix}.items", key + 1))
        requests = list(layer.requests)
    layer.close()
    along = [commands for commands in requests if beside in commands and len(commands) > 1]
    alone = [commands for commands in requests if commands == (beside,)]
    assert len(along) >= WRITES / 2
    assert len(alone) < WRITES / 4

"""Requests to a Redis or Valkey server, and the meaning of its answers for a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import redis

from quaestor.errors import ConfigurationError, EventLayerError
from quaestor.event_layer import offsets

FIELD: Final = b"p"
"""Field of an entry: its payload."""
ANSWER_TIMEOUT_S: Final = 5.0
LONGEST_BLOCK_MS: Final = 2_000
"""A blocked read must end well before the answer counts as overdue."""
OPTIONS: Final[dict[str, Any]] = {
    "protocol": 2, "decode_responses": False, "socket_timeout": ANSWER_TIMEOUT_S, "socket_connect_timeout": 2.0,
    "socket_keepalive": True, "health_check_interval": 0, "max_connections": 2**31,
}  # fmt: skip
"""Options of connections.

max_connections: the driver counts every attempt, even failed ones, and refuses the next at the limit.
"""

Connection = Any
"""redis.connection.ConnectionInterface; most of its methods carry no types."""
Command = tuple[Any, ...]
Position = tuple[int, int]
"""Position of an entry: milliseconds and sequence."""


def exchange(connection: Connection, commands: Sequence[Command]) -> list[Any]:
    """Send commands in one request and read all replies; refusals are returned as exceptions in their place."""
    connection.send_packed_command(connection.pack_commands(commands))
    return [reply(connection) for _ in commands]


def reply(connection: Connection) -> Any:
    """Return the next reply; a refusal is returned."""
    try:
        return connection.read_response()
    except redis.ResponseError as refusal:
        return refusal


def require(replies: list[Any]) -> list[Any]:
    """Return the replies. Raises EventLayerError if one is a refusal."""
    for answer in replies:
        if isinstance(answer, Exception):
            raise EventLayerError(f"Redis refused a request: {answer}") from answer
    return replies


def position(entry_id: bytes) -> Position:
    at_ms, _, sequence = entry_id.partition(b"-")
    return int(at_ms), int(sequence)


def offset(entry_id: bytes, epoch: str) -> str:
    at_ms, _, sequence = entry_id.decode().partition("-")
    return offsets.of_digits(at_ms, sequence, epoch)


def presence_of(stream: str, seen: Position) -> tuple[Command, ...]:
    """Return the commands whose replies `is_lost` judges."""
    entry_id = f"{seen[0]}-{seen[1]}"
    return (
        ("XRANGE", stream, entry_id, entry_id),
        ("XRANGE", stream, "-", "+", "COUNT", 1),
        ("XINFO", "STREAM", stream),
        ("EXISTS", stream),
    )


def is_lost(replies: Sequence[Any], seen: Position) -> bool:
    """Whether the entry is missing for another reason than trimming, which only takes entries off the front."""
    entry, first, newest, exists = replies
    if exists == 0:
        return True
    require([entry, first, newest])
    if entry:
        return False
    facts = dict(zip(newest[::2], newest[1::2], strict=True))
    return position(facts[b"last-generated-id"]) < seen or bool(first and position(first[0][0]) < seen)


def facts_of(info: Any) -> dict[str, str]:
    """Return the facts of an INFO reply; empty if it was refused: some hosted servers hide it."""
    if isinstance(info, Exception):
        return {}
    return dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)


def require_no_eviction(memory: Any) -> None:
    """Refuse a server that may evict the pipelines: raises ConfigurationError.

    memory: the reply to INFO memory.
    """
    facts = facts_of(memory)
    if facts.get("maxmemory", "0") != "0" and facts.get("maxmemory_policy", "").startswith("allkeys"):
        raise ConfigurationError(
            f"this Redis evicts any key when memory runs out (maxmemory-policy {facts['maxmemory_policy']}), streams too; "
            "set maxmemory-policy to noeviction or volatile-lru"
        )


def require_one_server(cluster: Any) -> None:
    """Refuse a node of a cluster: raises ConfigurationError.

    cluster: the reply to INFO cluster.
    """
    if facts_of(cluster).get("cluster_enabled") == "1":
        raise ConfigurationError(
            "this Redis is a node of a Redis Cluster; set redis_url to redis+cluster://host:port (or rediss+cluster://)"
        )

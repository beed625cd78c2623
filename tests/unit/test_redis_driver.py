"""The driver's private names that are relied on: an upgrade that changes one fails here, and says which."""

from __future__ import annotations

import ast
import select
import socket

import pytest
import redis
from redis.asyncio.cluster import RedisCluster

from quaestor.redis.cluster_client import SharedCluster
from tests.architecture.sources import ROOT

ROOMS = ("quaestor/redis", "quaestor/event_layer", "quaestor/store", "quaestor/cache_sketch")
RELIED_ON = {"quaestor/event_layer/redis_cluster/blocking_reads.py": {"_sock"}}
"""The reason of each: docs/adr/0014-kept-libraries.md."""


def private_names(tree: ast.Module) -> set[str]:
    """Private attributes of other objects than `self` and `cls`."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
        and not (isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name) and node.value.func.id == "super")
    }  # fmt: skip


def test_no_other_private_names_of_the_driver_are_used() -> None:
    """Names that a module defines itself, for its own objects, do not count."""
    results = {}
    for source in sorted(source for room in ROOMS for source in (ROOT / room).rglob("*.py")):
        tree = ast.parse(source.read_text())
        own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        own |= {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
        }
        if names := private_names(tree) - own:
            results[str(source.relative_to(ROOT))] = names
    assert results == RELIED_ON


def test_a_connection_has_its_socket_in_sock(redis_url: str) -> None:
    """Waiting for several connections at once needs it: the driver has no public way to watch more than one."""
    connection = redis.ConnectionPool.from_url(redis_url).make_connection()
    connection.connect()
    try:
        assert isinstance(connection._sock, socket.socket), "redis-py's Connection._sock is no socket any more"
        poll = select.poll()
        poll.register(connection._sock, select.POLLIN)
        connection.send_command("PING")
        assert poll.poll(10_000)
        assert connection.read_response() == b"PONG"
    finally:
        connection.disconnect()


@pytest.mark.anyio
async def test_the_shared_client_s_additions_hide_nothing_of_the_driver_s() -> None:
    """The client overrides two public methods and nothing else."""
    names = {name for name in vars(SharedCluster) if not name.startswith(("__", "_abc_", "_is_protocol"))}
    drivers = {name for kind in RedisCluster.__mro__ for name in (*vars(kind), *getattr(kind, "__slots__", ()))}
    assert {name for name in names if name in drivers} == {"execute_command", "aclose"}
    added = {
        node.attr
        for node in ast.walk(ast.parse((ROOT / "quaestor/redis/cluster_client.py").read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    assert not added & drivers

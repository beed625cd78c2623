"""A real Valkey Cluster on loopback, made without any tool: primaries that share the slots, and replicas of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import redis
from redis.crc import key_slot

from quaestor.event_layer import streams
from quaestor.testing import servers

NODE_TIMEOUT_MS = 1_000
"""After which a replica takes over."""
PATIENT_TIMEOUT_MS = 10_000
"""Until the cluster is made, and where no server can take over.

Servers that stood still for a second must neither forget their next peer, nor take each other for dead.
"""
MEET_AGAIN_S = 3.0
_SLOTS = 16_384


@dataclass
class RedisCluster:
    """primaries, replicas: as it was made; the i-th replica is the i-th primary's."""

    primaries: list[servers.Server]
    replicas: list[servers.Server]

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"{servers.HOST}:{server.port}" for server in self.primaries)

    def has(self, name: str) -> int:
        """Which of the primaries had this key's slot when the cluster was made."""
        slot = key_slot(name.encode())
        return next(i for i in range(len(self.primaries)) if slot in _slots(i, len(self.primaries)))

    def partition(self, of: Callable[..., str], deployment: str, shard: int) -> int:
        """The first partition whose pipeline (of: streams.writes, ...) lies there."""
        return next(i for i in range(100) if self.has(of(deployment, i)) == shard)

    def wait_until_whole(self, but: int | None = None) -> None:
        """Every server that runs, except one, takes every slot for served."""
        running = [server for server in (*self.primaries, *self.replicas) if server.process is not None]
        for i, server in enumerate(running):
            if i != but:
                until(partial(_whole, server), f"{server.port} sees a whole cluster")

    def stop(self) -> None:
        for server in (*self.primaries, *self.replicas):
            server.kill()


def _slots(i: int, primaries: int) -> range:
    return range(_SLOTS * i // primaries, _SLOTS * (i + 1) // primaries)


def connect(server: servers.Server) -> redis.Redis:
    return redis.Redis(host=servers.HOST, port=server.port, socket_timeout=5)


def facts(server: servers.Server) -> dict[str, str]:
    with connect(server) as client:
        state = client.execute_command("CLUSTER INFO")
    text = state.decode() if isinstance(state, bytes) else state
    if isinstance(text, dict):
        return dict(text)
    return dict(line.split(":", 1) for line in text.split() if ":" in line)


def until(true: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
    """Polls; fails with what was waited for."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with suppress(redis.RedisError, OSError):
            if true():
                return
        time.sleep(0.02)
    raise AssertionError(f"waited {timeout_s} s in vain: {what}")


def _whole(server: servers.Server) -> bool:
    return facts(server)["cluster_state"] == "ok"


def _knows(server: servers.Server, nodes: int) -> bool:
    with connect(server) as client:
        known = client.execute_command("CLUSTER NODES")
    return sum("handshake" not in node["flags"] for node in known.values()) == nodes


def _follow(replica: servers.Server, primary: servers.Server) -> bool:
    with connect(primary) as client:
        name = client.execute_command("CLUSTER", "MYID")
    with connect(replica) as client:
        client.execute_command("CLUSTER", "REPLICATE", name)
    return True


def _follows(replica: servers.Server) -> bool:
    with connect(replica) as client:
        return bool(client.info("replication")["master_link_status"] == "up")


def _node(folder: Path, name: str, persistent: bool) -> servers.Server:
    home = folder / name
    home.mkdir()
    server = servers.redis_server(home, persistent=persistent)
    server.arguments = [
        *server.arguments, "--cluster-enabled", "yes", "--cluster-port", str(servers.free_port()),
        "--cluster-node-timeout", str(PATIENT_TIMEOUT_MS), "--cluster-replica-validity-factor", "0",
        "--repl-diskless-sync-delay", "0",
    ]  # fmt: skip
    return server


def _give_up_soon(server: servers.Server) -> None:
    """Have a server that is silent for so long replaced, also after this server was started again."""
    with connect(server) as client:
        client.config_set("cluster-node-timeout", NODE_TIMEOUT_MS)
    server.arguments = [*server.arguments, "--cluster-node-timeout", str(NODE_TIMEOUT_MS)]


def _meet(everybody: Sequence[servers.Server]) -> None:
    """A handshake that is not over when a server stands still may be given up without a word, so it is asked for again."""
    first, *others = everybody
    asked_s = -math.inf

    def met() -> bool:
        nonlocal asked_s
        if all(_knows(server, len(everybody)) for server in everybody):
            return True
        if time.monotonic() > asked_s + MEET_AGAIN_S:
            asked_s = time.monotonic()
            with connect(first) as client:
                for server in others:
                    client.execute_command("CLUSTER", "MEET", servers.HOST, server.port, _bus_port(server))
        return False

    until(met, "all have met")


def _bus_port(server: servers.Server) -> int:
    arguments = list(server.arguments)
    return int(arguments[arguments.index("--cluster-port") + 1])


@contextmanager
def redis_cluster(
    folder: Path, *, primaries: int = 3, replicas: bool = False, persistent: bool = False
) -> Iterator[RedisCluster]:
    """Slots are shared in equal ranges. persistent: see servers.redis_server."""
    made = RedisCluster(
        [_node(folder, f"primary-{i}", persistent) for i in range(primaries)],
        [_node(folder, f"replica-{i}", persistent) for i in range(primaries if replicas else 0)],
    )
    everybody = [*made.primaries, *made.replicas]
    try:
        for server in everybody:
            server.start()
        for i, server in enumerate(made.primaries):
            mine = _slots(i, primaries)
            with connect(server) as client:
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", mine.start, mine.stop - 1)
        _meet(everybody)
        for primary, replica in zip(made.primaries, made.replicas, strict=False):
            until(partial(_follow, replica, primary), "a replica has been made")
            until(partial(_follows, replica), "it follows")
        made.wait_until_whole()
        if replicas:
            for server in everybody:
                _give_up_soon(server)
        yield made
    finally:
        made.stop()


def migrate(cluster: RedisCluster, name: str, source: int, target: int, *, between: Callable[[], None]) -> None:
    """Move the slot of this key, key by key. between: called before each step, while the slot moves."""
    slot = key_slot(name.encode())
    nodes = [cluster.primaries[i] for i in (source, target)]
    with connect(nodes[0]) as here, connect(nodes[1]) as there:
        ids = [client.execute_command("CLUSTER", "MYID") for client in (here, there)]
        there.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
        here.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
        between()
        while names := here.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1):
            here.execute_command("MIGRATE", servers.HOST, nodes[1].port, names[0], 0, 5_000)
            between()
        for client in (there, here):
            client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[1])


def shard_of(cluster: RedisCluster, deployment: str) -> int:
    """The one that has what the whole deployment shares."""
    return cluster.has(streams.epoch(deployment))

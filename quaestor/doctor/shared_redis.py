"""Checks of the Redis (or Valkey) that app processes and grid share, on each server of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import redis

from quaestor.doctor import clocks
from quaestor.doctor.diagnosis import Diagnosis, mend, ok, warn
from quaestor.errors import ConfigurationError
from quaestor.redis import clients
from quaestor.redis.address import cluster_address, is_cluster
from quaestor.settings import Settings

SUBJECT: Final = "redis"
_PATIENCE_S: Final = 5.0
_OLDEST: Final = 7
_MB: Final = 1024 * 1024
_FULL: Final = 0.9
_SHARE_OF_MACHINE: Final = 0.7
"""Share of its machine's memory that a server may use; forks for persistence and buffers of its clients need the rest."""

Facts = Mapping[str, Any]
"""Answer of INFO."""


def examined(url: str, settings: Settings) -> list[Diagnosis]:
    """Diagnoses of one Redis or cluster; nothing is changed. Blocking."""
    try:
        with clients.client(url, socket_timeout=_PATIENCE_S, socket_connect_timeout=_PATIENCE_S) as client:
            servers = _servers(client)
            diagnoses = [
                diagnosis for name, facts in servers.items() for diagnosis in _server(url, name, facts, settings)
            ]
            return [*diagnoses, _clock(client, settings)]
    except ConfigurationError as error:
        return [mend(SUBJECT, str(error))]
    except redis.RedisError as error:
        return [mend(SUBJECT, f"Redis does not answer: {error}", "sudo systemctl start valkey-server")]


def _servers(client: redis.Redis | redis.RedisCluster) -> Mapping[str, Facts]:
    """Facts about the primaries, by host:port."""
    if isinstance(client, redis.RedisCluster):
        reply: Any = client.info(target_nodes=redis.RedisCluster.PRIMARIES)
        facts_of_servers: Mapping[str, Facts] = reply
        return facts_of_servers
    options = client.connection_pool.connection_kwargs
    facts: Any = client.info()
    return {f"{options.get('host', options.get('path', ''))}:{options.get('port', 6379)}": facts}


def _server(url: str, name: str, facts: Facts, settings: Settings) -> Iterator[Diagnosis]:
    command = _command(url, name)
    yield _version(name, facts)
    if facts.get("role") == "slave":
        yield mend(
            SUBJECT, f"{name} is a replica, which takes no writes: name the primary in REDIS_URL", command("ROLE")
        )
    if not is_cluster(url) and facts.get("cluster_enabled") == 1:
        hosts = f"redis+cluster://{name}"
        yield mend(
            SUBJECT, f"{name} is a node of a cluster; REDIS_URL must name the cluster", f"export REDIS_URL='{hosts}'"
        )
    yield _policy(name, facts, command)
    yield _size(name, facts, settings, command)
    yield _persistence(name, facts, command)


def _version(name: str, facts: Facts) -> Diagnosis:
    if facts.get("server_name") == "valkey":
        return ok(SUBJECT, f"Valkey {facts.get('valkey_version', '')} at {name}")
    text = str(facts.get("redis_version", ""))
    number = re.match(r"\d+", text)
    if number is not None and int(number[0]) >= _OLDEST:
        return ok(SUBJECT, f"Redis {text} at {name}")
    return mend(
        SUBJECT,
        f"Redis {text} at {name}: 7 is the oldest that is supported (scripts that free memory have to run when it is full); any "
        "Valkey will do",
        "sudo apt-get install valkey-server",
    )


def _policy(name: str, facts: Facts, command: Callable[[str], str]) -> Diagnosis:
    policy = str(facts.get("maxmemory_policy", ""))
    if not policy.startswith("allkeys"):
        return ok(SUBJECT, f"maxmemory-policy {policy or 'not told'} at {name}")
    sentence = (
        f"maxmemory-policy {policy} at {name} throws any key away when memory runs out, pipelines, index and sketch too: "
        "nothing is cached with it"
    )
    remedy = (command("CONFIG SET maxmemory-policy noeviction"), command("CONFIG REWRITE"))
    if facts.get("maxmemory", 0):
        return mend(SUBJECT, sentence, *remedy)
    return warn(SUBJECT, f"{sentence} as soon as there is a maxmemory", *remedy)


def _size(name: str, facts: Facts, settings: Settings, command: Callable[[str], str]) -> Diagnosis:
    bound, used = int(facts.get("maxmemory", 0)), int(facts.get("used_memory", 0))
    machine = int(facts.get("total_system_memory", 0))
    place = f"{used / _MB:,.0f} MB in use at {name}"
    if not bound:
        share = max(256, int(machine * _SHARE_OF_MACHINE) // _MB)
        return warn(
            SUBJECT,
            f"{place}, without a bound (maxmemory 0): the machine's {machine / _MB:,.0f} MB are the bound, and the system kills "
            "Redis there",
            command(f"CONFIG SET maxmemory {share}mb"),
            command("CONFIG REWRITE"),
        )
    place += f" of {bound / _MB:,.0f}"
    if used > bound * _FULL:
        return mend(
            SUBJECT,
            f"{place}: nearly full; above the bound answers are not stored and writes wait in the grid's memory",
            command(f"CONFIG SET maxmemory {2 * bound // _MB}mb"),
            command("CONFIG REWRITE"),
        )
    if bound < settings.grid.pipeline_max_bytes:
        return warn(
            SUBJECT,
            f"{place}: one pipeline alone may become {settings.grid.pipeline_max_bytes // _MB:,} MB (pipeline_max_bytes)",
            f"export QUAESTOR_PIPELINE_MAX_BYTES={bound // 8}",
        )
    if bound < settings.store.shared_bytes:
        return warn(
            SUBJECT,
            f"{place}: less than the budget of the entries, {settings.store.shared_bytes // _MB:,} MB (shared_bytes)",
            command(f"CONFIG SET maxmemory {2 * settings.store.shared_bytes // _MB}mb"),
            command("CONFIG REWRITE"),
        )
    return ok(SUBJECT, place)


def _persistence(name: str, facts: Facts, command: Callable[[str], str]) -> Diagnosis:
    for what, fact in (("snapshot", "rdb_last_bgsave_status"), ("append-only file", "aof_last_write_status")):
        if facts.get(fact, "ok") != "ok":
            return mend(
                SUBJECT,
                f"the last {what} at {name} failed, and Redis may refuse writes because of that; see its log, make room on the "
                "disk, then try again",
                command("BGSAVE"),
            )
    if facts.get("aof_enabled"):
        return ok(SUBJECT, f"writes are appended to a file at {name}: a restart keeps the cache")
    return warn(
        SUBJECT,
        f"no append-only file at {name}: after a restart of Redis the cache starts empty, and browsers ask for everything again "
        "until the longest lifetime is over; nothing becomes stale",
        command("CONFIG SET appendonly yes"),
        command("CONFIG REWRITE"),
    )


def clock(url: str, settings: Settings) -> Diagnosis:
    """Diagnosis of the server's clock, compared with this machine's. Blocking. Raises RedisError, ConfigurationError."""
    with clients.client(url, socket_timeout=_PATIENCE_S, socket_connect_timeout=_PATIENCE_S) as client:
        return _clock(client, settings)


def _clock(client: redis.Redis | redis.RedisCluster, settings: Settings) -> Diagnosis:
    def redis_clock() -> float:
        reply: Any = client.time()
        seconds, microseconds = reply
        return float(seconds) * 1000 + float(microseconds) / 1000

    return clocks.compared("redis", redis_clock, staleness_bound_ms=settings.grid.staleness_bound_ms)


def _command(url: str, name: str) -> Callable[[str], str]:
    """Shell command that runs a command on a server and, if there is a password, asks the user for it."""
    if is_cluster(url):
        address = cluster_address(url)
        user, password, tls = address.options.get("username"), address.options.get("password"), address.tls
    else:
        options: Any = redis.connection.parse_url(url)  # type: ignore[no-untyped-call]
        user, password, tls = options.get("username"), options.get("password"), url.startswith("rediss")
    host, _, port = name.rpartition(":")
    where = f"-s {host}" if host.startswith("/") else f"-h {host} -p {port}"
    options_text = (
        where + (" --tls" if tls else "") + (f" --user {user}" if user else "") + (" --askpass" if password else "")
    )
    return lambda command: f"redis-cli {options_text} {command}"

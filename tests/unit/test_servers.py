"""The servers come up, answer, and leave no process behind."""

from __future__ import annotations

import psutil
import pymongo
import redis

from quaestor.testing import servers


def test_mongod_is_a_writable_replica_set_with_change_streams(mongo_url: str, prefix: str) -> None:
    with pymongo.MongoClient(mongo_url) as client, client[prefix].c.watch() as stream:
        client[prefix].c.insert_one({"_id": 1})
        assert next(stream)["operationType"] == "insert"
        client.drop_database(prefix)


def test_redis_server_stops_with_its_context() -> None:
    with servers.running(servers.redis_server, "valkey") as server:
        assert redis.Redis.from_url(server.url).ping()
        pid = server.pid
    assert not psutil.pid_exists(pid)

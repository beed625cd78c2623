"""The demo's processes: found missing before anything starts, writing on command, gone with all their children."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pymongo
import pytest

from quaestor.errors import ConfigurationError, DatabaseError, DependencyError
from quaestor.testing import reaper, servers
from quaestor.testing.other_process import OtherProcess
from tests.support import eventually


def test_the_other_process_writes_on_command_and_says_when_it_was_acknowledged(mongo_url: str, prefix: str) -> None:
    client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(mongo_url)
    with client, OtherProcess(mongo_url, prefix, "c") as other:
        collection = client[prefix].c
        times = [
            other.write("insert_one", {"_id": 1, "n": 1}),
            other.write("update_one", {"_id": 1}, {"$set": {"n": 2}}),
            other.write("find_one_and_update", {"_id": 1}, {"$inc": {"n": 1}}),
            other.write("bulk_write", [["insert_one", {"_id": 2}], ["update_one", {"_id": 2}, {"$set": {"n": 5}}]]),
            other.write("update_many", {}, {"$inc": {"n": 10}}),
            other.write("replace_one", {"_id": 2}, {"n": 0}),
            other.write("delete_one", {"_id": 1}),
        ]
        assert times == sorted(times)
        assert list(collection.find()) == [{"_id": 2, "n": 0}]
        with pytest.raises(DatabaseError, match="duplicate key"):
            other.write("insert_one", {"_id": 2})
        with pytest.raises(DatabaseError, match="unknown operation"):
            other.write("drop")
        client.drop_database(prefix)


def test_the_other_process_ends_with_its_context(mongo_url: str, prefix: str) -> None:
    with OtherProcess(mongo_url, prefix) as other:
        pid = other._process.pid
        assert psutil.pid_exists(pid)
    assert not psutil.pid_exists(pid)


def family(folder: Path) -> servers.Server:
    """A process whose child ignores SIGTERM and outlives it."""
    child = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    )
    parent = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE)\n"
        "child.stdout.readline(); print('READY', flush=True); time.sleep(600)"
    )
    log = folder / "family.log"
    return servers.Server(
        "family", [sys.executable, "-c", parent], folder, 0, "", ready=lambda: "READY" in log.read_text()
    )


def alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


@pytest.mark.anyio
async def test_stopping_a_server_ends_what_it_had_started_even_if_that_will_not_stop(tmp_path: Path) -> None:
    server = family(tmp_path)
    server.start()
    processes = [psutil.Process(server.pid), *reaper.descendants(server.pid)]
    assert len(processes) == 2
    reaper.stop_tree(server, grace_s=0.2)
    await eventually(lambda: not any(map(alive, processes)))  # a slow machine takes longer over what was killed


def test_a_server_that_ends_at_once_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    server = servers.Server(
        "broken", [sys.executable, "-c", "raise SystemExit('no such option')"], tmp_path, 1, "", ready=lambda: False
    )
    with pytest.raises(DependencyError, match="no such option"):
        server.start()


def test_a_standalone_mongod_is_refused_with_the_remedy() -> None:
    def standalone(folder: Path) -> servers.Server:
        return servers.mongod_server(folder, replica_set=False)

    with (
        servers.running(standalone, "mongod") as server,
        pytest.raises(ConfigurationError, match=r"standalone.*--replSet"),
    ):
        servers.require_replica_set(server.url)


def test_a_replica_set_is_accepted(mongo_url: str) -> None:
    servers.require_replica_set(mongo_url)


@pytest.mark.parametrize("url", ["mongodb://127.0.0.1:1/", "mongodb://[", "nonsense://"])
def test_a_mongo_url_that_leads_nowhere_is_refused_with_the_remedy(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^MONGO_URL=.* does not answer \([^\n]{1,120}\); start it or unset"):
        servers.require_replica_set(url)


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1", "nonsense"])
def test_a_redis_url_that_leads_nowhere_is_refused_with_the_remedy(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^REDIS_URL=.* does not answer .*; start it or unset"):
        servers.require_redis(url)

"""`quaestor doctor`: what is wrong is named with the command that mends it, and that command mends it."""

from __future__ import annotations

import asyncio
import os
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest
import redis

from quaestor import Quaestor
from quaestor.testing import servers
from tests.doctor.called import Client, carry_out, doctor, ran
from tests.support import PATIENT, eventually

pytestmark = pytest.mark.anyio


@pytest.fixture
def collections(mongo_url: str, prefix: str) -> Iterator[Any]:
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
        database = client[prefix]
        database.create_collection("with", changeStreamPreAndPostImages={"enabled": True})
        database.create_collection("without")
        database.create_collection("it's; \x1b[31m")
        yield database
        client.drop_database(prefix)


async def test_the_remedies_for_a_standalone_mongod_suffice(standalone: servers.Server) -> None:
    """After the restart and the initiation that `doctor` names, nothing is left to mend, with or without the replica
    set's name in the URL.
    """
    for url in (standalone.url, f"{standalone.url}?replicaSet=rs0"):
        report = doctor("--mongo-url", url)
        assert report.status == 1
        assert [finding["subject"] for finding in report.to_mend()] == ["mongod"]
        assert "standalone" in report.one("mongod")["sentence"]
    restart, initiate, name = report.one("mongod")["remedy"]
    standalone.stop()
    standalone.arguments = shlex.split(restart)
    standalone.launch()
    with pymongo.MongoClient[dict[str, Any]](standalone.url, directConnection=True) as client:
        client.admin.command("ping")
        report = doctor("--mongo-url", standalone.url)
        assert "never initiated" in report.one("mongod")["sentence"]
        carry_out(initiate, client)
        await eventually(lambda: client.admin.command("hello")["isWritablePrimary"])
    report = doctor("--mongo-url", name.partition("=")[2].strip("'"))
    assert report.to_mend() == []
    assert report.status == 0


def test_the_settings_without_their_default_are_named_with_their_source(mongo_url: str) -> None:
    """A password is hidden; an unknown variable has to be mended, and the rest is examined all the same."""
    report = doctor("--mongo-url", mongo_url, QUAESTOR_MEMORY_BYTES="5", QUAESTOR_DEPLOYMENT="shop")
    assert report.level("settings") == "ok"
    assert "memory_bytes=5 (environment)" in report.one("settings")["sentence"]
    assert "deployment='shop' (environment)" in report.one("settings")["sentence"]
    report = doctor("--mongo-url", mongo_url, QUAESTOR_MEMORY_BITES="5")
    assert "did you mean QUAESTOR_MEMORY_BYTES?" in report.to_mend()[0]["sentence"]
    assert report.about("redis")
    report = doctor("--mongo-url", mongo_url, QUAESTOR_HEARTBEAT_MS="5000")
    assert "at most half of staleness_bound_ms" in report.one("settings")["sentence"]


def test_several_workers_need_no_redis(mongo_url: str) -> None:
    """Several workers are fine without Redis, and the limits are named: read-your-writes holds within a process, and
    within its bound.
    """
    report = doctor("--mongo-url", mongo_url)
    assert report.level("redis") == "ok"
    sentence = report.one("redis")["sentence"]
    assert "also with several workers" in sentence
    assert "waits until its process serves nothing older, for 50 ms at most (read_your_writes_ms)" in sentence
    assert "another process may serve the older answer for some milliseconds" in sentence


def test_a_url_with_the_name_of_another_set_is_answered_with_the_right_one(mongo_url: str) -> None:
    report = doctor("--mongo-url", mongo_url.replace("rs0", "rs9"))
    (finding,) = report.to_mend()
    assert "belongs to the replica set rs0, the URL says rs9" in finding["sentence"]
    assert finding["remedy"] == [f"export MONGO_URL='{mongo_url}'"]


def test_parts_that_do_not_answer_or_are_not_named_are_reported() -> None:
    report = doctor("--mongo-url", f"mongodb://127.0.0.1:{servers.free_port()}/?replicaSet=rs0")
    assert "does not answer" in report.to_mend()[0]["sentence"]
    report = doctor()
    assert "no MongoDB is named" in report.to_mend()[0]["sentence"]


def test_images_are_reported_by_collection_and_turned_on_by_the_command(
    mongo_url: str, prefix: str, collections: Any
) -> None:
    """The command works for a collection whose name holds characters that a shell or a terminal would obey."""
    report = doctor("--mongo-url", mongo_url)
    assert report.status == 0, "it costs, but nothing is wrong"
    assert report.level("images", f"{prefix}.with ") == "ok"
    without = report.about("images", f"{prefix}.without ") + report.about("images", f"{prefix}.it's; ")
    assert [finding["level"] for finding in without] == ["warn", "warn"]
    assert report.level("mongod") == report.level("clock of mongod") == report.level("write concern") == "ok"
    shown = ran("--mongo-url", mongo_url).stdout
    assert "\x1b" not in shown
    assert f"{prefix}.it's; ?[31m records no" in shown
    for finding in without:
        carry_out(finding["remedy"][0], collections.client)
    report = doctor("--mongo-url", mongo_url)
    assert {finding["level"] for finding in report.about("images", f"{prefix}.")} == {"ok"}


def test_tools_that_write_without_change_events_are_named_by_their_traces(tmp_path: Path) -> None:
    """A transaction is logged like an applyOps, and is none."""
    server = servers.mongod_server(tmp_path)
    server.start()
    try:
        with pymongo.MongoClient[dict[str, Any]](server.url) as client:
            client.shop.items.insert_one({"_id": 1})
            with client.start_session() as session, session.start_transaction():
                client.shop.items.update_one({"_id": 1}, {"$set": {"n": 1}}, session=session)
            assert doctor("--mongo-url", server.url).about("applyOps") == []
            client.admin.command({"applyOps": [{"op": "i", "ns": "shop.items", "o": {"_id": 2}}]})
            report = doctor("--mongo-url", server.url)
            assert report.level("applyOps", "was used here at") == "warn"
            assert "quaestor invalidate --collection" in report.one("applyOps")["remedy"][0]
            client.mongosync_reserved_for_internal_use.resumeData.insert_one({"_id": 1})
            assert doctor("--mongo-url", server.url).level("applyOps", "mongosync has worked here") == "warn"
    finally:
        server.stop()


def test_missing_rights_of_a_user_or_of_no_user_are_named(guarded: servers.Server, root: Client) -> None:
    """The named commands, carried out one after the other, leave nothing to mend."""
    report = doctor("--mongo-url", guarded.url)
    assert "names nobody" in report.one("mongod rights")["sentence"]
    carry_out(report.one("mongod rights")["remedy"][0], root)
    named = guarded.url.replace("mongodb://", "mongodb://quaestor:PASSWORD@")
    assert doctor("--mongo-url", named).to_mend() == []

    root.shop.items.insert_one({})
    root.admin.command("createUser", "app", pwd="secret", roles=[{"role": "read", "db": "shop"}])
    as_app = guarded.url.replace("mongodb://", "mongodb://app:secret@")
    report = doctor("--mongo-url", as_app, QUAESTOR_PRE_IMAGES="enable", QUAESTOR_JOURNAL_FLUSH_MS="2")
    assert report.status == 1
    assert report.level("journal", "may not remove from quaestor.control") == "warn"
    assert [finding["subject"] for finding in report.to_mend()] == ["mongod rights", "images"]
    assert report.level("mongod rights", "quaestor.control") == "warn"
    assert report.level("write concern") == "warn"
    assert "secret" not in str(report.findings)
    for finding in report.findings:
        if finding["subject"] in ("mongod rights", "images", "write concern"):
            carry_out(finding["remedy"][0], root)
    report = doctor("--mongo-url", as_app, QUAESTOR_PRE_IMAGES="enable", QUAESTOR_JOURNAL_FLUSH_MS="2")
    assert report.to_mend() == []
    assert report.level("journal") == "ok"
    assert {
        finding["level"] for finding in report.findings if finding["subject"] in ("mongod rights", "write concern")
    } == {"ok"}


def test_a_default_write_concern_of_one_is_reported_where_it_can_be_rolled_back(mongo_url: str) -> None:
    """w=1 is no fault in a set of one member, which has no member to disagree; w=0 is a fault everywhere."""
    report = doctor("--mongo-url", f"{mongo_url}&w=1")
    assert [finding["level"] for finding in report.about("write concern")] == ["ok"]
    report = doctor("--mongo-url", f"{mongo_url}&w=0")
    assert [finding["level"] for finding in report.about("write concern")] == ["mend", "ok"]


def test_a_redis_that_evicts_anything_is_mended_by_the_commands(mongo_url: str, valkey: servers.Server) -> None:
    with redis.Redis.from_url(valkey.url) as client:
        client.config_set("maxmemory", "100mb")
        client.config_set("maxmemory-policy", "allkeys-lru")
        report = doctor("--mongo-url", mongo_url, "--redis-url", valkey.url)
        assert [finding["subject"] for finding in report.to_mend()] == ["redis", "grid"]
        assert "allkeys-lru" in report.to_mend()[0]["sentence"]
        assert report.level("redis", "pipeline_max_bytes") == report.level("redis", "no append-only file") == "warn"
        assert report.level("clock of redis") == "ok"
        for finding in report.about("redis"):
            for command in finding["remedy"]:
                words = shlex.split(command)
                if "SET" in words:  # not REWRITE: this server has no file of its own
                    assert words[:5] == ["redis-cli", "-h", servers.HOST, "-p", str(valkey.port)]
                    client.execute_command(*words[5:])
        report = doctor("--mongo-url", mongo_url, "--redis-url", valkey.url)
        assert report.to_mend() == []
        assert report.one("grid")["sentence"].startswith(
            "nobody runs the matching now; the first app process that starts is"
        )
        assert report.level("redis", "appended to a file") == "ok"
        client.config_set("maxmemory", "0")
        report = doctor("--mongo-url", mongo_url, "--redis-url", valkey.url)
        assert report.level("redis", "without a bound") == "warn"


async def test_the_elected_process_is_named(mongo_url: str, valkey: servers.Server, prefix: str) -> None:
    quaestor = Quaestor(mongo_url=mongo_url, redis_url=valkey.url, deployment=prefix, **PATIENT)
    await quaestor.start()
    try:
        where = ("--mongo-url", mongo_url, "--redis-url", valkey.url, "--deployment", prefix)
        expected = f"elected: app process {socket.gethostname()}:{os.getpid()} runs 1 x 1 cells, all fresh"

        async def named() -> bool:
            report = await asyncio.to_thread(doctor, *where)
            return bool(report.one("grid")["sentence"] == expected)

        await eventually(named)
    finally:
        await quaestor.stop()


def test_a_redis_smaller_than_the_budget_of_the_entries_is_warned_of(mongo_url: str, valkey: servers.Server) -> None:
    """Where a pipeline has room. The command of the remedy gives the entries room too."""
    where = ("--mongo-url", mongo_url, "--redis-url", valkey.url)
    with redis.Redis.from_url(valkey.url) as client:
        client.config_set("maxmemory", "100mb")
        small = doctor(*where, QUAESTOR_PIPELINE_MAX_BYTES="1000000").one("redis", "budget of the entries")
        assert small["level"] == "warn"
        assert "of 100: less than the budget of the entries, 512 MB (shared_bytes)" in small["sentence"]
        client.execute_command(*shlex.split(small["remedy"][0])[5:])
        assert doctor(*where, QUAESTOR_PIPELINE_MAX_BYTES="1000000").level("redis", "MB in use") == "ok"


def test_a_cluster_is_looked_at_server_by_server(mongo_url: str, redis_cluster_url: str) -> None:
    report = doctor("--mongo-url", mongo_url, "--redis-url", redis_cluster_url)
    assert len(report.about("redis", "maxmemory-policy noeviction")) == 3
    report = doctor(
        "--mongo-url", mongo_url, "--redis-url", redis_cluster_url.partition(",")[0].replace("+cluster", "")
    )
    assert "REDIS_URL must name the cluster" in report.to_mend()[0]["sentence"]


def test_each_route_of_an_app_is_reported_with_the_reason(mongo_url: str, prefix: str) -> None:
    report = doctor(
        "--app", "tests.inputs.audited_app:app", "--mongo-url", mongo_url, AUDITED_DATABASE=prefix, AUDITED_COUNTER="1"
    )
    assert report.status == 1
    levels = {
        finding["subject"]: finding["level"] for finding in report.findings if finding["subject"].startswith("GET ")
    }
    assert levels == {
        "GET /items": "ok", "GET /kept": "ok", "GET /now": "warn", "GET /file": "ok", "GET /constant": "warn",
        "GET /broken": "mend", "GET /counted": "mend", "GET /items/{item}": "warn",
    }  # fmt: skip
    assert report.one("GET /items")["sentence"].startswith("cached: find on")
    assert "clock" in report.one("GET /now")["sentence"]
    assert report.one("GET /items/{item}")["remedy"] == ["quaestor doctor --path /items/{item}"]


def test_middlewares_inside_the_cache_are_named(mongo_url: str, prefix: str) -> None:
    """Middlewares around the cache are not named, because they run for every request.

    A variable that the app does not read is named.
    """
    report = doctor(
        "--app", "tests.doctor.ordered_app:app", "--mongo-url", mongo_url, ORDERED_DATABASE=prefix,
        QUAESTOR_TTL_MAX_MS="100000",
    )  # fmt: skip
    unread = report.one("settings", "QUAESTOR_TTL_MAX_MS: set, and not read")
    assert (unread["level"], unread["remedy"]) == ("warn", ["quaestor = Quaestor.from_env()"])
    levels = {finding["sentence"].partition(" ")[0]: finding["level"] for finding in report.about("middlewares")}
    assert levels == {"AuthenticationMiddleware": "warn", "GZipMiddleware": "ok", "named": "ok"}
    inside = report.one("middlewares", "AuthenticationMiddleware")
    assert inside["remedy"][1] == "app.add_middleware(AuthenticationMiddleware, ...)"


def test_a_redis_that_the_app_does_not_read_is_named(mongo_url: str, prefix: str, valkey: servers.Server) -> None:
    """The line about Redis does not advise the variable that is set already, and names the call that reads it."""
    app = ("--app", "tests.doctor.ordered_app:app", "--mongo-url", mongo_url)
    report = doctor(*app, ORDERED_DATABASE=prefix, REDIS_URL=valkey.url)
    line = report.one("redis")
    assert (line["level"], line["remedy"]) == ("warn", ["quaestor = Quaestor.from_env()"])
    assert "REDIS_URL is set, and the app does not read it" in line["sentence"]
    assert "With REDIS_URL" not in line["sentence"]
    assert report.level("settings", "REDIS_URL: set, and not read") == "warn"
    report = doctor(*app, ORDERED_DATABASE=prefix)
    assert report.level("redis") == "ok"
    assert "With REDIS_URL and Quaestor.from_env() the processes share entries" in report.one("redis")["sentence"]


def test_an_app_that_does_not_start_or_has_no_cache_is_reported_beside_the_rest(mongo_url: str, prefix: str) -> None:
    for app, why in (("bare", "has no QuaestorMiddleware"), ("broken", "out of order")):
        report = doctor("--app", f"tests.doctor.ordered_app:{app}", "--mongo-url", mongo_url, ORDERED_DATABASE=prefix)
        assert why in report.one("app")["sentence"]
        assert report.level("mongod") == "ok"
        assert report.status == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--app", "tests.nowhere:app"), "cannot be loaded"),
        (("--app", "tests"), "write module:app"),
        (("--path", "items"), "write /items/1"),
    ],
)
def test_a_name_of_no_app_is_refused_in_a_sentence(mongo_url: str, arguments: tuple[str, ...], said: str) -> None:
    done = ran("--mongo-url", mongo_url, *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1

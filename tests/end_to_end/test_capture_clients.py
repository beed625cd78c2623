"""The MongoDB to watch is found from the clients that carry the capture, and nothing is cached from any other."""

from __future__ import annotations

import linecache
from pathlib import Path
from typing import Any

import bson
import pymongo
import pytest
from bson.codec_options import CodecOptions
from pymongo import AsyncMongoClient, MongoClient

from quaestor.capture import Capture, recording
from quaestor.capture.clients import watch_client
from quaestor.errors import ConfigurationError
from quaestor.model import Uncacheable
from quaestor.settings import Settings
from quaestor.testing import servers


@pytest.mark.anyio
async def test_an_attached_async_client_is_enough(mongo_url: str, prefix: str) -> None:
    capture = Capture()
    async with AsyncMongoClient[dict[str, Any]](mongo_url, event_listeners=[capture]) as client:
        with watch_client(capture, Settings()) as own, recording() as recorder:
            await client[prefix].c.insert_one({"_id": 1})
            assert own[prefix].c.find_one() == {"_id": 1}
            assert {reason for reason, _ in recorder.outcome(0).reasons} == {Uncacheable.WROTE}
            assert recorder.outcome(0).reads == ()  # our own read was not captured
        await client.drop_database(prefix)


def test_the_sources_that_pymongo_reads_for_our_client_are_not_kept(mongo_url: str) -> None:
    """PyMongo prints the stack for each client, and Python keeps the sources that it reads for that."""
    linecache.clearcache()
    with watch_client(Capture(), Settings(mongo_url=mongo_url)):
        assert linecache.cache == {}
        with MongoClient[Any](mongo_url):
            assert linecache.cache  # otherwise there is nothing to drop


def test_our_client_decodes_to_plain_values_under_any_codec_options(mongo_url: str, prefix: str) -> None:
    capture = Capture()
    url = mongo_url + "&uuidRepresentation=standard&tz_aware=true&readPreference=secondary&readPreferenceTags=dc:x"
    with (
        MongoClient[Any](
            url + "&maxStalenessSeconds=120&timeoutMS=3000&readConcernLevel=linearizable",
            document_class=bson.SON,
            event_listeners=[capture],
        ),
        watch_client(capture, Settings()) as own,
    ):
        assert own.codec_options.document_class is dict
        assert own.codec_options.uuid_representation == bson.binary.UuidRepresentation.UNSPECIFIED
        assert not own.codec_options.tz_aware
        assert own.read_preference == pymongo.ReadPreference.PRIMARY
        assert own.options.timeout is None
        assert own.options.replica_set_name == "rs0"
        far = CodecOptions[dict[str, Any]](datetime_conversion=bson.DatetimeConversion.DATETIME_MS)
        own[prefix].c.with_options(far).insert_one({"_id": 1, "at": bson.datetime_ms.DatetimeMS(2**60)})
        assert int(own[prefix].c.find_one({})["at"]) == 2**60  # type: ignore[index]
        with own.watch(max_await_time_ms=1) as stream:
            assert stream.try_next() is None
        own.drop_database(prefix)


def test_credentials_tls_and_hosts_are_taken_over() -> None:
    capture = Capture()
    with (
        MongoClient[Any](
            ["db1.invalid:1", "db2.invalid"],
            port=7,
            username="u",
            password="p",
            authSource="x",
            tls=True,
            tlsAllowInvalidCertificates=True,
            replicaSet="rs",
            connect=False,
            event_listeners=[capture],
        ) as client,
        watch_client(capture, Settings()) as own,
    ):
        for options in (client.options, own.options):
            assert options.replica_set_name == "rs"
            credentials = options.pool_options._credentials
            assert credentials is not None
            assert (credentials.username, credentials.password, credentials.source) == ("u", "p", "x")
        assert "tls=True" in repr(own)
        assert "db1.invalid:1" in repr(own)
        assert "db2.invalid:7" in repr(own)


def test_an_explicit_url_wins(mongo_url: str) -> None:
    with watch_client(Capture(), Settings(mongo_url=mongo_url)) as own:
        assert own.admin.command("ping")["ok"]


def test_without_a_client_the_message_says_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match=r"mongo_url=.*event_listeners=\[quaestor\.capture\]"):
        watch_client(Capture(), Settings())


def test_a_bad_url_is_reported_without_its_password() -> None:
    with pytest.raises(ConfigurationError) as raised:
        watch_client(Capture(), Settings(mongo_url="mongodb://user:hunter2@host:notaport/"))
    assert "hunter2" not in str(raised.value)
    assert "host:notaport" in str(raised.value)


def test_the_cluster_of_the_first_client_is_watched() -> None:
    """The first client made decides, of whatever kind; a client that shares a host with it belongs to the same cluster."""
    capture = Capture()
    with (
        MongoClient[Any]("mongodb://a.invalid,b.invalid/", connect=False, event_listeners=[capture]),
        MongoClient[Any]("mongodb://b.invalid:27017,c.invalid/?appname=x", connect=False, event_listeners=[capture]),
        MongoClient[Any]("mongodb://c.invalid/", connect=False, event_listeners=[capture]),
    ):
        watch_client(capture, Settings()).close()
        assert capture.clients.take_strangers() == []
        with MongoClient[Any]("mongodb://d.invalid/", connect=False, event_listeners=[capture]):
            with watch_client(capture, Settings()) as own:
                assert "a.invalid" in repr(own)
            (sentence,) = capture.clients.take_strangers()
            assert "different clusters" in sentence
            assert "d.invalid" in sentence


def test_only_open_clients_that_carry_this_capture_are_found(mongo_url: str) -> None:
    capture = Capture()
    with MongoClient[Any]("mongodb://closed.invalid/", connect=False, event_listeners=[capture]):
        pass
    with MongoClient[Any](mongo_url, event_listeners=[Capture()]), MongoClient[Any](mongo_url):
        assert not capture.clients.look()
        with MongoClient[Any](mongo_url, event_listeners=[capture]):
            assert capture.clients.look()
            assert not capture.clients.look()
    assert capture.clients.first is not None
    assert capture.clients.first["host"] == mongo_url


def test_reads_from_another_cluster_than_the_watched_one_are_not_cached(mongo_url: str, prefix: str) -> None:
    """Both answer, but only the watched one's writes would ever be heard of."""

    def second(folder: Path) -> servers.Server:
        return servers.mongod_server(folder)

    capture = Capture()
    with (
        servers.running(second, "mongod") as other,
        MongoClient[dict[str, Any]](mongo_url, event_listeners=[capture]) as near,
        MongoClient[dict[str, Any]](
            mongo_url.split("?")[0].replace("127.0.0.1", "localhost"), directConnection=True, event_listeners=[capture]
        ) as alias,
        MongoClient[dict[str, Any]](other.url, event_listeners=[capture]) as far,
        watch_client(capture, Settings(mongo_url=mongo_url)) as own,
    ):
        own.admin.command("ping")
        for client, reasons in ((near, set()), (alias, set()), (far, {Uncacheable.UNREADABLE})):
            with recording() as recorder:
                client[prefix].c.find_one()
                assert {reason for reason, _ in recorder.outcome(0).reasons} == reasons

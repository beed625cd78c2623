"""Each part notices that Redis lost its data. A Redis that was only unreachable is not mistaken for one."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from quaestor.errors import ConfigurationError, EventLayerError, EventLayerResetError
from quaestor.event_layer.redis import RedisEventLayer
from quaestor.ports import StreamEntry
from quaestor.testing import servers
from tests.support import eventually

STREAM = "quaestor:{test:n}:notifications"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[servers.Server]:
    made = servers.redis_server(tmp_path)
    made.start()
    yield made
    made.stop()


def layer_on(server: servers.Server) -> RedisEventLayer:
    return RedisEventLayer(server.url, "test")


def read(layer: RedisEventLayer, after: str = "0") -> list[StreamEntry]:
    return layer.read({STREAM: after}, count=100, block_ms=0)


def once_more(layer: RedisEventLayer, after: str) -> list[StreamEntry]:
    """The next answer after a broken connection was noticed."""
    try:
        return read(layer, after)
    except EventLayerResetError:
        raise
    except EventLayerError:
        return read(layer, after)


def test_a_restart_that_kept_the_data_goes_on(server: servers.Server) -> None:
    layer = layer_on(server)
    layer.append(STREAM, [b"1"])
    after = read(layer)[-1].offset
    server.stop()
    with pytest.raises(EventLayerError) as down:
        read(layer, after)
    assert not isinstance(down.value, EventLayerResetError)
    assert down.value.retryable
    server.start()
    layer.append(STREAM, [b"2"])
    assert [entry.payload for entry in once_more(layer, after)] == [b"2"]
    layer.close()


def test_an_outage_may_take_any_number_of_attempts(server: servers.Server) -> None:
    """More than the driver's pool would make connections."""
    layer = layer_on(server)
    layer.append(STREAM, [b"1"])
    server.stop()
    for _ in range(150):
        with pytest.raises(EventLayerError, match="did not answer"):
            layer.append(STREAM, [b"2"])
    server.start()
    layer.append(STREAM, [b"3"])
    layer.close()


def test_a_restart_without_data_is_refused_to_reader_and_writer(valkey: servers.Server) -> None:
    reader, writer, bystander = layer_on(valkey), layer_on(valkey), layer_on(valkey)
    writer.append(STREAM, [b"1"])
    after = read(reader)[-1].offset
    valkey.kill()
    valkey.start()
    bystander.append(STREAM, [b"3"])
    with pytest.raises(EventLayerResetError):
        once_more(reader, after)
    with pytest.raises(EventLayerError):
        writer.append(STREAM, [b"4"])
    with pytest.raises(EventLayerResetError):
        writer.append(STREAM, [b"4"])
    assert [entry.payload for entry in read(reader)] == [b"3"]  # starting over works


def test_an_offset_kept_by_a_process_that_died_is_refused_after_a_loss(valkey: servers.Server) -> None:
    """A restarted process cannot continue from its checkpoint's offset in the data's next life."""
    layer = layer_on(valkey)
    layer.append(STREAM, [b"1"])
    kept = read(layer)[-1].offset
    layer.close()
    valkey.kill()
    valkey.start()
    restarted = layer_on(valkey)
    restarted.append(STREAM, [b"2"])
    with pytest.raises(EventLayerResetError):
        read(restarted, kept)


def test_a_flush_is_noticed_on_an_open_connection(server: servers.Server) -> None:
    layer = layer_on(server)
    layer.append(STREAM, [b"1"])
    after = read(layer)[-1].offset
    redis.Redis.from_url(server.url).flushall()
    with pytest.raises(EventLayerResetError):
        layer.append(STREAM, [b"2"])
    with pytest.raises(EventLayerResetError):
        read(layer, after)


@pytest.mark.anyio
async def test_a_flush_while_a_reader_waits_is_noticed_by_that_read(server: servers.Server) -> None:
    """The entry that wakes the reader belongs to the data's next life,
    and must not be taken for the offset's successor.
    """
    layer, other = layer_on(server), layer_on(server)
    layer.append(STREAM, [b"1"])
    after = read(layer)[-1].offset

    def next_entries() -> list[StreamEntry]:
        while not (entries := layer.read({STREAM: after}, count=100, block_ms=2_000)):
            pass
        return entries

    with redis.Redis.from_url(server.url) as client:
        waiting = asyncio.ensure_future(asyncio.to_thread(next_entries))
        await eventually(lambda: client.info("clients")["blocked_clients"] > 0)
        client.flushall()
        other.append(STREAM, [b"2"])
        with pytest.raises(EventLayerResetError):
            await waiting


def test_a_loss_that_another_thread_learned_of_during_a_read_is_reported_to_the_reader_too(
    valkey: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader has checked its offset and connects again; meanwhile a writer of the same object learns of the loss."""
    layer = layer_on(valkey)
    layer.append(STREAM, [b"1"])
    after = read(layer)[-1].offset
    valkey.kill()
    with pytest.raises(EventLayerError, match="did not answer"):  # no idle connection is left
        read(layer, after)
    valkey.start()
    connect = layer._factory.make_connection

    def learnt_by_a_writer() -> Any:
        monkeypatch.setattr(layer._factory, "make_connection", connect)
        with pytest.raises(EventLayerResetError):
            layer.append(STREAM, [b"2"])
        layer.append(STREAM, [b"2"])
        return connect()

    monkeypatch.setattr(layer._factory, "make_connection", learnt_by_a_writer)
    with pytest.raises(EventLayerResetError):
        read(layer, after)
    layer.close()


def test_a_server_that_lost_only_its_last_entries_is_noticed(server: servers.Server, tmp_path: Path) -> None:
    """As after a crash between two fsyncs: the epoch is still there, newer entries hide the hole."""
    writer, reader = layer_on(server), layer_on(server)
    writer.append(STREAM, [b"1"])
    after = read(reader)[-1].offset
    server.stop()
    shutil.copytree(tmp_path / "appendonlydir", tmp_path / "saved")
    server.start()
    with pytest.raises(EventLayerError):
        writer.append(STREAM, [b"lost"])
    writer.append(STREAM, [b"lost"])
    server.kill()
    shutil.rmtree(tmp_path / "appendonlydir")
    shutil.copytree(tmp_path / "saved", tmp_path / "appendonlydir")
    server.start()
    layer_on(server).append(STREAM, [b"after the crash"])
    with pytest.raises(EventLayerError):
        writer.append(STREAM, [b"2"])
    with pytest.raises(EventLayerResetError, match="missing"):
        writer.append(STREAM, [b"2"])
    with pytest.raises(EventLayerResetError):  # nobody continues the life that lost something
        once_more(reader, after)


def test_entries_that_were_trimmed_are_not_mistaken_for_lost_ones(server: servers.Server) -> None:
    layer = layer_on(server)
    layer.append(STREAM, [b"1"])
    after = read(layer)[-1].offset
    layer.trim(STREAM, before_ms=2**42)
    server.stop()
    server.start()
    assert once_more(layer, after) == []


def test_a_server_that_evicts_streams_is_refused(server: servers.Server) -> None:
    client = redis.Redis.from_url(server.url)
    client.config_set("maxmemory", "100mb")
    client.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(ConfigurationError, match="noeviction"):
        layer_on(server).append(STREAM, [b"1"])
    client.close()


def test_a_url_of_something_else_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="http"):
        RedisEventLayer("http://127.0.0.1/", "test")

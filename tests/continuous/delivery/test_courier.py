"""Courier: retries with growing pauses, dead letters, replay. Sleeping passes time, receivers are real."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import SecretStr
from standardwebhooks import Webhook

from quaestor.continuous.delivery.addresses import sink_of
from quaestor.continuous.delivery.batch import ResultBatch
from quaestor.continuous.delivery.courier import Courier, Replayed
from quaestor.continuous.delivery.dead_letters import DeadLetters
from quaestor.continuous.delivery.file import FileSink
from quaestor.continuous.delivery.mail import MailSink
from quaestor.continuous.delivery.networks import Networks
from quaestor.continuous.delivery.sink import shown
from quaestor.continuous.delivery.webhook import WebhookSink
from quaestor.errors import ConfigurationError, DependencyError
from quaestor.observability.hooks import FailureSeen
from quaestor.observability.telemetry import Telemetry
from quaestor.settings.continuous import ContinuousSettings
from quaestor.tables.storage import FolderStorage
from tests.continuous.delivery.receivers import CLOSE, HANG, KEY, Receiver, receiver, status

pytestmark = pytest.mark.anyio

BATCH = ResultBatch(query="offers", run=3, instant=5, rows=[{"v": 1}, {"v": 2}])


class World:
    """Courier on a folder, with the pauses that it made."""

    def __init__(self, folder: Path, attempts: int = 8) -> None:
        self.telemetry = Telemetry()
        self.letters = DeadLetters(FolderStorage(folder))
        self.pauses: list[float] = []
        self.seen: list[FailureSeen] = []
        self.telemetry.hooks.failures.append(self.seen.append)
        self.courier = Courier(self.letters, self.telemetry, attempts=attempts, sleep=self._sleep)

    async def _sleep(self, pause_s: float) -> None:
        self.pauses.append(pause_s)

    def count(self, name: str, **labels: str) -> float:
        return self.telemetry.families.registry.get_sample_value(f"quaestor_continuous_{name}", labels) or 0.0


def hook(server: Receiver, timeout_s: float = 20.0) -> WebhookSink:
    return WebhookSink(
        f"http://127.0.0.1:{server.port}/", key=SecretStr(KEY), networks=Networks(("127.0.0.0/8",)), timeout_s=timeout_s
    )


async def test_a_delivery_is_repeated_with_the_same_key_until_it_is_confirmed(tmp_path: Path) -> None:
    """After an error, a closed connection and a hanging receiver; the pauses grow."""
    world = World(tmp_path)
    async with receiver(status(500), CLOSE, HANG, status(200)) as server:
        assert await world.courier.deliver(hook(server, timeout_s=1.0), BATCH)
    assert [fields["webhook-id"] for fields, _ in server.requests] == ["offers/3/0"] * 4
    assert len({body for _, body in server.requests}) == 1
    assert [pause >= least for pause, least in zip(world.pauses, (1, 2, 4), strict=True)] == [True] * 3
    assert world.count("deliveries_total", sink="webhook", outcome="delivered") == 1
    assert world.count("deliveries_total", sink="webhook", outcome="failed") == 3
    assert world.count("delivery_failures_total", sink="webhook", reason="timeout") == 1
    assert world.count("delivered_rows_total", sink="webhook") == 2
    assert {failure.name for failure in world.seen} == {"delivery.failed"}
    assert list(world.letters.list()) == []


async def test_a_receiver_decides_how_long_the_courier_waits(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with receiver(status(503, retry_after="90"), status(429, retry_after="999999")) as server:
        assert await world.courier.deliver(hook(server), BATCH)
    assert world.pauses == [90.0, 3_600.0]


async def test_a_batch_that_stays_refused_becomes_a_dead_letter_and_is_sent_again_with_its_keys(tmp_path: Path) -> None:
    """A letter outlives its process; a replay that fails keeps it, and a replay that succeeds removes it."""
    world = World(tmp_path, attempts=3)
    async with receiver(*[status(503)] * 4, status(200)) as server:
        sink = hook(server)
        assert not await world.courier.deliver(sink, BATCH)
        assert len(server.requests) == 3
        assert world.count("dead_letters") == 1
        assert [failure.name for failure in world.seen][-1] == "delivery.dead_letter"

        world = World(tmp_path)
        (letter,) = world.letters.list("offers")
        assert (letter.sink, letter.reason, letter.attempts) == (sink.name, "status", 3)
        assert letter.batch == BATCH
        assert list(world.letters.list("others")) == []
        assert await world.courier.replay(lambda address: sink) == Replayed(delivered=0, failed=1)
        assert await world.courier.replay(lambda address: sink) == Replayed(delivered=1, failed=0)
        assert await world.courier.replay(lambda address: sink) == Replayed(delivered=0, failed=0)
        assert world.count("dead_letters") == 0
    bodies = [Webhook(KEY).verify(body, fields)["data"] for fields, body in server.requests]
    assert len(bodies) == 5
    assert all(body == bodies[0] for body in bodies)


async def test_a_secret_in_a_url_reaches_neither_logs_nor_viewers(tmp_path: Path) -> None:
    """A log line, a dead letter's sentence and a shown address name scheme, host and a hash; a replay needs the URL."""
    world = World(tmp_path, attempts=1)
    async with receiver(status(404)) as server:
        url = f"http://127.0.0.1:{server.port}/services/T000/B000/s3cret?token=s3cret"
        sink = WebhookSink(url, key=SecretStr(KEY), networks=Networks(("127.0.0.0/8",)))
        assert not await world.courier.deliver(sink, BATCH)
        (letter,) = world.letters.list()
        assert {failure.fields["sink"] for failure in world.seen} == {shown(url)}
        assert "s3cret" not in f"{world.seen} {letter.error}"
        assert shown(url) in letter.error
        await world.courier.replay(lambda address: sink if address == url else None)
    assert len(server.requests) == 2


def test_a_shown_address_names_scheme_host_and_hash() -> None:
    first, second = shown("https://hooks.slack.com/services/a"), shown("https://hooks.slack.com/services/b")
    assert first != second
    assert first == shown(first) == "https://hooks.slack.com/#8af45cb8"
    assert shown("https://user:s3cret@a.example?s3cret").startswith("https://a.example/#")
    assert shown("https://a.example/s3cret/#0badcafe") != "https://a.example/s3cret/#0badcafe"
    assert [shown(address) for address in ("mailto:a@b.example", "file:x")] == ["mailto:a@b.example", "file:x"]


@pytest.mark.parametrize("url", ["https://u:s3cret@a/", "https://a/s3cret#f", "https://a:b/s3cret", "https://a/s3cret"])
def test_a_refused_address_is_named_without_its_secret(url: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        sink_of(url, ContinuousSettings(webhook_key="" if url == "https://a/s3cret" else KEY))
    assert "s3cret" not in str(raised.value)


async def test_a_final_refusal_is_not_repeated(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with receiver(status(410)) as server:
        assert not await world.courier.deliver(hook(server), BATCH)
    assert world.pauses == []
    assert world.count("deliveries_total", sink="webhook", outcome="dead") == 1


class Broken:
    """Sink with a fault of its own."""

    name = "file:broken"
    kind = "file"

    async def deliver(self, batch: ResultBatch) -> None:
        raise ZeroDivisionError


async def test_every_failure_of_a_sink_ends_as_a_dead_letter(tmp_path: Path) -> None:
    """An error that no sink foresees is tried again and counted like the others."""
    world = World(tmp_path, attempts=3)
    assert not await world.courier.deliver(Broken(), BATCH)
    (letter,) = world.letters.list()
    assert (letter.sink, letter.reason, letter.attempts) == ("file:broken", "sink", 3)
    assert world.count("delivery_failures_total", sink="file", reason="sink") == 3


async def test_a_damaged_dead_letter_is_named(tmp_path: Path) -> None:
    world = World(tmp_path, attempts=1)
    async with receiver(status(500)) as server:
        await world.courier.deliver(hook(server), BATCH)
    (path,) = (tmp_path / "dead_letters").rglob("*.json")
    path.write_text(json.dumps({"v": 2}))
    with pytest.raises(DependencyError, match=f"{path.name} is damaged"):
        list(world.letters.list())


def test_an_address_names_its_sink(tmp_path: Path) -> None:
    settings = ContinuousSettings(
        webhook_key=KEY, mail_server="smtp://mail.example", mail_from="q@shop.example", delivery_folder=str(tmp_path)
    )
    assert isinstance(sink_of("https://shop.example/hook", settings), WebhookSink)
    assert isinstance(sink_of("mailto:ann@shop.example", settings), MailSink)
    assert isinstance(sink_of("file:offers.ndjson", settings), FileSink)


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("https://a/", "webhook_key"), ("mailto:a@b", "mail_server and mail_from"), ("file:a", "delivery_folder"),
        ("gopher://a", "no address of a sink"), ("", "no address of a sink"),
    ],
)  # fmt: skip
def test_a_sink_without_its_setting_names_the_setting(address: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        sink_of(address, ContinuousSettings())


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", ".hidden", "a/b", "", "a\n"])
def test_a_file_lies_in_its_folder(name: str) -> None:
    with pytest.raises(ConfigurationError, match="name of the file"):
        sink_of(f"file:{name}", ContinuousSettings(delivery_folder="/srv"))


def test_parts_of_a_run_are_always_the_same() -> None:
    """A restart cuts the same batches, so their keys stay."""
    parts = list(ResultBatch(query="q", run=1, instant=0, rows=[{"v": n} for n in range(5)]).parts(2))
    assert [(part.key, len(part.rows)) for part in parts] == [("q/1/0", 2), ("q/1/2", 2), ("q/1/4", 1)]
    assert [key for part in parts for key, _ in part.keyed_rows()] == [f"q/1/{n}" for n in range(5)]

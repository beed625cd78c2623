"""Folder with a channel that has runs, a broker that lags, a feed with a rejected record, and a dead letter."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from quaestor.channels.administration import Channels, channels_of
from quaestor.channels.brokers.delivery import letters_of
from quaestor.channels.datasets import Dataset
from quaestor.channels.feeds.dead_letters import FeedLetters
from quaestor.channels.feeds.definitions import Feeds
from quaestor.channels.feeds.feed import Feed
from quaestor.channels.feeds.records import Incoming
from quaestor.channels.hosting import executors_of
from quaestor.channels.service import ChannelParts, ChannelService
from quaestor.continuous.delivery.batch import ResultBatch
from quaestor.continuous.delivery.dead_letters import DeadLetter
from quaestor.observability.telemetry import Telemetry
from quaestor.settings import Settings
from quaestor.settings.continuous import ContinuousSettings

HOSTILE = "<img src=x onerror=alert(1)>"
STATEMENTS = """
CREATE ACTIVE DATASET Tweets (tid bigint, area text, text text) PRIMARY KEY tid;
CREATE BROKER station AT "https://93.184.216.34/results/%3Cimg%20src=x%20onerror=alert(1)%3E" WITH {"lease": "PT1S"};
CREATE CONTINUOUS CHANNEL Local (area text) PERIOD 10 SECONDS PRIORITY HIGH FROM BEGINNING {
  SELECT t.tid, t.text FROM Tweets t WHERE is_new(t) AND t.area = area AND t.text <> '<img src=x onerror=alert(1)>'
};
"""
START_MS = 1_800_000_000_000


class Folder:
    """Folder and its service of channels.

    now_ms: moves only when a test moves it.
    """

    def __init__(self, folder: Path) -> None:
        self.now_ms = START_MS
        self.channels: Channels = channels_of(Settings(**settings(folder)).continuous, clock=lambda: self.now_ms)
        parts = self.channels.parts
        self.service = ChannelService(
            ChannelParts(
                catalogue=parts.catalogue,
                channels=parts.definitions.channels,
                executor_of=executors_of(ContinuousSettings()),
                telemetry=Telemetry(),
                clock=lambda: self.now_ms,
            )
        )

    def fed(self, *records: bytes) -> None:
        """Take a batch into the dataset through the feed of type http."""
        feeds = Feeds(self.channels.parts.catalogue.root)
        catalogue = self.channels.parts.catalogue
        if not feeds.all():
            feeds.create("TweetFeed", {"type": "http"})
            feeds.connect("TweetFeed", "Tweets", mode="insert")
            feeds.start("TweetFeed")
        definition = feeds.get("TweetFeed")
        letters = FeedLetters(catalogue, definition)
        feed = Feed(definition, Dataset.open(catalogue, "Tweets"), letters, Telemetry())
        feed.take([Incoming(record, "") for record in records])

    def run(self) -> None:
        """Take up the channels, and run what is due ten seconds later."""
        asyncio.run(self.service.run_due())
        self.now_ms += 10_000
        asyncio.run(self.service.run_due())


def settings(folder: Path) -> dict[str, Any]:
    """Settings of a site with this folder."""
    return {"continuous_folder": str(folder)}


def filled(path: Path) -> Folder:
    """Install the channel, run it twice with one result, refuse one record, and keep a message to the broker as a dead letter."""
    folder = Folder(path)
    folder.channels.interpreter.run(STATEMENTS)
    folder.channels.interpreter.run("SUBSCRIBE TO Local ('OC') ON station; SUBSCRIBE TO Local ('LA') ON station")
    folder.run()
    folder.fed(b'{"tid": 1, "area": "OC", "text": "near"}', b"no json")
    folder.run()
    run = folder.now_ms * 1_000
    batch = ResultBatch(query="Local", run=run, instant=run, rows=[{"subscriptions": [], "record": "null"}])
    letters_of(folder.channels.parts.catalogue.root).put(
        DeadLetter(batch=batch, sink="broker:station/pull", reason="refused", error=HOSTILE, attempts=8)
    )
    return folder

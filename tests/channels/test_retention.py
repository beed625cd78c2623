"""Retention of results, of records, and of subscriptions whose broker is long silent; a clock that the test drives."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from quaestor.channels import retention
from quaestor.channels.administration import channels_of
from quaestor.channels.brokers.acknowledgements import Acknowledgements
from quaestor.channels.brokers.delivery import letters_of
from quaestor.channels.datasets import Dataset
from quaestor.channels.feeds.dead_letters import FeedLetters, Refused
from quaestor.channels.feeds.definitions import Feeds
from quaestor.channels.feeds.records import Incoming
from quaestor.channels.retention import Retention, RetentionParts
from quaestor.channels.runs.results import Results
from quaestor.channels.runs.run import Runner
from quaestor.channels.runs.stored_pages import StoredPages
from quaestor.channels.statements.model import Kind
from quaestor.continuous.delivery.batch import ResultBatch
from quaestor.continuous.delivery.dead_letters import DeadLetter
from quaestor.continuous.executors.duckdb import DuckDbExecutor
from quaestor.observability.telemetry import Telemetry
from quaestor.settings.continuous import ContinuousSettings

SECOND = 1_000_000


class World:
    """Dataset Tweets, a broker, and the channel `Local` with one subscription. Results are kept for 15 s."""

    def __init__(self, folder: Path, *, retain: str = "", lease: str = "") -> None:
        self.now = 0
        clock = lambda: self.now * 1_000  # noqa: E731
        self.channels = channels_of(ContinuousSettings(continuous_folder=str(folder)), clock=clock)
        parts = self.channels.parts
        self.statements = self.channels.interpreter
        self.statements.run(
            f"""
            CREATE ACTIVE DATASET Tweets(tid bigint) PRIMARY KEY tid {retain};
            CREATE BROKER station AT 'https://93.184.216.34/' WITH {{"lease": "{lease or "P7D"}"}};
            CREATE CONTINUOUS CHANNEL Local() PERIOD 10 SECONDS {{ SELECT t.tid FROM Tweets t WHERE is_new(t) }};
            SUBSCRIBE TO Local() ON station
            """
        )
        self.tweets = Dataset.open(parts.catalogue, "Tweets")
        self.results = Results(parts.catalogue, "Local")
        self.pages = StoredPages(parts.catalogue)
        self.acknowledgements = Acknowledgements(parts.catalogue.root, clock=clock)
        self.runner = Runner(parts.catalogue, DuckDbExecutor(threads=1))
        self.telemetry = Telemetry()
        self.seen: list[str] = []
        self.telemetry.hooks.failures.append(lambda failure: self.seen.append(failure.name))
        self.retention = Retention(
            RetentionParts(
                catalogue=parts.catalogue,
                definitions=parts.definitions,
                brokers=self.channels.brokers,
                acknowledgements=self.acknowledgements,
                pages=self.pages,
                telemetry=self.telemetry,
                keep_s=15,
                clock=clock,
            )
        )

    def tweet(self, at: int, tid: int) -> None:
        self.now = at
        assert self.tweets.insert([{"tid": tid}]).accepted == 1

    def run(self, at: int) -> int:
        """Run the channel; return its run."""
        self.now = at
        parts = self.channels.parts
        return self.runner.run(parts.compiled(parts.definitions.get(Kind.CHANNEL, "Local")), at * SECOND).run

    def retain(self, at: int) -> None:
        self.now = at
        self.retention.apply()

    def kept(self) -> list[int]:
        return [page.run // SECOND for page in self.pages.after("Local", "station", 0, 100)]

    def stored(self) -> list[Any]:
        return sorted(row["tid"] for row in self.tweets.records())


@pytest.mark.parametrize(("acknowledged", "events"), [(10, ["channels.unacknowledged_dropped"]), (20, [])])
def test_old_results_go_and_a_broker_that_lacks_some_is_reported(
    tmp_path: Path, acknowledged: int, events: list[str]
) -> None:
    """Runs go after their time, acknowledged or not; readers learn from which run on the results are complete."""
    world = World(tmp_path)
    runs = {}
    for at in (10, 20, 30):
        world.tweet(at - 1, at)
        runs[at] = world.run(at)
    world.retain(24)
    assert (world.kept(), world.seen) == ([10, 20, 30], [])
    world.acknowledgements.advance("station", "Local", runs[acknowledged])
    world.retain(39)
    assert (world.kept(), world.seen) == ([30], events)
    assert runs[20] < world.pages.oldest("Local") <= runs[30]
    world.retain(40)
    assert world.seen == events


def test_records_go_after_their_time_as_soon_as_every_channel_has_examined_them(tmp_path: Path) -> None:
    """A process that holds the records in memory and a new one agree; a key that has gone may come again."""
    world = World(tmp_path, retain="RETAIN 20 SECONDS")
    world.tweet(10, 1)
    world.run(20)
    world.tweet(30, 2)
    assert world.stored() == [1, 2]
    world.retain(29)
    assert world.stored() == [1, 2]
    world.retain(100)
    assert world.stored() == [2]  # no run has examined it
    assert Dataset.open(world.channels.parts.catalogue, "Tweets").records() == world.tweets.records()
    world.tweet(101, 1)
    world.run(102)
    rows = [row.record for page in world.pages.after("Local", "station", 0, 100) for row in page.rows]
    assert sorted(rows) == ['{"tid":1}', '{"tid":2}']  # of the last run; the first one is too old
    world.retain(103)
    assert world.stored() == [1]
    assert world.statements.run("SELECT t.tid FROM Tweets t")[0].rows == ((1,),)


def test_dead_letters_of_feeds_and_messages_go_with_the_results(tmp_path: Path) -> None:
    """Letters stay as long as results; a message that goes is reported."""
    world = World(tmp_path)
    parts = world.channels.parts
    world.statements.run('CREATE FEED f WITH {"type": "http"}')
    definition = Feeds(parts.catalogue.root).get("f")
    feed, messages = FeedLetters(parts.catalogue, definition), letters_of(parts.catalogue.root)
    for number, at in enumerate((10, 20)):
        world.now = at
        feed.keep(number, [Refused(0, Incoming(b"x"), "no JSON")])
        batch = ResultBatch(query="Local", run=at * SECOND, instant=at * SECOND, rows=[])
        messages.put(DeadLetter(batch=batch, sink="broker:station/push", reason="status", error="", attempts=1))
    world.retain(24)
    assert (len(feed.all()), messages.count(), world.seen) == (2, 2, [])
    world.retain(26)
    assert ([row["letter"].split("-")[1] for row in feed.all()], messages.count()) == ([f"{1:018d}"], 1)
    assert world.seen == ["channels.letters_dropped"]


@pytest.mark.parametrize("subscribers", [1, 9])
def test_small_files_are_joined_in_the_order_of_time_and_nothing_else_changes(
    tmp_path: Path, subscribers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records, results and subscriptions are as before for runs and readers that are away meanwhile, and pruning still works."""
    world = World(tmp_path)
    world.retention._parts = replace(world.retention._parts, keep_s=0)
    monkeypatch.setattr(retention, "_FEWEST_JOINED", 8)
    for _ in range(subscribers - 1):
        world.statements.run("SUBSCRIBE TO Local() ON station")
    runs = []
    for number in range(12):
        world.tweet(number * 10, number)
        runs.append(world.run(number * 10 + 5))
    world.tweet(3_000, 12)
    pages, records = world.pages.after("Local", "station", 0, 1_000), world.stored()
    world.retain(3_000 + 3_600 + 500)
    for table in (world.tweets.partitions[0], world.results.table):
        files = sorted(table.snapshot().files.values(), key=lambda file: file.first)
        assert len(files) <= 2, "files were joined"
        assert all(before.last < later.first for before, later in pairwise(files))
    newest = max(file.last for file in world.tweets.partitions[0].snapshot().files.values())
    assert newest > runs[-1], "a record that no run has examined lies in a file of its own"
    assert world.pages.after("Local", "station", 0, 1_000) == pages
    assert world.pages.after("Local", "station", runs[5], 1_000) == pages[6:]
    assert world.stored() == records
    world.run(9_000)
    (page,) = world.pages.after("Local", "station", runs[-1], 10)
    assert [(row.record, len(row.subscriptions)) for row in page.rows] == [('{"tid":12}', subscribers)]


def test_subscriptions_go_with_the_lease_of_their_broker(tmp_path: Path) -> None:
    """Subscriptions stay as long as their broker gives signs of life, and then for the time of the lease and of the results."""
    world = World(tmp_path, lease="PT10S")
    world.retain(25)
    assert len(world.statements.run("SHOW SUBSCRIPTIONS")[0].rows) == 1
    world.channels.brokers.renew("station")
    world.retain(49)
    assert len(world.statements.run("SHOW SUBSCRIPTIONS")[0].rows) == 1
    world.retain(51)
    assert world.statements.run("SHOW SUBSCRIPTIONS")[0].rows == ()
    assert world.seen == ["channels.subscriptions_dropped"]

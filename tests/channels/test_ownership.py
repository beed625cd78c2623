"""Statements of users reach neither the subscriptions nor the datasets of others, and a refused statement changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from quaestor.channels.definitions import Definition
from quaestor.channels.statements import StatementError
from quaestor.channels.statements.model import Kind
from tests.channels.statements_world import StatementsWorld

SPY = "CREATE FUNCTION spy(b text) AS SELECT s.subscription FROM {table} s WHERE s.broker = b"
LEAK = "CREATE REPETITIVE CHANNEL Leak USING spy@1 PERIOD 1 SECOND"


@pytest.fixture
def world(tmp_path: Path) -> StatementsWorld:
    created = StatementsWorld(tmp_path)
    created.police()
    return created


def refused(world: StatementsWorld, text: str, message: str, *, user: str = "") -> None:
    """Assert that statements are refused with a message."""
    with pytest.raises(StatementError, match=message):
        world.run(text, user=user)


@pytest.mark.parametrize("table", ["Later_subscriptions", "LATER_Subscriptions"])
def test_a_function_of_a_user_reads_no_subscriptions_of_a_channel_that_comes_later(
    world: StatementsWorld, table: str
) -> None:
    """The operator may create the function. A user may not, whether or not the channel exists."""
    refused(world, SPY.format(table=table), "kept for the subscriptions of a channel", user="ann")
    world.run(SPY.format(table=table))


def test_a_user_applies_no_function_that_reads_subscriptions(world: StatementsWorld) -> None:
    """An older function, or one of the operator, is checked again for a channel, its explanation, and a feed."""
    text = SPY.format(table="Local_subscriptions")
    world.channels.parts.definitions.create(Definition(kind=Kind.FUNCTION, name="spy", text=text, user="ann"))
    world.run("SUBSCRIBE TO Local('OC') ON station", user="ben")
    message = "function 'spy' reads dataset 'Local_subscriptions'"
    refused(world, LEAK, message, user="ann")
    refused(world, f"EXPLAIN {LEAK}", message, user="ann")
    world.run(
        'CREATE DATASET mine(subscription text) PRIMARY KEY subscription; CREATE FEED f WITH {"type": "http"}',
        user="ann",
    )
    refused(world, "CONNECT FEED f TO DATASET mine APPLY FUNCTION spy", message, user="ann")
    world.run(LEAK)


def test_no_dataset_takes_the_name_of_subscriptions(world: StatementsWorld) -> None:
    """Names differ in more than case, so a query could read either. Users get no such name, and no channel shares it."""
    refused(
        world,
        "CREATE DATASET later_subscriptions(a int) PRIMARY KEY a",
        "kept for the subscriptions of a channel",
        user="ann",
    )
    world.run("CREATE DATASET later_subscriptions(a int) PRIMARY KEY a")
    channel = "CREATE CONTINUOUS CHANNEL Later() PERIOD 1 HOUR { SELECT t.tid FROM Tweets t WHERE is_new(t) }"
    refused(world, channel, "dataset 'later_subscriptions' has the name of its subscriptions")
    assert [row[0] for row in world.rows("SHOW CHANNELS")] == ["Local"]
    world.run("SELECT s.a FROM later_subscriptions s", user="ann")


def test_a_user_connects_feeds_to_datasets_of_his_own_alone(world: StatementsWorld) -> None:
    """A feed writes over records, so the dataset must be its user's. The operator connects any feed to any dataset."""
    world.run("CREATE DATASET notes(a int) PRIMARY KEY a", user="ann")
    world.run('CREATE FEED f WITH {"type": "http"}', user="ben")
    connect = "CONNECT FEED f TO DATASET notes AS UPSERT"
    refused(world, connect, "dataset 'notes' belongs to another user", user="ben")
    refused(world, "START FEED f", "has no dataset", user="ben")
    refused(world, "CONNECT FEED f TO DATASET Local_subscriptions", "there is no dataset", user="ben")
    world.run(connect)


def test_a_refused_connect_keeps_the_dataset_of_a_running_feed(world: StatementsWorld) -> None:
    """The dataset stays in use. After a stop the feed goes to the other dataset, and the first one is free."""
    world.run(
        """
        CREATE DATASET a(a int) PRIMARY KEY a; CREATE DATASET b(a int) PRIMARY KEY a;
        CREATE FEED f WITH {"type": "http"}; CONNECT FEED f TO DATASET a; START FEED f
        """
    )
    refused(world, "CONNECT FEED f TO DATASET b", "the feed 'f' runs")
    refused(world, "DROP DATASET a", "dataset 'a' is in use: drop feed f first")
    world.run("DROP DATASET b; CREATE DATASET b(a int) PRIMARY KEY a")
    world.run("STOP FEED f; CONNECT FEED f TO DATASET b; DROP DATASET a")
    refused(world, "DROP DATASET b", "dataset 'b' is in use: drop feed f first")


def test_a_feed_keeps_its_dataset_when_the_new_one_is_refused(world: StatementsWorld) -> None:
    """A missing function refuses the statement before the feed is changed."""
    world.run("CREATE DATASET a(a int) PRIMARY KEY a; CREATE DATASET b(a int) PRIMARY KEY a")
    world.run('CREATE FEED f WITH {"type": "http"}; CONNECT FEED f TO DATASET a')
    refused(world, "CONNECT FEED f TO DATASET b APPLY FUNCTION gone", "gone")
    assert world.channels.parts.feeds.get("f").described()["dataset"] == "a"
    refused(world, "DROP DATASET a", "in use")


def test_a_replaced_broker_is_described_with_its_new_address(world: StatementsWorld) -> None:
    """The definition has the address that results go to, its instant of creation stays, and its key stays hidden."""
    created = world.channels.parts.definitions.get(Kind.BROKER, "station").created
    key = "whsec_" + "A" * 44
    world.run(f"""CREATE OR REPLACE BROKER station AT 'https://93.184.216.34/other' WITH {{"key": "{key}"}}""")
    described = str(world.rows("DESCRIBE BROKER station"))
    assert "https://93.184.216.34/other" in described
    assert "93.184.216.34/results" not in described
    assert key not in described
    assert world.channels.parts.definitions.get(Kind.BROKER, "station").created == created

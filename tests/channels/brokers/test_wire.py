"""Wire format of the reference implementation: sent byte for byte, and read back."""

from __future__ import annotations

import json

import pytest

from quaestor.channels.brokers.wire import WireError, decoded, feed_body, pull_body, push_body

RUN = 1_700_000_000_123_456


def test_a_notification_has_the_form_of_the_reference() -> None:
    """Identities are distinct."""
    body = pull_body("Offers", RUN, ["u1", "u2", "u1"], dataverse="shop")
    assert body == (
        '{"dataverseName":"shop","channelName":"Offers","channelExecutionEpochTime":1700000000123,'
        '"subscriptionIds":[["u1","u2"]]}'
    )
    notice = decoded(body)
    assert (notice.channel, notice.time_ms, notice.subscriptions) == ("Offers", 1_700_000_000_123, ("u1", "u2"))


def test_a_push_message_has_results_instead_of_identities() -> None:
    body = push_body("Offers", RUN, [{"subscriptions": ["u1"], "record": '{"price":1}'}])
    assert json.loads(body) == {
        "dataverseName": "Default",
        "channelName": "Offers",
        "channelExecutionEpochTime": 1_700_000_000_123,
        "results": [
            {"channelExecutionEpochTime": 1_700_000_000_123, "subscriptionIds": ["u1"], "result": {"price": 1}}
        ],
    }
    assert decoded(body).results[0]["result"] == {"price": 1}


def test_another_instance_receives_the_records_alone() -> None:
    assert feed_body([{"record": '{"a":1}'}, {"record": '{"a":2}'}]) == '{"a":1}\n{"a":2}\n'


@pytest.mark.parametrize(
    "body",
    ["", "[]", "{}", "5", '{"dataverseName":"d","channelName":"c","channelExecutionEpochTime":"now"}',
     '{"dataverseName":"d","channelName":"c","channelExecutionEpochTime":1,"subscriptionIds":7}',
     '{"dataverseName":"d","channelName":3,"channelExecutionEpochTime":1}'],
)  # fmt: skip
def test_another_message_is_refused(body: str) -> None:
    with pytest.raises(WireError, match="no message to a broker"):
        decoded(body)

"""Brokers: registration, keys, quotas, leases and draining."""

from __future__ import annotations

from pathlib import Path

import pytest

from quaestor.channels.brokers.registry import Brokers, Kind
from quaestor.continuous.delivery.networks import Networks
from quaestor.errors import ConfigurationError
from quaestor.tables.storage import FolderStorage

URL = "https://broker.example/notify"


class Time:
    ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


def brokers(folder: Path, clock: Time | None = None, *, most: int = 100, networks: Networks | None = None) -> Brokers:
    return Brokers(FolderStorage(folder), clock=clock or Time(), most_of_owner=most, networks=networks)


def test_a_broker_has_a_key_that_no_description_shows(tmp_path: Path) -> None:
    broker = brokers(tmp_path).register("b", URL)
    assert broker.key.startswith("whsec_")
    assert brokers(tmp_path).get("b") == broker
    assert broker.key not in repr(broker)
    assert broker.key not in str(broker.described())


def test_an_address_changes_and_the_key_stays(tmp_path: Path) -> None:
    """The subscriptions of a broker that moves are not touched (bad.md, word 8)."""
    before = brokers(tmp_path).register("b", URL)
    after = brokers(tmp_path).register("b", "https://new.example/notify", replaces=True)
    assert (after.url, after.key) == ("https://new.example/notify", before.key)
    with pytest.raises(ConfigurationError, match="is registered"):
        brokers(tmp_path).register("b", URL)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://127.0.0.1:9000/", "no public address"),
        ("https://169.254.169.254/latest", "no public address"),
        ("https://[::1]/", "no public address"),
        ("ftp://broker.example/", "must be https"),
        ("https://user:pw@broker.example/", "must be https"),
    ],
)
def test_a_broker_in_the_own_network_is_refused(tmp_path: Path, url: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        brokers(tmp_path).register("b", url)


def test_a_network_that_the_operator_allows_is_allowed(tmp_path: Path) -> None:
    allowed = brokers(tmp_path, networks=Networks(("127.0.0.0/8",)))
    assert allowed.register("b", "http://127.0.0.1:9000/").url == "http://127.0.0.1:9000/"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"typ": "BAD"}, "no option 'typ'"),
        ({"type": "other"}, "write general or BAD"),
        ({"key": "secret"}, "the key of broker 'b'"),
        ({"key": 5}, "no text"),
        ({"lease": "soon"}, "soon"),
        ({"public": "yes"}, "true or false"),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(tmp_path: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        brokers(tmp_path).register("b", URL, options=options)


def test_the_types_of_brokers_are_those_of_the_reference(tmp_path: Path) -> None:
    assert brokers(tmp_path).register("a", URL, options={"type": "bad"}).kind is Kind.BAD
    assert brokers(tmp_path).register("b", URL).kind is Kind.GENERAL


def test_a_user_has_so_many_brokers_and_no_more(tmp_path: Path) -> None:
    registry = brokers(tmp_path, most=2)
    for name in ("a", "b"):
        registry.register(name, URL, owner="ann")
    registry.register("c", URL, owner="bob")
    with pytest.raises(ConfigurationError, match="ann has 2 brokers"):
        registry.register("d", URL, owner="ann")


def test_a_draining_broker_takes_no_new_subscriptions(tmp_path: Path) -> None:
    registry = brokers(tmp_path)
    registry.register("b", URL)
    assert not registry.drain("b").accepts_subscriptions
    assert registry.resume("b").accepts_subscriptions


def test_a_lease_ends_unless_the_broker_gives_a_sign_of_life(tmp_path: Path) -> None:
    clock = Time()
    registry = brokers(tmp_path, clock)
    registry.register("b", URL, options={"lease": "PT1H"})
    clock.ms += 1_800_000
    registry.renew("b")
    clock.ms += 3_600_000
    assert not registry.get("b").has_expired(clock.ms * 1_000)
    assert registry.get("b").has_expired(clock.ms * 1_000 + 1)
    assert not registry.register("forever", URL).has_expired(10**18)

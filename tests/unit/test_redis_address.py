"""A redis_url: its parts, and that errors never repeat its password."""

from __future__ import annotations

import pytest

from quaestor.errors import ConfigurationError
from quaestor.redis.address import cluster_address, is_cluster
from quaestor.redis.clients import connection_pool, shared_client, spans_servers


@pytest.mark.parametrize(
    ("url", "hosts", "tls", "options"),
    [
        ("redis+cluster://a:1,b:2", (("a", 1), ("b", 2)), False, {}),
        ("redis+cluster://a", (("a", 6379),), False, {}),
        ("redis+cluster://a:1/", (("a", 1),), False, {}),
        ("redis+cluster://a:1/0", (("a", 1),), False, {}),
        ("redis+cluster://a:1,b?client_name=x", (("a", 1), ("b", 6379)), False, {"client_name": "x"}),
        ("redis+cluster://[::1]:7,[::2]:8", (("::1", 7), ("::2", 8)), False, {}),
        ("rediss+cluster://u:p%2Fw,@a:1,b:2", (("a", 1), ("b", 2)), True, {"username": "u", "password": "p/w,"}),
        ("rediss+cluster://:p@a:1", (("a", 1),), True, {"password": "p"}),
    ],
)
def test_the_url_of_a_cluster(url: str, hosts: object, tls: bool, options: object) -> None:
    address = cluster_address(url)
    assert is_cluster(url)
    assert (address.hosts, address.tls, address.options) == (hosts, tls, options)


@pytest.mark.parametrize(
    "url",
    [
        "redis+cluster://:secret@", "redis+cluster://:secret@a:1,", "redis+cluster://:secret@a:1/3", "redis+cluster://",
        "http+cluster://:secret@a:1", "redis+cluster://:secret@a:port", "redis+cluster://a:1?db=2&x=secret",
    ],
)  # fmt: skip
def test_a_text_that_is_no_address_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"redis\+cluster://host:port") as refused:
        cluster_address(url)
    assert "secret" not in str(refused.value)


def test_one_server_is_no_cluster_and_neither_is_anything_else() -> None:
    assert not is_cluster("redis://+cluster:1/")
    assert not is_cluster("rediss://a:1")
    assert not spans_servers(shared_client("redis://a:1"))
    assert spans_servers(shared_client("redis+cluster://a:1"))
    for make in (shared_client, connection_pool):
        with pytest.raises(ConfigurationError, match="http"):
            make("http://:secret@a/")

"""Faults of a Varnish configuration or adapter that are refused before anything is sent."""

from __future__ import annotations

import pytest

from quaestor.cdn_adapters import VarnishAdapter, varnish_vcl
from quaestor.errors import ConfigurationError
from quaestor.testing.servers import HOST

TOKEN = "open-sesame-0123"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend_host": 'x"; }'}, "backend_host"),
        ({"backend_port": 0}, "backend_port"),
        ({"purge_token": 'a"b'}, "purge_token"),
        ({"purge_token": "short"}, "purge_token"),
        ({"purge_token": None, "purgers": ["10.0.0.0/8"]}, "purge_token"),
        ({"purgers": ["example.com"]}, "purgers"),
        ({"grace_s": -1}, "grace_s"),
        ({"strong_reads_per_s": -1}, "strong_reads_per_s"),
        ({"strong_reads_per_s": 10**9}, "strong_reads_per_s"),
    ],
    ids=str,
)
def test_values_that_cannot_stand_in_vcl_are_refused(options: dict[str, object], message: str) -> None:
    values = {"backend_host": HOST, "backend_port": 80, "purge_token": TOKEN} | options
    with pytest.raises(ConfigurationError, match=message):
        varnish_vcl(values.pop("backend_host"), values.pop("backend_port"), **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("urls", [[], "localhost:6081", "ftp://host", "http://", "http://[::1"], ids=str)
def test_addresses_that_are_none_are_refused(urls: str | list[str]) -> None:
    with pytest.raises(ConfigurationError):
        VarnishAdapter(urls)

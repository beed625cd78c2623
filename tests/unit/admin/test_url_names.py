"""By which name a URL is registered."""

from __future__ import annotations

import pytest

from quaestor.admin.registered_urls import url_name
from quaestor.errors import ConfigurationError


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("/flights", "/flights"),
        ("/flights?b=2&a=1", "/flights?a=1&b=2"),
        ("/fl%69ghts?a=%2f#x", "/flights?a=%2F"),
        ("http://A.example/x?", "http://a.example/x"),
        ("HTTPS://a.example:443", "https://a.example/"),
        ("http://a.example?q=1", "http://a.example/?q=1"),
    ],
)
def test_spellings_of_one_url_have_one_name(url: str, name: str) -> None:
    assert url_name(url) == name
    assert url_name(name) == name


@pytest.mark.parametrize(
    "url", ["", "flights", "ftp://a/x", "http://", "http:///x", "/a b", "/é", "http://a b/x", "http://u@a/"]
)
def test_a_text_that_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        url_name(url)

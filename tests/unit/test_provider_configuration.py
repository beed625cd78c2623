"""Configurations of caches and hosted providers are well formed, and name the values to be filled in.

Configurations of caches are also compiled by the real programs: tests/end_to_end/test_real_caches.py; Souin's,
except for its module: tests/end_to_end/test_souin_caddyfile.py.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from quaestor.cdn_adapters import CACHES, HOSTED, provider_configuration
from quaestor.errors import ConfigurationError

DOCS = Path(__file__).parents[2] / "docs"
ON_CONTRACT = ("souin",)
"""Caches of one's own that no package of the distribution has."""


def braces(text: str) -> None:
    assert text.count("{") == text.count("}")


def lines(text: str) -> None:
    """Each a directive with a value."""
    assert all(len(line.split()) >= 2 for line in text.splitlines() if line and not line.startswith("#"))


PARSED = {
    "varnish": braces,
    "nginx": braces,
    "souin": braces,
    "squid": lines,
    "fastly": braces,
    "webhook": ast.parse,
    "netlify": tomllib.loads,
}


@pytest.mark.parametrize("name", [*CACHES, *HOSTED])
def test_a_configuration_is_in_the_provider_s_format(name: str) -> None:
    """JSON, TOML, Python or a shell script: what reads it can parse it, before and after it was filled in."""
    text = provider_configuration(name)
    values = dict.fromkeys(re.findall(r"@([a-z_]+)@", text), "value-1")
    values |= {"purger": "10.0.0.9", "app_port": "8001", "token": "value-10"} if name == "varnish" else {}
    for configuration in (text, provider_configuration(name, values)):
        if name in PARSED:
            PARSED[name](configuration)
        elif configuration.lstrip().startswith("{"):
            json.loads(configuration)
        else:
            subprocess.run(["bash", "-n"], input=configuration, text=True, check=True, timeout=60)
    assert re.findall(r"@[a-z_]+@", provider_configuration(name, values)) == []


def test_values_that_cannot_stand_in_a_configuration_are_refused() -> None:
    """The message names the value and what is possible."""
    with pytest.raises(ConfigurationError, match="varnish, nginx, squid, ats, souin, fastly, cloudflare"):
        provider_configuration("akamay")
    with pytest.raises(ConfigurationError, match="host"):
        provider_configuration("cloudflare", {"hots": "shop.example"})
    with pytest.raises(ConfigurationError, match="cannot stand"):
        provider_configuration("cloudflare", {"host": '"} or true'})
    for name in ("nginx", "squid", "ats", "souin", "varnish"):
        with pytest.raises(ConfigurationError, match="cannot stand"):
            provider_configuration(name, {"token": "a;b c"})
        with pytest.raises(ConfigurationError, match=f"{name} needs no 'tokn'"):
            provider_configuration(name, {"tokn": "value"})
    for values in ({"app_port": "http"}, {"token": "a:b-c-d-e"}, {"purger": "10.0.0.9"}):
        with pytest.raises(ConfigurationError, match=r"app_port|purge_token"):
            provider_configuration("varnish", values)


@pytest.mark.parametrize("name", HOSTED)
def test_each_provider_has_a_page_that_says_how_it_was_tested(name: str) -> None:
    """On its contract, with the month in which the limits were read, and in the navigation."""
    page = (DOCS / "cdn" / f"{name}.md").read_text()
    assert "Tested on its contract, not on the real thing" in page
    assert re.search(r"Limits, read 20\d\d-\d\d", page)
    assert f"quaestor cdn config {name}" in page
    assert f": cdn/{name}.md\n" in (DOCS.parent / "mkdocs.yml").read_text()


@pytest.mark.parametrize("name", CACHES)
def test_each_cache_has_a_page_that_says_on_what_it_was_tested(name: str) -> None:
    """On the real thing, with its version, or else on its contract; and in the navigation."""
    page = (DOCS / "cdn" / f"{name}.md").read_text()
    real = re.search(r"Tested on the real thing: [A-Z a-z]+ [0-9.]+", page) is not None
    assert real == (name not in ON_CONTRACT)
    assert real or "Tested on its contract, not on the real thing" in page
    assert f"quaestor cdn config {name} " in page
    assert f": cdn/{name}.md\n" in (DOCS.parent / "mkdocs.yml").read_text()

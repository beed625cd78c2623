"""Configurations of hosted providers are well formed, and say what is still to be filled in."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from cdn_adapters import HOSTED, provider_configuration
from quaestor.errors import ConfigurationError

DOCS = Path(__file__).parents[2] / "docs"
PARSED = {
    "fastly": lambda text: text.count("{") == text.count("}") or pytest.fail("braces"),
    "webhook": ast.parse,
    "netlify": tomllib.loads,
}


@pytest.mark.parametrize("name", HOSTED)
def test_a_configuration_is_in_the_provider_s_format(name: str) -> None:
    """JSON, TOML, Python or a shell script: what reads it can parse it, before and after it was filled in."""
    text = provider_configuration(name)
    values = dict.fromkeys(re.findall(r"@([a-z_]+)@", text), "value-1")
    for one in (text, provider_configuration(name, values)):
        if name in PARSED:
            PARSED[name](one)
        elif one.lstrip().startswith("{"):
            json.loads(one)
        else:
            subprocess.run(["bash", "-n"], input=one, text=True, check=True)
    assert re.findall(r"@[a-z_]+@", provider_configuration(name, values)) == []


def test_what_cannot_stand_in_a_configuration_is_refused() -> None:
    """The message names the value and what is possible."""
    with pytest.raises(ConfigurationError, match="fastly, cloudflare"):
        provider_configuration("akamay")
    with pytest.raises(ConfigurationError, match="host"):
        provider_configuration("cloudflare", {"hots": "shop.example"})
    with pytest.raises(ConfigurationError, match="cannot stand"):
        provider_configuration("cloudflare", {"host": '"} or true'})


@pytest.mark.parametrize("name", HOSTED)
def test_each_provider_has_a_page_that_says_how_it_was_tested(name: str) -> None:
    """On its contract, with the month in which the limits were read, and in the navigation."""
    page = (DOCS / "cdn" / f"{name}.md").read_text()
    assert "Tested on its contract, not on the real thing" in page
    assert re.search(r"Limits, read 20\d\d-\d\d", page)
    assert f"quaestor cdn config {name}" in page
    assert f": cdn/{name}.md\n" in (DOCS.parent / "mkdocs.yml").read_text()

"""Configuration that a hosted provider needs, filled in for one application; printed by `quaestor cdn config`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from typing import Final

from quaestor.errors import ConfigurationError

_FILES: Final = {
    "fastly": "fastly.vcl",
    "cloudflare": "cloudflare.json",
    "cloudfront": "cloudfront.json",
    "akamai": "akamai.json",
    "bunny": "bunny.json",
    "keycdn": "keycdn.json",
    "google-cloud-cdn": "google-cloud-cdn.sh",
    "azure-front-door": "azure-front-door.sh",
    "vercel": "vercel.json",
    "netlify": "netlify.toml",
    "webhook": "webhook.py.txt",
}
HOSTED: Final = tuple(_FILES)
"""Names of the providers."""
_PLACE = re.compile(r"@([a-z_]+)@")
_VALUE = re.compile(r"[A-Za-z0-9._:-]+")


def provider_configuration(name: str, values: Mapping[str, str] | None = None) -> str:
    """The text, in the provider's own format.

    values: what stands between @ in it: host, origin, account, and so on; what is not given stays as it is, to be filled in.

    Raises ConfigurationError for a provider that is not known, or a value that has no place in the text or cannot stand in one.
    """
    if name not in _FILES:
        raise ConfigurationError(f"no configuration for {name!r}; there are {', '.join(HOSTED)}")
    text = resources.files(__package__).joinpath("provider_settings", _FILES[name]).read_text()
    wanted = set(_PLACE.findall(text))
    for key, value in (values or {}).items():
        if key not in wanted:
            raise ConfigurationError(f"{name} needs no {key!r}; it needs {', '.join(sorted(wanted)) or 'nothing'}")
        if not _VALUE.fullmatch(value):
            raise ConfigurationError(f"{key} {value!r} cannot stand in a configuration: letters, digits and . _ : -")
        text = text.replace(f"@{key}@", value)
    return text

"""Configuration of a cache or a hosted provider, filled in for one application; printed by `quaestor cdn config`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import resources
from typing import Final

from quaestor.cdn_adapters.vcl import varnish_vcl
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
_CACHES: Final = {"nginx": "nginx.conf", "squid": "squid.conf", "ats": "ats.sh", "souin": "souin.caddyfile"}
_VARNISH: Final = {"app_host": "127.0.0.1", "app_port": "8000", "token": "", "purger": "127.0.0.1"}
"""Placeholders of the VCL, with their default values."""
CACHES: Final = ("varnish", *_CACHES)
"""Names of the self-hosted caches."""
_PLACE = re.compile(r"@([a-z_]+)@")
_VALUE = re.compile(r"[A-Za-z0-9._:/=-]+")


def provider_configuration(name: str, values: Mapping[str, str] | None = None) -> str:
    """Return the configuration text, in the provider's own format.

    values: values for the placeholders between @: host, origin, account, and so on; others stay as they are, to be filled in.
        Of Varnish: app_host, app_port, token and purger, which have defaults.

    Raises ConfigurationError for an unknown provider, an unknown placeholder, or a value that cannot stand in a configuration.
    """
    given = dict(values or {})
    for key, value in given.items():
        if not _VALUE.fullmatch(value):
            raise ConfigurationError(
                f"{key} {value!r} cannot stand in a configuration: letters, digits and . _ : / = -"
            )
    if name == "varnish":
        _require_known(name, given, set(_VARNISH))
        return _vcl(_VARNISH | given)
    file = _CACHES.get(name) or _FILES.get(name)
    if file is None:
        raise ConfigurationError(f"no configuration for {name!r}; there are {', '.join((*CACHES, *HOSTED))}")
    text = resources.files(__package__).joinpath("provider_settings", file).read_text()
    _require_known(name, given, set(_PLACE.findall(text)))
    for key, value in given.items():
        text = text.replace(f"@{key}@", value)
    return text


def _require_known(name: str, given: Mapping[str, str], wanted: set[str]) -> None:
    for key in given:
        if key not in wanted:
            raise ConfigurationError(f"{name} needs no {key!r}; it needs {', '.join(sorted(wanted)) or 'nothing'}")


def _vcl(values: Mapping[str, str]) -> str:
    if not values["app_port"].isdecimal():
        raise ConfigurationError(f"app_port {values['app_port']!r} is not a TCP port")
    return varnish_vcl(
        values["app_host"], int(values["app_port"]), purge_token=values["token"] or None, purgers=(values["purger"],)
    )

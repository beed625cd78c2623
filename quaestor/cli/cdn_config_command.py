"""Command `quaestor cdn config`: the configuration that a CDN needs, in its own format."""

from __future__ import annotations

from typing import Annotated

import typer

from quaestor.errors import ConfigurationError


def config(
    provider: Annotated[
        str, typer.Argument(metavar="PROVIDER", help="varnish, nginx, squid, ats, fastly, cloudflare, ...")
    ],
    values: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Value of a name that stands between @; may be repeated."),
    ] = None,
) -> None:
    """Print the configuration that a CDN needs before a Quaestor application: VCL, rules or commands."""
    from quaestor.cdn_adapters import provider_configuration

    given = {}
    for text in values or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigurationError(f"{text!r} is no NAME=VALUE")
        given[name] = value
    print(provider_configuration(provider, given), end="")

"""Settings of a command: from the environment, and from the options of the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from quaestor.settings import Settings

LayerUrl = Annotated[str | None, typer.Option(envvar="REDIS_URL", help="The event layer.")]
Deployment = Annotated[str | None, typer.Option(help="Separates deployments that share one Redis.")]


def command_settings(**given: Any) -> Settings:
    """Settings from QUAESTOR_* in the environment and from the command line. An option that is given wins."""
    from quaestor.settings import Settings

    return Settings.from_env(**{name: value for name, value in given.items() if value is not None})

"""Commands of the group `quaestor monitoring`: configuration for Grafana and Prometheus, as text."""

from __future__ import annotations

import typer

from quaestor.observability import monitoring

commands = typer.Typer(
    pretty_exceptions_enable=False, no_args_is_help=True, help="Grafana dashboard and Prometheus alert rules."
)
"""Commands of the group `quaestor monitoring`."""


@commands.command("grafana")
def grafana() -> None:
    """Print a Grafana dashboard as JSON: import it, and choose the Prometheus that scrapes the app."""
    print(monitoring.grafana(), end="")


@commands.command("alerts")
def alerts() -> None:
    """Print Prometheus alert rules as YAML: a file for `rule_files`."""
    print(monitoring.alerts(), end="")

"""Commands that run the grid: `quaestor grid` as local processes, the group `quaestor cluster` on Spark, with its status."""

from __future__ import annotations

import functools
from typing import Annotated

import typer

from quaestor.cli import extras
from quaestor.cli.command_settings import Deployment, LayerUrl, command_settings
from quaestor.errors import ConfigurationError

commands = typer.Typer(pretty_exceptions_enable=False)
"""Commands of the group `quaestor cluster`."""

DatabaseUrl = Annotated[str | None, typer.Option(envvar="MONGO_URL", help="The replica set that is followed.")]
ReadyTimeout = Annotated[float, typer.Option(help="Seconds until all cells must receive their input.")]
QueryPartitions = Annotated[int, typer.Option(min=1, help="Queries are split over so many columns of cells.")]
WritePartitions = Annotated[int, typer.Option(min=1, help="Records are split over so many rows of cells.")]
MetricsPort = Annotated[
    int | None, typer.Option(help="Serve the grid's figures to Prometheus on this port, at /metrics; 0: any free one.")
]
MetricsHost = Annotated[str, typer.Option(help="Where the figures are served; by default to this machine alone.")]
Conf = Annotated[
    list[str] | None, typer.Option(metavar="SPARK.NAME=VALUE", help="A Spark setting, as of spark-submit; repeatable.")
]


def grid(
    query_partitions: QueryPartitions = 1,
    write_partitions: WritePartitions = 1,
    mongo_url: DatabaseUrl = None,
    redis_url: LayerUrl = None,
    deployment: Deployment = None,
    ready_timeout: ReadyTimeout = 120.0,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
) -> None:
    """Run the grid as processes of this machine until Ctrl-C, each restarted alone. Needs no Java.

    Takes over from the elected app process, or from another grid, which then ends. When this grid is stopped, app
    processes elect one among them again. `quaestor cluster status` shows the state of the grid.
    """
    from quaestor.cli import grid_run

    grid_run.run_as_processes(
        command_settings(mongo_url=mongo_url, redis_url=redis_url, deployment=deployment),
        query_partitions=query_partitions, write_partitions=write_partitions, ready_timeout_s=ready_timeout,
        metrics_port=metrics_port, metrics_host=metrics_host,
    )  # fmt: skip


@commands.callback(invoke_without_command=True)
def run_cluster(
    context: typer.Context,
    master: Annotated[
        str | None,
        typer.Option(
            help="local[N,8], local-cluster[executors,slots,MB], spark://host:port, yarn or k8s://...; default: two executors "
            "on this machine."
        ),
    ] = None,
    query_partitions: QueryPartitions = 1,
    write_partitions: WritePartitions = 1,
    mongo_url: DatabaseUrl = None,
    redis_url: LayerUrl = None,
    deployment: Deployment = None,
    ready_timeout: ReadyTimeout = 120.0,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    conf: Conf = None,
) -> None:
    """Run the grid until Ctrl-C: long-running tasks, each restarted by Spark alone.

    Needs Java 17 or 21, and a slot for each task: if there are too few slots, the refusal names the number. Another grid of the
    same deployment gives way to this one; if it has other partitions, it does so after this one has taken over.
    """
    if context.invoked_subcommand is not None:
        return
    extras.require("spark", "the grid")
    from quaestor.cli import grid_run

    grid_run.run_on_spark(
        command_settings(mongo_url=mongo_url, redis_url=redis_url, deployment=deployment),
        master=master, query_partitions=query_partitions, write_partitions=write_partitions, ready_timeout_s=ready_timeout,
        conf=conf or (), metrics_port=metrics_port, metrics_host=metrics_host,
    )  # fmt: skip


@commands.command("resize")
def resize(
    query_partitions: QueryPartitions,
    write_partitions: WritePartitions,
    master: Annotated[str | None, typer.Option(help="As of quaestor cluster.")] = None,
    mongo_url: DatabaseUrl = None,
    redis_url: LayerUrl = None,
    deployment: Deployment = None,
    ready_timeout: ReadyTimeout = 120.0,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    conf: Conf = None,
) -> None:
    """Run a grid with other partitions. The new grid takes over from the running one while both run; the old one then ends.

    Cached answers stay cached, and nothing becomes stale. Like quaestor cluster, the command runs until Ctrl-C.
    """
    extras.require("spark", "the grid")
    from quaestor.cli import grid_run

    settings = command_settings(mongo_url=mongo_url, redis_url=redis_url, deployment=deployment)
    grid_run.require_resizable(settings, query_partitions=query_partitions, write_partitions=write_partitions)
    grid_run.run_on_spark(
        settings, master=master, query_partitions=query_partitions, write_partitions=write_partitions,
        ready_timeout_s=ready_timeout,
        conf=conf or (), metrics_port=metrics_port, metrics_host=metrics_host,
    )  # fmt: skip


@commands.command("status")
def status(
    redis_url: LayerUrl = None,
    deployment: Deployment = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")] = False,
    prometheus: Annotated[bool, typer.Option("--prometheus", help="Prometheus text instead of tables.")] = False,
) -> None:
    """Show every cell (queries, writes/s, lag, latencies, memory) and every pipeline. Exit status 1: a cell is silent or too
    far behind."""
    from quaestor.cli import cluster_status

    if as_json and prometheus:
        raise ConfigurationError("--json and --prometheus are two forms of the same figures: choose one")
    settings = command_settings(redis_url=redis_url, deployment=deployment)
    form = cluster_status.to_json if as_json else cluster_status.text
    if prometheus:
        from quaestor.cli.cluster_metrics import exposition

        form = functools.partial(exposition, staleness_bound_ms=settings.grid.staleness_bound_ms)
    output, healthy = cluster_status.run(settings, form=form)
    print(output.rstrip("\n"))
    raise typer.Exit(0 if healthy else 1)

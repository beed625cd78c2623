"""The command `quaestor`. Each command's work is done in a module of its own; this file says how it is called.

Exit status: 0 done; 1 something did not hold; 2 a bad argument, or a part is missing: one sentence on stderr says which and
how to mend it.
"""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from quaestor.errors import ConfigurationError, QuaestorError

app = typer.Typer(
    help="Exact invalidation of cached MongoDB query results.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def _commands() -> None:
    """With a callback, a single command keeps its name."""


@app.command()
def demo(
    once: Annotated[bool, typer.Option("--once", help="Check the promises one by one: a JSON object a line.")] = False,
    day: Annotated[str, typer.Option(help="The day of 2013 that is replayed.")] = "2013-07-04",
    speed: Annotated[float, typer.Option(help="How many times as fast as the real day (at most 3600).")] = 60.0,
    port: Annotated[int, typer.Option(help="Port of the application's front; 0: any free one.")] = 0,
    live_port: Annotated[int, typer.Option(help="Port of the live page; 0: any free one.")] = 0,
    without_spark: Annotated[bool, typer.Option(help="Embedded: one worker, no Redis, no Java.")] = False,
    without_varnish: Annotated[bool, typer.Option(help="No Varnish before the app.")] = False,
) -> None:
    """Start everything on real data, with live writes and a live page; Ctrl-C stops it."""
    from quaestor.demo import command

    options = command.DemoOptions(
        day=day, speed=speed, port=port, live_port=live_port, spark=not without_spark, varnish=not without_varnish
    )
    raise typer.Exit(command.once(options) if once else command.demo(options))


@app.command()
def explain(
    query: Annotated[
        str, typer.Argument(metavar="FILTER", help="A find filter, or an aggregation pipeline: (extended) JSON.")
    ],
    collection: Annotated[str, typer.Option(help="database.collection")] = "test.collection",
    sort: Annotated[str | None, typer.Option(help='For example scheduled,-_id or {"at": -1, "_id": 1}')] = None,
    skip: Annotated[int, typer.Option(min=0)] = 0,
    limit: Annotated[int, typer.Option(min=0, help="0: none.")] = 0,
    projection: Annotated[str | None, typer.Option(help='For example {"name": 1}')] = None,
    text_index: Annotated[str | None, typer.Option(help="The text index as list_indexes gives it, for $text.")] = None,
    mongo_url: Annotated[
        str | None, typer.Option(help="Look the collection up there: view, collation, images, text index.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Say how a query is treated: cached or not, matched exactly or widened, found by which index, and why."""
    from quaestor.explain import request

    text = request.run(
        query,
        collection=collection,
        sort=sort,
        skip=skip,
        limit=limit,
        projection=projection,
        as_json=as_json,
        text_index=text_index,
        mongo_url=mongo_url,
    )
    print(text)


@app.command()
def proxy(
    origin: Annotated[str, typer.Option(metavar="URL", help="The HTTP origin, like http://127.0.0.1:3000.")],
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen.")] = "127.0.0.1:8080",
    mongo_url: Annotated[
        str | None, typer.Option(envvar="MONGO_URL", help="The origin's MongoDB. None: a plain HTTP cache.")
    ] = None,
    redis_url: Annotated[
        str | None, typer.Option(envvar="REDIS_URL", help="Share entries and the matching grid through this Redis.")
    ] = None,
    deployment: Annotated[str, typer.Option(help="Separates deployments that share one Redis.")] = "default",
    database: Annotated[
        str | None, typer.Option(help="The database of collections that the origin names without one.")
    ] = None,
    admin_token_file: Annotated[
        Path | None, typer.Option(help="Serve /quaestor/admin/ for whoever has the token in this file.")
    ] = None,
    host_header: Annotated[
        str, typer.Option(help="preserve: the origin gets the client's Host; origin: its own.")
    ] = "preserve",
    host: Annotated[
        list[str] | None, typer.Option(help="Answer requests for this host only; may be repeated. Default: any.")
    ] = None,
    trust_forwarded: Annotated[
        bool,
        typer.Option("--trust-forwarded", help="Keep Forwarded and X-Forwarded-* of requests: behind own proxies."),
    ] = False,
    connect_timeout: Annotated[float, typer.Option(help="Seconds to reach the origin.")] = 5.0,
    read_timeout: Annotated[float, typer.Option(help="Seconds that the origin may be silent.")] = 60.0,
    max_connections: Annotated[int, typer.Option(min=1, help="To the origin.")] = 256,
    origin_ca: Annotated[Path | None, typer.Option(help="PEM file to verify an https origin against.")] = None,
    memory_mb: Annotated[int, typer.Option(min=1, help="Budget of the cache in memory.")] = 64,
    max_body_kb: Annotated[int, typer.Option(min=1, help="Larger bodies are passed on, never stored.")] = 2048,
    certificate: Annotated[Path | None, typer.Option(help="PEM file: serve https.")] = None,
    key: Annotated[Path | None, typer.Option(help="PEM file of the certificate's key.")] = None,
    metrics: Annotated[bool, typer.Option("--metrics", help="Serve /quaestor/metrics to everybody.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Say in X-Quaestor-Explain why an answer was stored.")] = False,
) -> None:
    """Run the cache in front of any HTTP origin; Ctrl-C stops it."""
    from quaestor.proxy import command

    command.run(
        command.ProxyCommand(
            origin=origin, listen=listen, mongo_url=mongo_url, redis_url=redis_url, deployment=deployment,
            database=database, admin_token_file=admin_token_file, host_header=host_header, hosts=tuple(host or ()),
            trust_forwarded=trust_forwarded, connect_timeout_s=connect_timeout, read_timeout_s=read_timeout,
            max_connections=max_connections, origin_ca=origin_ca, memory_bytes=memory_mb * 1024 * 1024,
            max_body_bytes=max_body_kb * 1024, certificate=certificate, key=key, metrics=metrics, debug=debug,
        )
    )  # fmt: skip


Admin = Annotated[
    str, typer.Option("--admin", metavar="URL", envvar="QUAESTOR_ADMIN_URL", help="The proxy or application to ask.")
]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", help="File with the admin token; default: $QUAESTOR_ADMIN_TOKEN.")
]


@app.command()
def invalidate(
    tag: Annotated[
        list[str] | None, typer.Option("--tag", help="Answers that carry this tag; may be repeated.")
    ] = None,
    url: Annotated[
        list[str] | None, typer.Option("--url", help="https://shop.example/items, or /items on every host; repeatable.")
    ] = None,
    collection: Annotated[
        list[str] | None, typer.Option("--collection", help="database.collection or database.*; repeatable.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Everything.")] = False,
    admin: Admin = "http://127.0.0.1:8080",
    token_file: TokenFile = None,
) -> None:
    """Invalidate by tag, URL or collection, everywhere: in every process, in CDNs and in browsers."""
    from quaestor.admin.client import AdminClient
    from quaestor.admin.token import read_token

    if not (tag or url or collection or everything):
        raise ConfigurationError("nothing to invalidate: pass --tag, --url, --collection or --all")
    client = AdminClient(admin, read_token(token_file))
    told = client.purge(tags=tag or [], urls=url or [], collections=collection or [], all=everything)
    print(json.dumps(told["purged"]))


@app.command()
def status(
    admin: Admin = "http://127.0.0.1:8080",
    token_file: TokenFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
) -> None:
    """Say how a running proxy or application is doing. Exit status 1: nothing is served from its cache."""
    from quaestor.admin import status_text
    from quaestor.admin.client import AdminClient
    from quaestor.admin.token import read_token

    told = AdminClient(admin, read_token(token_file)).status()
    print(json.dumps(told) if as_json else status_text.text(told))
    raise typer.Exit(0 if told["serving"] else 1)


cluster = typer.Typer(pretty_exceptions_enable=False)
app.add_typer(cluster, name="cluster")


FollowedUrl = Annotated[str | None, typer.Option(envvar="MONGO_URL", help="The replica set that is followed.")]
LayerUrl = Annotated[str | None, typer.Option(envvar="REDIS_URL", help="The event layer.")]
Deployment = Annotated[str | None, typer.Option(help="Separates deployments that share one Redis.")]
ReadyTimeout = Annotated[float, typer.Option(help="Seconds for all cells to be fed.")]
QueryPartitions = Annotated[int, typer.Option(min=1, help="Queries are split over so many columns of cells.")]
WritePartitions = Annotated[int, typer.Option(min=1, help="Records are split over so many rows of cells.")]
MetricsPort = Annotated[
    int | None, typer.Option(help="Serve the grid's figures to Prometheus on this port, at /metrics; 0: any free one.")
]
MetricsHost = Annotated[str, typer.Option(help="Where the figures are served; by default to this machine alone.")]
Conf = Annotated[
    list[str] | None, typer.Option(metavar="SPARK.NAME=VALUE", help="A Spark setting, as of spark-submit; repeatable.")
]


@cluster.callback(invoke_without_command=True)
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
    mongo_url: FollowedUrl = None,
    redis_url: LayerUrl = None,
    deployment: Deployment = None,
    ready_timeout: ReadyTimeout = 120.0,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    conf: Conf = None,
) -> None:
    """Run the grid until Ctrl-C: long-running tasks, each restarted by Spark alone.

    Needs Java 17 or 21, and a slot for each task: if there are too few, the refusal says how many. Another grid of the same
    deployment gives way to this one; if it has other partitions, after this one has taken over from it.
    """
    if context.invoked_subcommand is not None:
        return
    from quaestor.cli import cluster_command

    cluster_command.run(
        cluster_command.settings(mongo_url=mongo_url, redis_url=redis_url, deployment=deployment),
        master=master, query_partitions=query_partitions, write_partitions=write_partitions, ready_timeout_s=ready_timeout,
        conf=conf or (), metrics_port=metrics_port, metrics_host=metrics_host,
    )  # fmt: skip


@cluster.command("resize")
def cluster_resize(
    query_partitions: QueryPartitions,
    write_partitions: WritePartitions,
    master: Annotated[str | None, typer.Option(help="As of quaestor cluster.")] = None,
    mongo_url: FollowedUrl = None,
    redis_url: LayerUrl = None,
    deployment: Deployment = None,
    ready_timeout: ReadyTimeout = 120.0,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    conf: Conf = None,
) -> None:
    """Run a grid with other partitions, which takes over from the running one while both run; that one then ends.

    What is cached stays cached, nothing becomes stale. Like quaestor cluster, it runs until Ctrl-C.
    """
    from quaestor.cli import cluster_command

    settings = cluster_command.settings(mongo_url=mongo_url, redis_url=redis_url, deployment=deployment)
    cluster_command.require_resizable(settings, query_partitions=query_partitions, write_partitions=write_partitions)
    cluster_command.run(
        settings, master=master, query_partitions=query_partitions, write_partitions=write_partitions,
        ready_timeout_s=ready_timeout,
        conf=conf or (), metrics_port=metrics_port, metrics_host=metrics_host,
    )  # fmt: skip


@cluster.command("status")
def cluster_status(
    redis_url: LayerUrl = None,
    deployment: Deployment = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")] = False,
    prometheus: Annotated[bool, typer.Option("--prometheus", help="Prometheus text instead of tables.")] = False,
) -> None:
    """Show every cell (queries, writes/s, lag, latencies, memory) and every pipeline. Exit status 1: a cell is silent or too
    far behind."""
    from quaestor.cli import cluster_command, cluster_status

    if as_json and prometheus:
        raise ConfigurationError("--json and --prometheus are two forms of the same figures: choose one")
    settings = cluster_command.settings(redis_url=redis_url, deployment=deployment)
    form = cluster_status.to_json if as_json else cluster_status.text
    if prometheus:
        from quaestor.cli.cluster_metrics import exposition

        form = functools.partial(exposition, staleness_bound_ms=settings.staleness_bound_ms)
    told, healthy = cluster_status.run(settings, form=form)
    print(told.rstrip("\n"))
    raise typer.Exit(0 if healthy else 1)


statistics = typer.Typer(
    pretty_exceptions_enable=False, no_args_is_help=True, help="Rates in windows, and the history of all writes."
)
app.add_typer(statistics, name="statistics")

Directory = Annotated[Path, typer.Option(help="Tables and checkpoints; on a file system that the executors share.")]
KeepDays = Annotated[int, typer.Option(min=0, help="Days of history that are kept; 0: all.")]
Lengths = Annotated[str, typer.Option("--windows", metavar="SECONDS", help="Lengths of the windows.")]


@statistics.command("run")
def run_statistics(
    directory: Directory,
    windows: Lengths = "10,60",
    redis_url: LayerUrl = None,
    deployment: Deployment = None,
    master: Annotated[str | None, typer.Option(help="Spark's master; default: local[2].")] = None,
    trigger: Annotated[float, typer.Option(help="Seconds from batch to batch.")] = 5.0,
    lateness: Annotated[int, typer.Option(min=0, help="A window is final so many seconds after its end.")] = 10,
    keep_days: KeepDays = 30,
) -> None:
    """Run the statistics job until Ctrl-C. It goes on where it was, however it ended."""
    from quaestor.cli import cluster_command
    from quaestor.statistics import command

    settings = cluster_command.settings(redis_url=redis_url, deployment=deployment)
    told = command.options(
        settings, directory, windows_s=windows, trigger_s=trigger, lateness_s=lateness, keep_days=keep_days
    )
    command.run(told, master=master)


@statistics.command("show")
def show_statistics(
    windows: Lengths = "10,60",
    redis_url: LayerUrl = None,
    deployment: Deployment = None,
    as_json: Annotated[bool, typer.Option("--json", help="All windows that are kept, as JSON on one line.")] = False,
) -> None:
    """Show the newest windows: what is written, what matches, what is read."""
    from quaestor.cli import cluster_command
    from quaestor.statistics import command, reader

    settings = cluster_command.settings(redis_url=redis_url, deployment=deployment)
    told = reader.show(
        command.redis_url(settings), settings.deployment, command.lengths(windows), as_json=as_json
    )  # fmt: skip
    print(told)


@statistics.command("compact")
def compact_statistics(directory: Directory, keep_days: KeepDays = 30) -> None:
    """Make small files into larger ones and remove old ones, once. A running job does so by itself."""
    from quaestor.statistics import command

    print(command.compact(directory, keep_days=keep_days))


def main(arguments: list[str] | None = None) -> None:
    """The console script. Exits; never shows a traceback for what was foreseen."""
    try:
        app(args=arguments, prog_name="quaestor")
    except QuaestorError as error:
        print(f"quaestor: {error}", file=sys.stderr)
        sys.exit(2)

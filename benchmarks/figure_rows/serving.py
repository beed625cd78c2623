"""Rows of what is served: hits, misses, clients with the Cache Sketch, lists kept up to date."""

from __future__ import annotations

from benchmarks.figure_rows.results import Result, Row, count, result


def requests() -> list[Row]:
    """Hits and misses beside the peers'."""
    measured = result("http_peers")
    memory, grid = measured["in_memory"], measured["beside_a_2x2_grid"]

    def rate(name: str, kind: str, of: Result = memory) -> str:
        return count(of[name][kind]["requests_per_s"])

    ours = ("uncached", "bare ASGI", "quaestor")
    peers = [name for name in memory if not name.startswith(ours)]
    eased = next(name for name in memory if name.startswith("uncached,"))

    def ranked(kind: str) -> str:
        best = sorted(peers, key=lambda name: -memory[name][kind]["requests_per_s"])
        return ", ".join(f"{name.replace('_', '-')} {rate(name, kind)}" for name in best)

    around, line, ids = "quaestor, around the app", "quaestor, by the one line", "quaestor, a list of ids"
    return [
        (
            "hits: a list of 100 objects, one uvicorn worker, 32 connections",
            f"{rate(line, 'hits')}/s with the one line; {rate(around, 'hits')}/s around the app",
            f"a bare ASGI app that sends the same bytes {rate('bare ASGI bytes', 'hits')}/s; {ranked('hits')}",
        ),
        (
            "hits that are not in the worker's memory as a whole",
            f"from Redis {rate('quaestor, out of Redis', 'hits', grid)}/s; assembled from a list of ids {rate(ids, 'hits')}/s",
            f"uncached FastAPI {rate('uncached', 'hits')}/s",
        ),
        (
            "misses: each request has another URL, and the doorkeeper refuses most answers",
            f"{rate(line, 'misses')}/s with the one line; {rate(around, 'misses')}/s around the app; "
            f"{rate('quaestor, out of Redis', 'misses', grid)}/s beside a 2 x 2 grid",
            f"uncached {rate('uncached', 'misses')}/s, {eased.partition(', ')[2]} {rate(eased, 'misses')}/s; {ranked('misses')}",
        ),
        (
            "misses: each answer is stored and its queries are registered",
            f"{rate('quaestor, each stored', 'misses')}/s; in Redis "
            f"{rate('quaestor, each stored, in Redis', 'misses', grid)}/s",
            f"uncached {rate('uncached', 'misses')}/s",
        ),
    ]


def clients() -> list[Row]:
    """The Cache Sketch, and the clients that read from their own caches with it."""
    python, browser, sketch = result("python_client"), result("browser_client"), result("sketch")
    hits, over, reads = python["hits_per_s"], python["over_hishel"], browser["reads"]["ms"]
    fullest, reports = sketch["false_positives"][-1], sketch["reports"]
    bare = "httpx with nothing behind it"
    batch_us, alone_us = reports["report_write_batch"]["server_us"], reports["report_write"]["server_us"]
    return [
        (
            "hits of the Python client",
            f"transport alone {count(hits['quaestor, transport'])}/s; through `httpx.AsyncClient` "
            f"{count(hits['quaestor, AsyncClient'])}/s; through `httpx.Client` {count(hits['quaestor, Client'])}/s",
            f"{count(over['transport alone'])}, {count(over['through httpx.AsyncClient'])} and "
            f"{count(over['through httpx.Client'])} times hishel's rates; httpx with an empty transport: "
            f"{count(hits[f'{bare}, AsyncClient'])}/s and {count(hits[f'{bare}, Client'])}/s",
        ),
        (
            "a read of the browser client in Chromium",
            f"from the page's memory {reads['page, fetch']:.2f} ms; under the service worker {reads['worker']:.1f} ms",
            f"under a worker that only forwards to the browser's cache {reads['worker that does nothing']:.1f} ms. The sketch "
            f"answers {browser['lookups']['per_s'] / 1e6:.1f} million look-ups a second",
        ),
        (
            f"false positives of the sketch of 14,600 bytes with {sketch['at_20000']['entries']:,} outdated resources",
            f"{100 * sketch['at_20000']['counted']:.1f} %",
            f"theory {100 * sketch['at_20000']['theory']:.1f} %; with {fullest['entries']:,} outdated resources "
            f"{100 * fullest['counted']:.0f} %. An outdated resource costs Redis {batch_us:.0f} us in a batch and "
            f"{alone_us:.0f} us alone; a bare ZADD costs {reports['bare_zadd']['server_us']:.1f} us",
        ),
    ]


def lists() -> list[Row]:
    """Update in place."""
    measured = result("update_in_place")
    images, none = measured["with_images"], measured["without_images"]
    return [
        (
            f"database queries per write to a hot list of {measured['members']} that the grid maintains, "
            "with post-images (not MongoDB's default)",
            f"{images['queries_a_write']['maintained']:.2f}",
            f"invalidated instead: {images['queries_a_write']['objects']:.2f}. Without post-images "
            f"{none['queries_a_write']['maintained']:.2f} and {none['queries_a_write']['objects']:.2f}, and answers are stale by "
            f"{none['stale_mean_ms']['maintained']:.2f} and {none['stale_mean_ms']['objects']:.2f} ms on average. "
            "mongod's own look-up of each updated record is not counted there",
        )
    ]


def distance() -> list[Row]:
    """Query caching over distance, with the fewest and with the most connections."""
    measured = result("quaestor_fig58")
    rows: list[Row] = []
    for number in (0, len(measured["over_uncached"]) - 1):
        over = measured["over_uncached"][number]
        cdn, full = (measured["setups"][setup][number] for setup in ("CDN", "full"))
        limited = sorted({*cdn["limited_by"], *full["limited_by"]})
        rows.append(
            (
                f"mean latency and throughput over uncached: 150 ms to the app, 4 ms to Varnish, 1 % writes, "
                f"{over['connections']} connections, closed loop",
                f"CDN {count(over['CDN']['lower_mean_latency'])}x lower, {count(over['CDN']['throughput'])}x; with caching "
                f"clients {count(over['full']['lower_mean_latency'])}x lower, {count(over['full']['throughput'])}x",
                f"aims: 7 and 5, 30 and 11. Stale: {100 * cdn['stale']:.2f} % and {100 * full['stale']:.2f} %, by at most "
                f"{cdn['stale_max_s']:.1f} s and {full['stale_max_s']:.1f} s"
                + (f". No processor time was left for: {', '.join(limited)}" if limited else ""),
            )
        )
    return rows


def idle() -> list[Row]:
    """Cost of an embedded Quaestor without requests."""
    measured = result("idle")
    more, aim, bare = measured["more"], measured["aim"], measured["bare"]
    return [
        (
            "an idle app with embedded Quaestor, beyond the same app without it",
            f"{100 * more['core']:.2f} % of a core; {more['rss_bytes'] / 1e6:.0f} MB; {more['threads']} threads",
            f"aims: {100 * aim['core']:.1f} % and {aim['rss_bytes'] / 1e6:.0f} MB. The app without Quaestor: "
            f"{100 * bare['core']:.2f} %, {bare['rss_bytes'] / 1e6:.0f} MB, {bare['threads']} threads",
        )
    ]


def imports() -> list[Row]:
    """Cost of importing the names of an application, and of what a started app holds."""
    measured = result("imports")
    alone, beside = (measured["imports"][stage] for stage in ("alone", "beside_fastapi_and_pymongo"))
    added = measured["started"]["added"]
    return [
        (
            "`from quaestor import Quaestor, QuaestorMiddleware` in a fresh interpreter",
            f"{_cost(alone['after'])}. Beside FastAPI and PyMongo: {_cost(beside['after'])}.",
            f"before parts were loaded at first use: {_cost(alone['before'])}. Beside FastAPI and PyMongo: "
            f"{_cost(beside['before'])}. Aim: half.",
        ),
        (
            "a started app with one cached route, beyond the same app without Quaestor",
            f"{added['after']['rss_bytes'] / 1e6:.0f} MB; {100 * added['after']['core']:.2f} % of a core at rest",
            f"before {added['before']['rss_bytes'] / 1e6:.0f} MB; {100 * added['before']['core']:.2f} %. Aim: 20 MB.",
        ),
    ]


def _cost(figures: dict[str, float]) -> str:
    return f"{figures['rss_bytes'] / 1e6:.0f} MB, {figures['cpu_ms']:.0f} ms of a core"

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
            "cache hits of a 100-object list, one uvicorn worker, 32 connections",
            f"{rate(around, 'hits')}/s around the app, {rate(line, 'hits')}/s by the one line",
            f"bare ASGI bytes {rate('bare ASGI bytes', 'hits')}; {ranked('hits')}",
        ),
        (
            "... put together from a list of ids; out of Redis instead of memory",
            f"{rate(ids, 'hits')}/s; {rate('quaestor, out of Redis', 'hits', grid)}/s",
            f"uncached FastAPI {rate('uncached', 'hits')}",
        ),
        (
            "cache misses: every request another URL, most refused by the doorkeeper; each stored and its queries registered",
            f"{rate(around, 'misses')}/s around the app, {rate(line, 'misses')}/s by the one line, "
            f"{rate('quaestor, out of Redis', 'misses', grid)}/s beside a 2 x 2 grid; "
            f"{rate('quaestor, each stored', 'misses')}/s, {rate('quaestor, each stored, in Redis', 'misses', grid)}/s",
            f"uncached {rate('uncached', 'misses')}, {eased.partition(', ')[2]} {rate(eased, 'misses')}; {ranked('misses')}",
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
            "hits of the Python client: transport alone; through `httpx.AsyncClient`; through `httpx.Client`",
            f"{count(hits['quaestor, transport'])}/s; {count(hits['quaestor, AsyncClient'])}/s; "
            f"{count(hits['quaestor, Client'])}/s",
            f"{count(over['transport alone'])}, {count(over['through httpx.AsyncClient'])} and "
            f"{count(over['through httpx.Client'])} times hishel's; httpx with nothing behind it: "
            f"{count(hits[f'{bare}, AsyncClient'])} and {count(hits[f'{bare}, Client'])}",
        ),
        (
            "browser client in Chromium: an answer out of the page's memory; under the service worker",
            f"{reads['page, fetch']:.2f} ms; {reads['worker']:.1f} ms",
            f"under a worker that hands everything to the browser's cache {reads['worker that does nothing']:.1f} ms; "
            f"{browser['lookups']['per_s'] / 1e6:.1f} million look-ups in the sketch a second",
        ),
        (
            f"false positives of the sketch of 14,600 bytes with {sketch['at_20000']['entries']:,} outdated resources",
            f"{100 * sketch['at_20000']['counted']:.1f} %",
            f"theory {100 * sketch['at_20000']['theory']:.1f} %; with {fullest['entries']:,} it has "
            f"{100 * fullest['counted']:.0f} %; an outdated resource costs Redis {batch_us:.0f} us in a batch, {alone_us:.0f} us "
            f"alone, a bare ZADD {reports['bare_zadd']['server_us']:.1f} us",
        ),
    ]


def lists() -> list[Row]:
    """Update in place."""
    measured = result("update_in_place")
    images, none = measured["with_images"], measured["without_images"]
    return [
        (
            f"queries to the database for each write to a hot list of {measured['members']}, kept up to date in place, "
            "with post-images (not MongoDB's default)",
            f"{images['queries_a_write']['maintained']:.2f}",
            f"invalidated {images['queries_a_write']['objects']:.2f}; without post-images, where each write is looked up, "
            f"{none['queries_a_write']['maintained']:.2f} and {none['queries_a_write']['objects']:.2f}; answers stale by "
            f"{none['stale_mean_ms']['maintained']:.2f} and {none['stale_mean_ms']['objects']:.2f} ms on average",
        )
    ]


def distance() -> list[Row]:
    """Query caching over distance, with the fewest and with the most connections."""
    measured = result("quaestor_fig58")
    rows: list[Row] = []
    for number in (0, len(measured["over_uncached"]) - 1):
        over = measured["over_uncached"][number]
        cdn, full = (measured["setups"][one][number] for one in ("CDN", "full"))
        limited = sorted({*cdn["limited_by"], *full["limited_by"]})
        rows.append(
            (
                f"150 ms to the app, 4 ms to Varnish, 1 % writes, {over['connections']} connections, closed loop: mean latency "
                "and throughput, over uncached",
                f"CDN {count(over['CDN']['lower_mean_latency'])}x lower, {count(over['CDN']['throughput'])}x; with caching "
                f"clients {count(over['full']['lower_mean_latency'])}x lower, {count(over['full']['throughput'])}x",
                f"aims 7 and 5, 30 and 11; stale {100 * cdn['stale']:.2f} % and {100 * full['stale']:.2f} %, the stalest "
                f"{cdn['stale_max_s']:.1f} s and {full['stale_max_s']:.1f} s"
                + (f"; without processor time left: {', '.join(limited)}" if limited else ""),
            )
        )
    return rows

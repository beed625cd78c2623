"""The five figures of README.md, each beside its unfavourable twin, and the bars of its chart."""

from __future__ import annotations

from benchmarks.figure_rows.results import Row, count, result, share

OURS = "quaestor, by the one line"
BARE = "bare ASGI bytes"
NOT_PEERS = ("uncached", "bare ASGI", "quaestor")


def rows() -> list[Row]:
    """The five figures."""
    return [_hits(), _latency(), _needless(), _wrong(), _matched()]


def bars() -> list[tuple[str, float]]:
    """Label and hits per second: ours, the bare app, the two fastest peers."""
    hits = {name: float(rates["hits"]["requests_per_s"]) for name, rates in result("http_peers")["in_memory"].items()}
    peers = sorted((name for name in hits if not name.startswith(NOT_PEERS)), key=lambda name: -hits[name])
    return [
        ("Quaestor", hits[OURS]),
        ("bare ASGI app", hits[BARE]),
        *((peer.replace("_", "-"), hits[peer]) for peer in peers[:2]),
    ]


def _hits() -> Row:
    memory = result("http_peers")["in_memory"]
    misses = memory["quaestor, each stored"]["misses"]["requests_per_s"]
    return (
        "hits, one worker, 100 objects",
        f"{count(memory[OURS]['hits']['requests_per_s'])}/s",
        f"stored misses {count(misses)}/s; uncached {count(memory['uncached']['misses']['requests_per_s'])}/s",
    )


def _latency() -> Row:
    loads = result("invalidation_latency")["loads"]
    usual = next(load for load in loads if load["writes_per_s_asked"] == 100)
    worst = max(loads, key=lambda load: float(load["no_longer_served"]["p99_ms"]))
    return (
        "acknowledged write to no longer served, p99, 100 writes/s",
        f"{usual['no_longer_served']['p99_ms']:.0f} ms",
        f"{worst['no_longer_served']['p99_ms']:.0f} ms at {worst['writes_per_s_asked']:,} writes/s",
    )


def _needless() -> Row:
    measured = result("false_invalidation")
    exact = measured["with_images"]["exact"]
    widened = measured["widened shapes"]["without_images"]["widened"]
    return (
        "needless evictions of exact queries, with pre-images",
        f"{exact['in_vain']} of {exact['evictions']:,}",
        f"widened queries without pre-images: {share(widened['share'])}",
    )


def _wrong() -> Row:
    soak = result("soak")
    return (
        f"wrong answers, {soak['minutes']:.0f} minutes, a part killed every 30 s",
        f"{soak['violations']} of {soak['responses']:,}",
        f"stalest {soak['stalest_ms'] / 1_000:.2f} s; {soak['outcomes'].get('no answer', 0)} requests unanswered",
    )


def _matched() -> Row:
    workloads = result("matching")["workloads"]

    def at_100_000(workload: str) -> str:
        return next(
            count(point["writes_per_s"]) for point in workloads[workload]["node"] if point["queries"] == 100_000
        )

    return (
        "writes matched against 100,000 queries, one core",
        f"{at_100_000('indexed')}/s",
        f"{at_100_000('mixed')}/s if no index finds 10 % of the queries",
    )

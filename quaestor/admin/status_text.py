"""Text of `quaestor status` for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LIVE = (
    "followers", "followed_answers", "live_connections", "live_subscriptions", "follower_events", "live_messages",
    "subscriptions_lag_seconds", "live_slow_readers", "live_slow_clients",
)  # fmt: skip


def text(status: Mapping[str, Any]) -> str:
    """Status in a few aligned lines.

    status: the answer of GET /status.
    """
    counts: Mapping[str, Mapping[str, float]] = status["counts"]
    requests = counts.get("requests", {})
    total = sum(requests.values())
    grid = status["grid"]
    lines = [
        ("serving from cache", _serving(status)),
        ("mode", _mode(status)),
        ("deployment", status["deployment"]),
        ("grid", f"{grid['query_partitions']} x {grid['write_partitions']} cells" if grid else ""),
        ("registrations", _number(counts.get("registrations", {}).get("all", 0))),
        ("registered URLs", _number(status["registered_urls"])),
        ("requests", _number(total)),
        *((f"  {name}", f"{_number(count)}  {count / total:.1%}") for name, count in sorted(requests.items()) if count),
    ]
    lines.append(("live", _live(counts)))
    lines.append(("continuous queries", _continuous(counts)))
    lines.append(("channels", _channels(counts)))
    lines.extend(("warning", warning) for warning in status.get("warnings", ()))
    lines.extend(
        (
            f"service {service['state']}",
            f"{service['name']}: {_number(service['failures'])} failures, the last one: {service['error']}",
        )
        for service in status.get("services", ())
        if service["failures"]
    )
    lines.extend(("not cached", f"{route['route']}: " + _why_barred(route)) for route in status.get("quarantined", ()))
    lines.extend(
        (
            "stored at the second request",
            f"{route['route']}: {route['used']:.1%} of its entries were used, break-even {route['break_even']:.1%}",
        )
        for route in status.get("doorkept", ())
    )
    lines.extend(
        (
            "cdn",
            f"{cdn['place']}: {cdn['state']}, {cdn['open']} purges open, {cdn['dead']} dead; {_stale(cdn['stale_s'])}",
        )
        for cdn in status.get("cdns", ())
    )
    lines.extend(
        ("no pre-images", f"{namespace}: {why}") for namespace, why in status.get("images_refused", {}).items()
    )
    for name, title in (
        ("hits", "hits by layer"),
        ("store_entries", "entries"),
        ("store_bytes", "bytes"),
        ("uncacheable", "not stored"),
        ("invalidations", "invalidated"),
        ("widened", "widened"),
        ("purges", "purges"),
        ("failures", "failures"),
    ):
        by_reason = {reason: count for reason, count in counts.get(name, {}).items() if count}
        if by_reason:
            lines.append(
                (title, ", ".join(f"{reason} {_number(count)}" for reason, count in sorted(by_reason.items())))
            )
    if each := status.get("registration_bytes"):
        lines.append(("bytes per registration", _number(each)))
    lines.append(("bytes per entry", _each(counts.get("store_bytes", {}), counts.get("store_entries", {}))))
    width = max(len(name) for name, value in lines if value)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in lines if value)


def _live(counts: Mapping[str, Mapping[str, float]]) -> str:
    """Clients of followed answers and of live queries; empty: there were none since the process began."""
    now = {name: sum(counts.get(name, {}).values()) for name in _LIVE}
    if not any(now.values()):
        return ""
    slow = now["live_slow_clients"] + counts.get("followers_ended", {}).get("slow", 0)
    return (
        f"{_number(now['followers'])} streams and polls of {_number(now['followed_answers'])} answers, "
        f"{_number(now['live_connections'])} WebSockets with {_number(now['live_subscriptions'])} subscriptions; "
        f"{_number(now['follower_events'] + now['live_messages'])} deliveries, lag {now['subscriptions_lag_seconds']:.1f} s, "
        f"{_number(now['live_slow_readers'])} slow readers now, {_number(slow)} closed"
    )


def _continuous(counts: Mapping[str, Mapping[str, float]]) -> str:
    """Continuous queries that this process runs; empty: none."""
    queries, runs = counts.get("continuous_queries", {}), counts.get("continuous_runs", {})
    if not sum(queries.values()):
        return ""
    late_s = sum(counts.get("continuous_lag_seconds", {}).values())
    stretch = sum(counts.get("continuous_stretch", {}).values())
    return (
        f"{', '.join(f'{_number(count)} {state}' for state, count in sorted(queries.items()) if count)}; "
        f"{_number(runs.get('published', 0))} runs, {_number(runs.get('failed', 0))} failed; "
        f"the latest run began {late_s:.1f} s late"
        + (f"; periods are stretched up to {_number(stretch)} times" if stretch > 1 else "")
    )


def _channels(counts: Mapping[str, Mapping[str, float]]) -> str:
    """Channels that this process runs; empty: none."""
    number = sum(counts.get("channels", {}).values())
    if not number:
        return ""
    runs, late_s = counts.get("channel_runs", {}), sum(counts.get("channel_lag_seconds", {}).values())
    down = sum(counts.get("channel_brokers_down", {}).values())
    return (
        f"{_number(number)}; {_number(runs.get('published', 0))} runs, {_number(runs.get('failed', 0))} failed, "
        f"{_number(sum(counts.get('channel_rows', {}).values()))} results; the latest run began {late_s:.1f} s late"
        + (f"; {_number(down)} brokers are down" if down else "")
    )


def _mode(status: Mapping[str, Any]) -> str:
    mode = str(status["mode"])
    return {
        "none": "RFC 9111 only, no MongoDB is watched",
        "embedded": "embedded: this process runs the matching for itself",
        "elected": f"elected: the app process {status.get('leader')} runs the matching for all",
        "grid": "grid: quaestor grid or quaestor cluster runs the matching",
        "nobody": "nobody runs the matching",
        "unknown": "unknown: Redis does not answer",
    }.get(mode, mode)


def _serving(status: Mapping[str, Any]) -> str:
    if not status["serving"]:
        return "no: everything goes to the handlers"
    if not status["lagging"]:
        return "yes"
    return f"yes, except answers that query partition {', '.join(map(str, status['lagging']))} guards: it lags"


def _stale(seconds: float | None) -> str:
    if seconds is None:
        return "what they are about may be served until it expires"
    return f"what they are about may be served for {seconds:.0f} s" if seconds else "nothing stale is known to be there"


def _each(sizes: Mapping[str, float], numbers: Mapping[str, float]) -> str:
    """Average size of this process's entries in memory. Redis has no average, because its memory holds more than entries."""
    entries = numbers.get("memory", 0)
    return f"memory {_number(sizes.get('memory', 0) / entries)}" if entries else ""


def _number(count: float) -> str:
    return f"{int(count):,}"


def _why_barred(quarantine: Mapping[str, Any]) -> str:
    differs = quarantine["differs"]
    return f"its answers diverged ({', '.join(differs)})" if differs else "its handler writes to the database"

"""Rows of live queries: sockets, followers of a GET, long polls, and what they cost the database."""

from __future__ import annotations

from benchmarks.figure_rows.results import Row, count, result, spread


def sockets() -> list[Row]:
    """Return the rows of WebSockets: latency, memory, deliveries, restart, revocation."""
    measured, restart, revocation = result("live_sockets"), result("live_restart"), result("live_revocation")
    deep = max(result("realtime_fig6")["points"], key=lambda point: float(point["above_grid_p50_ms"]))
    to_all, rates, full = measured["one_write_to_all"], measured["writes_a_second"], measured["full_collections"]
    return [
        (
            f"from the acknowledged write to a socket, p50 / p99: {measured['queries']:,} distinct live queries, one process, "
            f"{rates['achieved']:,} writes/s of {rates['asked']:,} asked",
            spread(measured["acknowledged_to_socket"]),
            f"the application needs {measured['cpu_us_a_distinct_write'] / 1_000:.2f} ms of CPU time for each write. "
            f"{full['during_writes'] or 'No'} full garbage collections fell among the writes. One takes up to "
            f"{full['longest_s']:.1f} s, and is the p99 then; "
            f"aim: p99 10 ms at {rates['asked']:,} writes/s",
        ),
        (
            f"one write to {measured['sockets']:,} equal subscriptions, p50 / p99 of the time to the last socket",
            f"{spread(to_all['live'])}; {measured['deliveries_a_second']:,} deliveries/s",
            f"bare uvicorn {spread(to_all['bare'])}; aims: 250 ms, 50,000 deliveries/s",
        ),
        (
            f"memory of each of {measured['sockets']:,} idle sockets",
            f"{count(measured['kib_a_socket']['live'])} KiB",
            f"bare uvicorn {count(measured['kib_a_socket']['bare'])} KiB; aim: 1.5 times that",
        ),
        (
            f"from the write in its pipeline, p50: a socket above the bare grid, at its worst ({deep['queries']:,} queries, "
            f"{deep['writes_per_s']['asked']:,} writes/s)",
            f"{deep['above_grid_p50_ms']:.1f} ms",
            f"the grid itself {spread(deep['grid'])}; aim: 2 ms above it",
        ),
        (
            f"{restart['clients']:,} clients come back after a restart of the server; {restart['changed']:,} results changed "
            "meanwhile",
            f"{restart['back_s']:.1f} s; {restart['answers'].get('resumed', 0):,} resumed, and received "
            f"{restart['missed']:,} changes from before",
            f"{restart['queries_read']:,} queries were read again; aims: 5.8 s and 0",
        ),
        (
            f"from a revocation to its effect for {revocation['readers']} readers, p50 / p99",
            f"record gone {spread(revocation['record_removed'])}",
            f"subscription ended {spread(revocation['subscription_ended'])}; aim: p99 100 ms",
        ),
        _scaled(),
    ]


def _scaled() -> Row:
    """Return the row of the largest sustained loads of followed queries."""
    measured = result("live_scalability")
    most = {
        name.replace("x", " x "): f"{shape['queries']:,} queries and {shape['writes_per_s']:,} writes/s"
        for name, shape in measured["shapes"].items()
    }
    first, *others = most
    return (
        "most followed queries at 300 writes/s, and most writes/s with 1,000 of them, p99 below "
        f"{measured['bound_p99_ms']:g} ms; one grid of {first} cells, with clients and mongod on the same two cores",
        most[first],
        "; ".join(f"{name} cells {most[name]}" for name in others) + ". On two cores more cells show their price",
    )


def followed() -> list[Row]:
    """Return the rows of followed GETs, long polls and the load of the database."""
    followers, polls = result("live_followers"), result("live_long_polls")
    selectors, peers = result("live_selectors"), result("live_peers")
    kinds = {name: peers["peers"][name]["acknowledged_to_client"] for name in ("live", "watch", "polling", "socket.io")}
    cpu = {name: peers["peers"][name]["cpu_ms_a_write"] for name in kinds}
    beyond = "immeasurably many" if selectors["beyond_writes"] is None else f"{selectors['beyond_writes']:.0f}"
    return [
        (
            f"one GET with {followers['followers']:,} followers (SSE), from the acknowledged write to a follower, p50 / p99",
            spread(followers["acknowledged_to_follower"]),
            f"a bare app that sends the same bytes {spread(followers['bare'])}; aim: p50 4 ms",
        ),
        (
            f"{polls['pollers']:,} long polls of one query behind Varnish, {polls['changes']} changes",
            f"{polls['requests_a_change']['most']} request to the origin for each change",
            f"the last poller has the change after {spread(polls['to_last'])} (p50 / p99)",
        ),
        (
            f"{selectors['selectors']:,} selectors on one collection, mongod's CPU time for each write",
            f"{selectors['mongod_cpu_ms_a_write']['live']:.1f} ms",
            f"a `watch()` for each {selectors['mongod_cpu_ms_a_write']['watch']:.1f} ms: {selectors['watch_of_live']:.0f} times "
            f"as much (aim: 50). The writes alone {selectors['mongod_cpu_ms_a_write']['writes']:.1f} ms; beyond them "
            f"{beyond} times as much",
        ),
        (
            f"{peers['clients']} clients with {peers['selectors']} queries at {peers['rate_hz']} writes/s, p50 / p99",
            f"{spread(kinds['live'])}; for each write the app needs {cpu['live']['app']:.1f} ms of CPU time, mongod "
            f"{cpu['live']['mongod']:.1f} ms",
            f"a `watch()` for each client {spread(kinds['watch'])}; app {cpu['watch']['app']:.1f} ms, mongod "
            f"{cpu['watch']['mongod']:.1f} ms. Polling each second {spread(kinds['polling'])}. "
            f"Socket.IO broadcast by hand {spread(kinds['socket.io'])}; app {cpu['socket.io']['app']:.1f} ms",
        ),
    ]

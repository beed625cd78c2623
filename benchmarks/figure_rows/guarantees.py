"""Rows of what is promised: exactness, answers under load, purges, lifetimes."""

from __future__ import annotations

from benchmarks.figure_rows.results import Result, Row, count, result, share, spread


def exactness() -> list[Row]:
    """Needless evictions, and wrong answers under load."""
    vain, soak, inputs = result("false_invalidation"), result("soak"), result("inputs_soak")
    unseen = inputs["unseen"].values()
    exact, none = vain["with_images"]["exact"], vain["without_images"]
    shapes, unchecked = (
        vain[name]["without_images"]["widened"] for name in ("widened shapes", "widened shapes, not rechecked")
    )
    return [
        (
            "needless evictions of exactly matched queries, with pre-images (not MongoDB's default)",
            f"{exact['in_vain']} of {exact['evictions']:,}",
            f"without pre-images (MongoDB's default): {none['exact']['in_vain']} of {none['exact']['evictions']:,}. "
            f"Widened queries: {none['widened']['in_vain']} of {none['widened']['evictions']:,}; "
            f"in a mix of widened shapes only {share(shapes['share'])}, "
            f"and {share(unchecked['share'])} without a recheck. Missed changes: {none['missed']}",
        ),
        (
            f"wrong answers in {soak['minutes']:.0f} minutes under load; one part is killed every 30 s",
            f"{soak['violations']} of {soak['responses']:,}",
            f"the stalest answer was {soak['stalest_ms'] / 1_000:.2f} s old (bound: {soak['bound_ms'] / 1_000:.0f} s); "
            f"{soak['outcomes'].get('no answer', 0)} requests had no answer while their worker was dead",
        ),
        (
            f"{inputs['requests']:,} requests whose answers depend on fields, cookies, addresses, the clock, order or own "
            f"writes, {share(inputs['hits'] / inputs['requests'])} of them hits",
            f"{inputs['stale']} stale; {inputs['foreign']} made for another user",
            f"of {len(unseen)} invisible inputs (a file, a global variable, a memo ...) verification found "
            f"{sum(change['found'] for change in unseen)}; before that "
            f"{sum(change['wrong_until_then'] for change in unseen):,} answers were older "
            f"than the bound",
        ),
    ]


def purges() -> list[Row]:
    """Purges of CDNs."""
    measured = result("purge_endurance")
    busy = [load for load in result("purge_latency")["loads"] if load["writes_per_s_asked"] == 100]
    rate, left = measured["account"]["requests_per_s"], measured["open_after_the_last"]
    return [
        (
            f"{measured['purges']:,} purges by {measured['processes']} processes on an account of {rate:.0f} requests/s; one "
            f"process is killed every 10 s ({measured['kills']} times)",
            f"{measured['lost']} lost; {measured['refused']} refused",
            f"{measured['sent_more_than_once']:,} were sent twice or more; {left:,} were open after the last one; these were "
            f"sent within {measured['drained_after_s']:.0f} s (announced bound: {measured['announced_bound_s']:.0f} s)",
        ),
        *map(_purge_latency, (busy[0], max(busy, key=lambda load: load["adapters_share"]["p99_ms"]))),
    ]


def _purge_latency(load: Result) -> Row:
    return (
        f"a purge of {load['cache']} at 100 writes/s, from the adapter's call, p50 / p99",
        spread(load["adapters_share"]),
        f"a bare PURGE: {spread(load['bare_purge'])}; our p99 is "
        f"{count(load['adapters_share_p99_over_bare'])} times that (aim: 1.5)",
    )


def lifetimes() -> list[Row]:
    """Hits in browsers that estimated lifetimes give, at equal staleness."""
    measured = result("ttl_estimators")
    zipf, uniform = (
        next(row for row in measured["workloads"] if row["workload"].startswith(name)) for name in ("Zipf", "uniform")
    )

    def hits(workload: Result, level: int, name: str) -> str:
        return f"{workload['levels'][level]['fresh_hits'][name][0]:.2f}"

    return [
        (
            f"share of fresh hits in browsers with estimated lifetimes (simulated, {zipf['workload']}, "
            f"{100 * zipf['levels'][1]['stale']:.1f} % stale answers)",
            hits(zipf, 1, "lifetimes"),
            f"best fixed lifetime {hits(zipf, 1, 'best static')}; the bound without knowledge of the future "
            f"{hits(zipf, 1, 'bound')}, with it {zipf['oracle']['browser_fresh'][0]:.2f}. Uniform reads and writes, "
            f"{100 * uniform['levels'][2]['stale']:.1f} % stale: ours {hits(uniform, 2, 'lifetimes')}, best fixed "
            f"{hits(uniform, 2, 'best static')}, d-TTL {hits(uniform, 2, 'dynamic')}",
        )
    ]

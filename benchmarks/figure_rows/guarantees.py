"""Rows of what is promised: exactness, answers under load, purges, lifetimes."""

from __future__ import annotations

from benchmarks.figure_rows.results import Result, Row, count, result, share


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
            "evictions of exactly matched queries whose answer was the same, with pre-images (not MongoDB's default)",
            f"{exact['in_vain']} of {exact['evictions']:,}",
            f"without pre-images, MongoDB's default: {none['exact']['in_vain']} of {none['exact']['evictions']:,}; "
            f"of widened queries {none['widened']['in_vain']} of {none['widened']['evictions']:,}, "
            f"in a mix of widened shapes only {share(shapes['share'])} "
            f"({share(unchecked['share'])} if they are not run again first); changes missed: {none['missed']}",
        ),
        (
            f"{soak['minutes']:.0f} minutes under load, something killed every 30 s: answers that were wrong",
            f"{soak['violations']} of {soak['responses']:,}",
            f"the stalest was {soak['stalest_ms'] / 1_000:.2f} s old (the bound is {soak['bound_ms'] / 1_000:.0f} s); "
            f"{soak['outcomes'].get('no answer', 0)} requests had no answer while their worker was dead",
        ),
        (
            f"{inputs['requests']:,} requests whose answers depend on more than their queries (fields, cookies, addresses, "
            f"the clock, order, own writes), {share(inputs['hits'] / inputs['requests'])} of them hits: stale; somebody else's",
            f"{inputs['stale']}; {inputs['foreign']}",
            f"of {len(unseen)} inputs that nobody can see (a file, a global variable, a memo ...) verification found "
            f"{sum(one['found'] for one in unseen)}; until then "
            f"{sum(one['wrong_until_then'] for one in unseen):,} answers were older "
            f"than the bound",
        ),
    ]


def purges() -> list[Row]:
    """Purges of CDNs."""
    measured = result("purge_endurance")
    busy = [one for one in result("purge_latency")["loads"] if one["writes_per_s_asked"] == 100]
    rate, left = measured["account"]["requests_per_s"], measured["open_after_the_last"]
    return [
        (
            f"{measured['purges']:,} purges by {measured['processes']} processes, one of which is killed every 10 s "
            f"({measured['kills']} times), on an account of {rate:.0f} requests/s: lost; refused",
            f"{measured['lost']}; {measured['refused']}",
            f"{measured['sent_more_than_once']:,} were sent more than once; {left:,} were open when the last one "
            f"came, sent {measured['drained_after_s']:.0f} s later (announced: within "
            f"{measured['announced_bound_s']:.0f} s)",
        ),
        *map(_purge_latency, (busy[0], max(busy, key=lambda one: one["adapters_share"]["p99_ms"]))),
    ]


def _purge_latency(load: Result) -> Row:
    share, bare = load["adapters_share"], load["bare_purge"]
    return (
        f"a purge of {load['cache']} at 100 writes/s, from when its adapter is given it, p50 / p99",
        f"{count(share['p50_ms'])} / {count(share['p99_ms'])} ms",
        f"a bare PURGE {count(bare['p50_ms'])} / {count(bare['p99_ms'])} ms: p99 {count(load['adapters_share_p99_over_bare'])} "
        "times it (aim: 1.5)",
    )


def lifetimes() -> list[Row]:
    """Hits in browsers that estimated lifetimes give, at equal staleness."""
    measured = result("ttl_estimators")
    zipf, uniform = (
        next(one for one in measured["workloads"] if one["workload"].startswith(name)) for name in ("Zipf", "uniform")
    )

    def hits(workload: Result, level: int, name: str) -> str:
        return f"{workload['levels'][level]['fresh_hits'][name][0]:.2f}"

    return [
        (
            f"fresh hits in browsers by estimated lifetimes, simulated, {zipf['workload']}, "
            f"{100 * zipf['levels'][1]['stale']:.1f} % of the answers stale",
            hits(zipf, 1, "lifetimes"),
            f"best fixed lifetime {hits(zipf, 1, 'best static')}; the most that can be had without seeing the future "
            f"{hits(zipf, 1, 'bound')}, with it {zipf['oracle']['browser_fresh'][0]:.2f}; uniform reads and writes, "
            f"{100 * uniform['levels'][2]['stale']:.1f} % stale: {hits(uniform, 2, 'lifetimes')}, best fixed "
            f"{hits(uniform, 2, 'best static')}, d-TTL {hits(uniform, 2, 'dynamic')}",
        )
    ]

"""A million answers with more inputs than their queries, beside writes: is any of them old, or another user's?

    python -m benchmarks.inputs_soak --requests 1000000

Every answer is checked against the history of writes and against its user (benchmarks/setups/soaked_inputs). A second
measurement shows how soon the cache notices changes outside the database by itself. The result goes to
benchmarks/results/inputs_soak.json and .md; the exit status is 1 if an answer was wrong, or if the cache was not really used.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.setups.soaked_inputs.run import complaints, run
from benchmarks.setups.soaked_inputs.unseen import LATER, unseen
from quaestor.testing import servers

UNSEEN = {
    "file": "file", "global": "global variable", "service": "other service", "random": "`random`", "memo": "memo of its own",
    "worker": "worker begun earlier", "flight": "single flight of its own", LATER: "file, changed once probation was over",
}  # fmt: skip


def say(text: str) -> None:
    print(f"inputs soak: {text}", file=sys.stderr, flush=True)


def text(result: dict[str, Any]) -> str:
    """The result for people, in Markdown."""
    writes, twin = result["writes"], result["bare_twin"]
    lines = [
        f"# Soak of the inputs of answers, {result['requests']:,} requests, seed {result['seed']}",
        "",
        f"{result['workers']} workers, {result['on']}; {result['hits'] / max(1, result['requests']):.0%} of the answers from the "
        f"cache, beside {sum(writes.values()):,} writes, {writes.get('by another program', 0):,} of them by another program: "
        f"**{result['stale']} stale, {result['foreign']} foreign.**",
        f"The bound is {result['bound_ms'] / 1000:g} s; the stalest answer showed a state that the database had left "
        f"{result['stalest_ms'] / 1000:.2f} s before. {result['asked_after_own_writes']:,} requests came after the answer to a "
        "write of the same records, and were held to it.",
        f"The bare twin was asked {twin.get('asked', 0):,} times: {twin.get('the same', 0):,} answers were the same, "
        f"{twin.get('another', 0)} differed though nobody had written, and the check found fault with "
        f"{sum(count for what, count in twin.items() if what.startswith('found'))} of its own.",
        "",
        "| what decides | answers | hits | stored | not stored | wrong |",
        "|---|---|---|---|---|---|",
    ]
    for route, counts in result["routes"].items():
        reasons = ", ".join(f"{how} {count:,}" for how, count in counts["not_stored"].items())
        wrong = sum(counts["wrong"].values())
        lines.append(
            f"| {route} | {counts['answers']:,} | {counts['hits']:,} | {counts['stored']:,} | {reasons} | {wrong} |"
        )
    if unseen_ones := result.get("unseen"):
        lines += [
            "",
            "What nobody can see changes twice a second here, at uneven moments. *Old*: it had changed before the request; "
            "*wrong*: longer ago than the bound. A memo may be older by its own lifetime.",
            "",
            "Found: the route is quarantined (`diverged`), or an answer is not stored because an earlier run of the same request "
            "has read more (`missing-read`).",
            "",
            "| what decides | found after | as | requests until then | hits | old | wrong | afterwards | hits | old | wrong |",
            "|---|---|---|---|---|---|---|---|---|---|---|",
        ]
        for name, counts in unseen_ones.items():
            noticed = f"{counts['after_s']} s" if counts["found"] else "not found"
            lines.append(
                f"| {UNSEEN[name]} | {noticed} | {counts['as']} | {counts['after_requests']:,} | {counts['hits_until_then']:,} | "
                f"{counts['old_until_then']:,} | {counts['wrong_until_then']:,} | {counts['asked_afterwards']:,} | "
                f"{counts['hits_afterwards']:,} | {counts['old_afterwards']:,} | {counts['wrong_afterwards']:,} |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--readers", type=int, default=6, help="connections to each worker")
    parser.add_argument("--writes", type=float, default=15, help="a second")
    parser.add_argument(
        "--grid", action="store_true", help="workers share a Valkey and a grid; otherwise each is embedded"
    )
    parser.add_argument("--without-unseen", action="store_true", help="leave out what nobody can see")
    parser.add_argument("--print-only", action="store_true", help="keep the result of an earlier run")
    options = parser.parse_args()
    say(f"seed {options.seed}; starting")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quaestor-inputs-soak-")))
        mongo_url = stack.enter_context(servers.mongo_url())
        redis_url = stack.enter_context(servers.redis_url()) if options.grid else ""
        result = {"seed": options.seed} | run(
            folder, mongo_url=mongo_url, requests=options.requests, seed=options.seed, workers=options.workers,
            readers=options.readers, writes_per_s=options.writes, redis_url=redis_url,
        )  # fmt: skip
        wrong = complaints(result)
        if not options.without_unseen:
            say(f"{result['requests']} answers in {result['took_s']} s; now what nobody can see")
            (place := folder / "unseen").mkdir()
            result["unseen"] = unseen(place, mongo_url=mongo_url, seed=options.seed)
            wrong += [f"{name}: not found" for name, change in result["unseen"].items() if not change["found"]]
            wrong += [
                f"{name}: wrong once it was found"
                for name, change in result["unseen"].items()
                if change["wrong_afterwards"]
            ]
    if options.print_only:
        print(text(result))
    else:
        name = "inputs_soak_grid" if options.grid else "inputs_soak"
        harness.save(name, result).with_suffix(".md").write_text(text(result))
    for problem in (*wrong, *result["first_wrong"][:5]):
        say(problem)
    if wrong:
        raise SystemExit("inputs soak: not what was promised")


if __name__ == "__main__":
    main()

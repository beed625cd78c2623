"""Cost of a write for a matching node, by the number of queries; beside brute force, mingo and sift.

Aims: from 1,000 to 1,000,000 queries of the papers' workload a write costs at most 3 times as much; at least 20,000
writes/s on one core at 100,000 queries, at least 5,000 in the mixed
workload, where a tenth look for no value; under 2 kB a query. Each size runs in its own process. Times are CPU times of that
process (the work of one core), the median of several rounds. "matches/s" is queries x writes per second, as the papers count;
brute force evaluates every predicate: ours compiled, or mingo's and sift's under Node. Both are installed from npm into a cache
folder outside of the tree, and skipped without Node.

Run: python -m benchmarks.matching [--sizes 1000,10000] [--workloads papers,indexed,mixed]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from benchmarks import harness
from benchmarks.workloads.matching import WORKLOADS, Workload
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.invalidation.matching.node_limits import NodeLimits
from quaestor.model import AfterImage, Cell, GridShape, Operation, Query, Registration, WriteKind
from quaestor.query.compiled import compile_query

SIZES = (1_000, 10_000, 100_000, 1_000_000)
ROUNDS = 7
WRITES_A_ROUND = 2_000
SECONDS_A_ROUND = 2.0
BRUTE_FORCE_SIZE = 10_000
BRUTE_FORCE_WRITES = 50
NAMESPACE = "bench.records"
PEERS = ("mingo", "sift")
SEED = 5
_OUT_OF_REACH = 64 * 1024**3
"""Bytes: no size is to be bounded by what a node reckons; its memory is measured."""


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def new_node(size: int) -> MatchingNode:
    node = MatchingNode(
        Cell(query_partition=0, write_partition=0),
        GridShape(query_partitions=1, write_partitions=1),
        retention_ms=60_000,
        freeze_every=20_000,
        limits=NodeLimits(max_registrations=size, max_unindexed=size, max_images=10_000, max_bytes=_OUT_OF_REACH),
    )
    node.process(AfterImage(namespace="*", kind=WriteKind.TICK, version=1), now_ms=0)
    return node


def register(node: MatchingNode, number: int, condition: dict[str, Any]) -> None:
    registration = Registration(
        id=f"app-1:{number}",
        tenant="bench",
        query_id=f"{number:032x}",
        query=Query(namespace=NAMESPACE, operation=Operation.FIND, filter=condition),
        since=1,
        read_at=1,
        members=(-number,),
        last=None,
        expires_at_ms=10_000_000,
    )
    node.register(registration, now_ms=0)


def insert(number: int, record: dict[str, Any]) -> AfterImage:
    return AfterImage(
        namespace=NAMESPACE,
        kind=WriteKind.INSERT,
        version=10 + number,
        key=record["_id"],
        after=record,
        after_exact=True,
        before_known=True,
        wall_ms=1,
    )


def measure_node(workload: Workload, size: int) -> dict[str, Any]:
    """Fill one node and write to it. Runs in a process of its own, so that memory is this node's."""
    random = Random(SEED)
    node = new_node(size)
    gc.collect()
    memory, started = rss_bytes(), time.process_time()
    for number, condition in enumerate(workload.queries(size, random)):
        register(node, number, condition)
    registering = time.process_time() - started
    if node.registrations != size:
        raise RuntimeError(f"the node holds {node.registrations:,} of {size:,} queries: its limits are in the way")
    gc.collect()
    memory = rss_bytes() - memory
    records = workload.records(size, random)
    per_write, slowest, fired, written = [], 0.0, 0, 0
    for _ in range(ROUNDS):
        images = [insert(written + number, record) for number, record in enumerate(islice(records, WRITES_A_ROUND))]
        begun = time.process_time()
        done = 0
        for image in images:
            at = time.thread_time()
            fired += len(node.process(image, now_ms=0))
            slowest = max(slowest, time.thread_time() - at)
            done += 1
            if done % 50 == 0 and time.process_time() - begun > SECONDS_A_ROUND:
                break
        per_write.append((time.process_time() - begun) / done)
        written += done
    cost = statistics.median(per_write)
    return {
        "queries": size,
        "us_per_write": round(cost * 1e6, 2),
        "writes_per_s": round(1 / cost),
        "matches_per_s": round(size / cost),
        "tried_per_write": round(node.tally.tried / written, 3),
        "fired_per_write": round(fired / written, 4),
        "slowest_write_ms": round(slowest * 1e3, 2),
        "bytes_per_query": round(memory / size),
        "us_per_registration": round(registering / size * 1e6, 1),
    }


def measure_brute_force(workload: Workload) -> dict[str, Any]:
    """Every predicate on every record, compiled by this project."""
    random = Random(SEED)
    predicates = [compile_query(condition).matches for condition in workload.queries(BRUTE_FORCE_SIZE, random)]
    records = list(islice(workload.records(BRUTE_FORCE_SIZE, random), BRUTE_FORCE_WRITES))
    matches = 0
    begun = time.process_time()
    for record in records:
        for matching in predicates:
            if matching(record):
                matches += 1
    cost = (time.process_time() - begun) / len(records)
    return {
        "queries": BRUTE_FORCE_SIZE,
        "us_per_write": round(cost * 1e6, 1),
        "matches_per_s": round(BRUTE_FORCE_SIZE / cost),
        "matches": matches,
    }


def install_peers() -> Path | None:
    """mingo and sift in a cache folder; None without Node or without the registry."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "quaestor" / "benchmark-peers"
    folder.mkdir(parents=True, exist_ok=True)
    if not all((folder / "node_modules" / peer).is_dir() for peer in PEERS):
        command = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", "--silent", *PEERS]
        if subprocess.run(command, check=False).returncode:
            return None
    return folder


def measure_peers(workload: Workload, folder: Path) -> dict[str, Any]:
    """The same queries and records as brute force."""
    random = Random(SEED)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        queries, records = Path(scratch) / "queries.ndjson", Path(scratch) / "records.ndjson"
        _write_lines(queries, workload.queries(BRUTE_FORCE_SIZE, random))
        _write_lines(records, islice(workload.records(BRUTE_FORCE_SIZE, random), BRUTE_FORCE_WRITES))
        for peer in PEERS:
            script = Path(__file__).parent / "peers" / "matching.mjs"
            finished = subprocess.run(
                ["node", str(script), peer, str(queries), str(records)],
                env={**os.environ, "PEERS_FROM": str(folder)},
                capture_output=True,
                text=True,
                check=True,
            )
            results[peer] = json.loads(finished.stdout)
    return results


def _write_lines(path: Path, documents: Any) -> None:
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))


def in_own_process(workload: str, size: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.matching", "--one", workload, str(size)]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, Any] = json.loads(finished.stdout)
    return result


def measure(workload: Workload, sizes: Sequence[int], peers: Path | None) -> dict[str, Any]:
    node = [in_own_process(workload.name, size) for size in sizes]
    for line in node:
        print(f"{workload.name}: {line}", file=sys.stderr)
    brute = measure_brute_force(workload)
    others = measure_peers(workload, peers) if peers else {}
    best = max(line["matches_per_s"] for line in node)
    return {
        "what": workload.what,
        "node": node,
        "growth": round(node[-1]["us_per_write"] / node[0]["us_per_write"], 2),
        "brute_force": brute,
        "peers": others,
        "times_brute_force": round(best / brute["matches_per_s"], 1),
        "times_peers": {name: round(best / other["matches_per_s"], 1) for name, other in others.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--one", nargs=2, metavar=("WORKLOAD", "SIZE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        name, size = arguments.one
        print(json.dumps(measure_node(WORKLOADS[name], int(size))))
        return
    sizes = [int(size) for size in arguments.sizes.split(",")]
    peers = install_peers()
    results = {name: measure(WORKLOADS[name], sizes, peers) for name in arguments.workloads.split(",")}
    harness.save("matching", {"what": "CPU time of one process; medians of rounds", "workloads": results})


if __name__ == "__main__":
    main()

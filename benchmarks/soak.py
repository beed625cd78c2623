"""Half of what the machine can do, for a long time, and every 30 seconds something dies: is any response ever wrong?

    python -m benchmarks.soak --minutes 20

Every response is compared with the database's history (benchmarks/setups/faults/checker.py). The result goes to
benchmarks/results/soak.json; the exit status is 1 if there was a violation, or if it is not well in the end.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks import harness
from benchmarks.setups.faults.processes import executor_of, ingest_pid, kill, paused
from benchmarks.setups.faults.world import BOUND_MS, DEPLOYMENT, World, world
from quaestor.clock import system_clock
from quaestor.event_layer.redis import RedisEventLayer
from quaestor.invalidation.grid.spark import cell_pids

CALIBRATION_S = 10.0
WRITES_PER_S = 40
RECORDS, GROUPS = 150, 15
READERS = 4
"""Of each worker: what one of them waits for does not hold up the others."""
PAUSE_S = 6.0
RECOVERY_S = 180.0
_NEVER = threading.Event()


def cell(made: World, rng: random.Random) -> None:
    kill(rng.choice(_cells(made)))


def executor(made: World, rng: random.Random) -> None:
    victim = executor_of(rng.choice(_cells(made)))
    with _ending(victim):
        kill(victim.pid)


def ingest(made: World, rng: random.Random) -> None:
    assert made.grid_mongo is not None
    for _ in range(200):
        if (pid := ingest_pid(made.client, made.grid_mongo)) is not None:
            kill(pid)
            return
        _NEVER.wait(0.05)
    raise LookupError("no process reads the change stream at the moment")


def driver(made: World, rng: random.Random) -> None:
    with _ending(psutil.Process(made.grid.pid)):
        made.grid.kill()
    made.grid.launch()


def app(made: World, rng: random.Random) -> None:
    worker = rng.choice(made.workers)
    worker.kill()
    worker.start()


def redis_with_data(made: World, rng: random.Random) -> None:
    made.valkey.kill()
    made.valkey.start()


def redis_without_data(made: World, rng: random.Random) -> None:
    made.valkey.kill()
    made.forget(made.valkey)
    made.valkey.start()


def mongod(made: World, rng: random.Random) -> None:
    made.mongods[0].kill()
    made.mongods[0].start()


def pause(made: World, rng: random.Random) -> None:
    with paused(rng.choice([made.valkey.pid, made.mongods[0].pid, *_cells(made)])):
        _NEVER.wait(PAUSE_S)


def cut(made: World, rng: random.Random) -> None:
    link = rng.choice(
        [server for server in (made.app_redis, made.grid_redis, made.app_mongo, made.grid_mongo) if server]
    )
    rng.choice([link.stall, link.reset, link.lose])()
    _NEVER.wait(PAUSE_S)
    link.pass_()


FAILURES: dict[str, Callable[[World, random.Random], None]] = {
    "cell": cell, "executor": executor, "ingest": ingest, "driver": driver, "app worker": app,
    "Redis, kept data": redis_with_data, "Redis, lost data": redis_without_data, "mongod": mongod,
    "a pause": pause, "a cut": cut,
}  # fmt: skip


@contextmanager
def _ending(parent: psutil.Process) -> Iterator[None]:
    """Wait for what is below a process to follow it: as long as it lives it works, and nothing has to recover."""
    below = parent.children(recursive=True)
    yield
    psutil.wait_procs(below, timeout=30)


def _cells(made: World) -> list[int]:
    """Living ones. Raises LookupError if there are none, as while the grid starts."""
    with closing(RedisEventLayer(made.valkey.url, DEPLOYMENT)) as layer:
        pids = [pid for pid in cell_pids(layer, DEPLOYMENT).values() if psutil.pid_exists(pid)]
    if not pids:
        raise LookupError("no cell is running at the moment")
    return pids


def say(text: str) -> None:
    print(f"soak: {text}", file=sys.stderr, flush=True)


def calibrate(made: World) -> float:
    """Responses a second, with every reader asking again at once; the load goes on at half of that."""
    made.load.pace(writes_per_s=WRITES_PER_S, reads_per_s=float("inf"))
    _NEVER.wait(2)
    responses, began_s = made.checker.counts["responses"], time.monotonic()
    _NEVER.wait(CALIBRATION_S)
    reads_per_s = (made.checker.counts["responses"] - responses) / (time.monotonic() - began_s)
    made.load.pace(writes_per_s=WRITES_PER_S, reads_per_s=reads_per_s / 2)
    return reads_per_s


def soak(
    made: World, *, minutes: float, every_s: float, rng: random.Random, what: Sequence[str] = tuple(FAILURES)
) -> dict[str, Any]:
    reads_per_s = calibrate(made)
    say(f"capacity {reads_per_s:.0f} responses/s beside {WRITES_PER_S} writes/s; going on at half of it")
    made.settle(within_s=RECOVERY_S)
    began_s = time.monotonic()
    failures: list[dict[str, Any]] = []
    due_s, waiting_since_ms = began_s + every_s / 3, 0
    while (now_s := time.monotonic()) < began_s + minutes * 60:
        if now_s >= due_s:
            due_s += every_s
            name = rng.choice(what)
            failures.append({"at_s": round(now_s - began_s, 1), "what": name, "recovered_s": None})
            try:
                FAILURES[name](made, rng)
            except (LookupError, psutil.Error, ProcessLookupError) as error:
                failures[-1]["what"] = f"{name}: not to be found ({error})"
            waiting_since_ms, done_s = system_clock(), time.monotonic()
        if waiting_since_ms and made.healthy(waiting_since_ms):
            failures[-1]["recovered_s"] = round(time.monotonic() - done_s, 2)
            waiting_since_ms = 0
            counts = made.checker.counts
            say(
                f"{now_s - began_s:6.0f} s  {failures[-1]['what']}: well after {failures[-1]['recovered_s']} s; "
                f"{counts['responses']} responses, {len(made.checker.violations)} violations"
            )
        if made.grid.died():
            say("the grid's driver has ended by itself; starting it again")
            made.grid.launch()
        _NEVER.wait(0.05)
    made.settle(within_s=RECOVERY_S)
    made.load.stop_writing()
    answered = made.checker.counts["responses"]
    while made.checker.counts["responses"] < answered + 1_000:  # whatever is left over in a cache shows now
        _NEVER.wait(0.05)
    took_s = time.monotonic() - began_s
    counts = dict(made.checker.counts)
    return {
        "minutes": round(took_s / 60, 2), "bound_ms": BOUND_MS,
        "capacity_responses_per_s": round(reads_per_s), "writes_per_s": WRITES_PER_S,
        "responses": counts.get("responses", 0), "hits": counts.get("hits", 0), "writes": made.history.writes,
        "after_a_known_invalidation": counts.get("after a known invalidation", 0),
        "outcomes": dict(made.load.outcomes), "violations": sum(v for k, v in counts.items() if k.startswith("viol")),
        "first_violations": [repr(violation) for violation in made.checker.violations[:5]],
        "stalest_ms": int(made.checker.stalest_s * 1000),
        "failures": failures,
    }  # fmt: skip


def text(result: dict[str, Any]) -> str:
    """The result for people, in Markdown."""
    share = result["hits"] / max(1, result["responses"])
    lines = [
        f"# Soak of {result['minutes']:.0f} minutes, seed {result['seed']}",
        "",
        f"{result['responses']:,} responses, {share:.0%} of them from the cache, beside {result['writes']:,} writes: "
        f"**{result['violations']} were wrong.**",
        f"The bound is {result['bound_ms'] / 1000:g} s; the stalest response showed a state that the database had left "
        f"{result['stalest_ms'] / 1000:.2f} s before.",
        f"{result['after_a_known_invalidation']:,} responses came after an invalidation of the same page was known, and "
        "showed nothing older.",
        "",
        "| after | what died | well again after |",
        "|---|---|---|",
    ]
    for failure in result["failures"]:
        recovered = "the next came first" if failure["recovered_s"] is None else f"{failure['recovered_s']:.1f} s"
        lines.append(f"| {failure['at_s']:.0f} s | {failure['what']} | {recovered} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--every", type=float, default=30.0, help="seconds between failures")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--what", choices=list(FAILURES), nargs="+", default=list(FAILURES), help="what may die")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    say(f"seed {options.seed}; starting")
    with (
        tempfile.TemporaryDirectory(prefix="quaestor-soak-") as folder,
        world(
            Path(folder), readers=READERS, records=RECORDS, groups=GROUPS, writes_per_s=WRITES_PER_S, seed=options.seed
        ) as made,
    ):
        result = soak(made, minutes=options.minutes, every_s=options.every, rng=rng, what=options.what)
    result = {"seed": options.seed, **result}
    harness.save("soak", result).with_suffix(".md").write_text(text(result))
    if result["violations"]:
        raise SystemExit(f"{result['violations']} responses were wrong")


if __name__ == "__main__":
    main()

"""Program of one what-if: parameters tried on a recorded trace, in a process of its own with lower priority than the app.

Reads one JSON object, and writes one object a line: `{"done": 3, "of": 45}` as progress, and at the end `{"result": ...}` or
`{"problem": ...}`.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from quaestor.errors import ConfigurationError
from quaestor.ttl.parameters import TtlParameters, decoded
from quaestor.ttl.trace_format import Filled, Record, Served, Trace, read

if TYPE_CHECKING:
    from quaestor.simulation.simulate import System
    from quaestor.simulation.workload import Workload

SEEDS: Final = 5
QUANTILES: Final = (0.1, 0.25, 0.4, 0.6, 0.75, 0.9)
MOST_RECORDS: Final = 150_000
MOST_READS: Final = 100_000
_BEHIND_THE_APP: Final = 5
"""Niceness: where cores are short, a third of the share of an app's process. With the least share, an operator would wait
for ever."""
INTERPRETED_READS: Final = 2_000
"""Most reads without numba, because the event loop then takes a hundred times as long."""
SHOWN: Final = (
    "browser", "browser_fresh", "cdn", "app", "database", "mean_ms", "p50_ms", "p99_ms", "stale", "stale_mean_s", "stale_max_s",
    "false_positives", "sketch_mean", "invalidations_hz", "purges_hz", "origin_ms",
)  # fmt: skip


def candidates(now: TtlParameters, chosen: TtlParameters) -> dict[str, TtlParameters]:
    """Candidates that are compared, by name: the present parameters, the chosen ones, and the chosen ones with other
    quantiles."""
    variants = {"now": now, "chosen": chosen}
    for quantile in QUANTILES:
        varied = TtlParameters(
            default=replace(chosen.default, quantile=quantile),
            kinds={kind: replace(tuning, quantile=quantile) for kind, tuning in chosen.kinds.items()},
        )
        if varied != chosen and _has_quantile(chosen):
            variants[f"quantile {quantile:g}"] = varied
    return variants


def newest(records: Sequence[Record], most: int) -> list[Record]:
    """Newest records, and before them the earlier records that describe the results served in them."""
    if len(records) <= most:
        return list(records)
    tail = list(records[-most:])
    filled = {record.result for record in tail if isinstance(record, Filled)}
    missing = {record.result for record in tail if isinstance(record, Served)} - filled
    known = {
        record.result: record for record in records[:-most] if isinstance(record, Filled) and record.result in missing
    }
    from_ms = tail[0].at_ms
    return [record._replace(at_ms=from_ms) for record in known.values()] + tail


def what_if(request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Progress of one what-if, and its result. Raises ConfigurationError."""
    try:
        import numpy as np

        from quaestor.simulation.comparison import pareto, production
        from quaestor.simulation.simulate import System, simulated, summed_up
        from quaestor.simulation.workload import recorded
    except ImportError as error:
        raise ConfigurationError("a what-if needs numpy: pip install 'quaestor[simulation]'") from error
    trace = read(Path(request["trace"]))
    records = newest(trace.records, MOST_RECORDS)
    part = replace(trace, records=tuple(records))
    most = MOST_READS if find_spec("numba") is not None else INTERPRETED_READS
    workloads = [_latest(recorded(part, clients=request["clients"], seed=seed), most, np) for seed in range(SEEDS)]
    system = System(delta_s=request["delta_s"])
    tried = candidates(decoded(request["now"]), decoded(request["chosen"]))
    figures: dict[str, dict[str, tuple[float, float]]] = {}
    of = len(tried) * SEEDS
    for name, parameters in tried.items():
        runs = []
        for seed, workload in enumerate(workloads):
            runs.append(simulated(workload, production(parameters), system, seed=seed))
            yield {"done": len(figures) * SEEDS + seed + 1, "of": of}
        figures[name] = summed_up(runs)
    front = pareto(figures)
    yield {
        "result": {
            "trace": _about(trace, workloads[0], records),
            "uncached_origin_ms": _uncached_ms(system),
            "points": [
                {
                    "name": name, "parameters": json.loads(tried[name].encoded()), "front": name in front,
                    "figures": {cost: _finite(figures[name][cost]) for cost in SHOWN},
                }
                for name in tried
            ],
        }
    }  # fmt: skip


def _has_quantile(parameters: TtlParameters) -> bool:
    return any(
        tuning.estimator in ("lifetimes", "dynamic") for tuning in (parameters.default, *parameters.kinds.values())
    )


def _latest(workload: Workload, most: int, np: Any) -> Workload:
    """Latest reads of a workload, and the writes since the first of these reads."""
    if len(workload.read_s) <= most:
        return workload
    from_s = float(workload.read_s[-most])
    written = workload.write_s >= from_s
    return replace(
        workload,
        read_s=workload.read_s[-most:] - from_s, read_of=workload.read_of[-most:], read_by=workload.read_by[-most:],
        write_s=np.asarray(workload.write_s[written] - from_s), write_of=workload.write_of[written],
    )  # fmt: skip


def _about(trace: Trace, workload: Workload, records: Sequence[Record]) -> dict[str, Any]:
    return {
        "started_ms": trace.started_ms, "until_ms": trace.started_ms + records[-1].at_ms, "share": trace.share,
        "records": len(trace.records), "reads": len(workload.read_s), "results": workload.results,
        "seconds": round(workload.length_s, 1), "kinds": sorted(set(workload.kinds))[:64],
    }  # fmt: skip


def _uncached_ms(system: System) -> float:
    return system.fill_ms + system.database_ms[0]


def _finite(figure: Iterable[float]) -> list[float | None]:
    return [round(value, 6) if math.isfinite(value) else None for value in figure]


def answer(answers: Callable[[Mapping[str, Any]], Iterable[dict[str, Any]]]) -> None:
    """Answer the request on standard input, with lower priority than the app."""
    with suppress(OSError):
        os.nice(_BEHIND_THE_APP)
    request = json.loads(sys.stdin.buffer.readline())
    Thread(target=_end_with_the_app, daemon=True).start()
    try:
        for line in answers(request):
            print(json.dumps(line), flush=True)
    except ConfigurationError as error:
        print(json.dumps({"problem": str(error)[:500]}), flush=True)


def _end_with_the_app() -> None:
    """End this process when its parent has ended, for any reason: standard input ends then."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


if __name__ == "__main__":
    answer(what_if)

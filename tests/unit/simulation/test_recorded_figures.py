"""Figures of the simulator that were recorded once: a faster event loop has to come to the same, compiled or interpreted."""

from __future__ import annotations

import random

import numpy as np
import pytest

from quaestor.cache_sketch.sizing import Geometry
from quaestor.simulation import kernel, simulate
from quaestor.simulation.comparison import production
from quaestor.simulation.simulate import System, simulated
from quaestor.simulation.workload import Workload
from quaestor.ttl.parameters import TtlParameters, Tuning

LEARNT = TtlParameters(default=Tuning(quantile=0.6))
FIXED = TtlParameters(default=Tuning(estimator="static", static_ms=30_000))


def drawn(seed: int, *, reads: int, writes: int, results: int, clients: int, length_s: float) -> Workload:
    """A workload by dice that are the same in every version of Python: few results get most of the reads and writes."""
    dice = random.Random(seed)
    read_s, write_s = (sorted(dice.random() * length_s for _ in range(count)) for count in (reads, writes))
    read_of, write_of = ([int(results * dice.random() ** 3) for _ in range(count)] for count in (reads, writes))
    return Workload(
        name="drawn", results=results, clients=clients, read_s=np.array(read_s), read_of=np.array(read_of, dtype=np.int32),
        read_by=np.array([int(clients * dice.random()) for _ in range(reads)], dtype=np.int32), write_s=np.array(write_s),
        write_of=np.array(write_of, dtype=np.int32), rates_hz=np.full(results, 0.01), kinds=("drawn",) * results,
    )  # fmt: skip


USUAL = {"reads": 6_000, "writes": 900, "results": 120, "clients": 15, "length_s": 900.0}
CASES = {
    "learnt": (USUAL, LEARNT, System(delta_s=5.0)),
    "fixed": (USUAL, FIXED, System(delta_s=20.0, detection_s=0.3, purge_s=0.5, edges=3)),
    "copies in a hash table": (USUAL | {"reads": 3_000, "clients": 400}, FIXED, System()),
    "a small sketch": (
        USUAL,
        FIXED,
        System(geometry=Geometry(slices=2, bits_per_slice=32, capacity=20, error_rate=0.2)),
    ),
    "no CDN": (USUAL, LEARNT, System(edges=0)),
    "no browsers": (USUAL, LEARNT, System(browsers=False)),
}
RECORDED: dict[str, tuple[float, ...]] = {
    "learnt": (822, 2850, 1466, 862, 731, 126, 0.972323363, 4.664460691, 0, 752, 676, 31.889835019, 50.0),
    "fixed": (1123, 1341, 2706, 830, 538, 672, 5.888055045, 20.036248349, 0, 721, 540, 8.019639935, 15.0),
    "copies in a hash table": (9, 1035, 1198, 758, 6, 15, 1.518548697, 9.25299803, 0, 664, 452, 6.084727273, 12.0),
    "a small sketch": (866, 2066, 2214, 854, 571, 322, 2.693665837, 9.667884571, 7, 745, 557, 7.991007194, 15.0),
    "no CDN": (909, 0, 4230, 861, 750, 177, 1.866689991, 9.577374549, 0, 751, 684, 32.160971223, 52.0),
    "no browsers": (0, 3643, 1488, 869, 0, 50, 0.065731494, 0.149070353, 0, 759, 680, 0.0, 0.0),
}


def found(case: str) -> tuple[float, ...]:
    """Answers by browser, CDN, app and database, fresh ones by browsers, stale ones; s of staleness; false positives,
    invalidations, purges, keys in the sketch."""
    size, parameters, system = CASES[case]
    workload = drawn(7, **size)  # type: ignore[arg-type]
    figures = simulated(workload, production(parameters), system)
    shares = (figures.browser, figures.cdn, figures.app, figures.database, figures.browser_fresh, figures.stale)
    counts = [round(share * figures.requests) for share in shares]
    stale_s = round(figures.stale_mean_s, 9), round(figures.stale_max_s, 9)
    rates = [round(rate * workload.length_s) for rate in (figures.invalidations_hz, figures.purges_hz)]
    return (
        *counts,
        *stale_s,
        round(figures.false_positives * figures.requests),
        *rates,
        round(figures.sketch_mean, 9),
        figures.sketch_peak,
    )


@pytest.mark.parametrize("how", ["compiled", "interpreted", "updated often"])
@pytest.mark.parametrize("case", CASES)
def test_the_event_loop_equals_the_recorded_figures(case: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures are equal to the last request, with and without numba, at any interval of the estimator's updates."""
    if how == "updated often":
        monkeypatch.setattr(simulate, "_AT_ONCE", 1)
    if how == "interpreted":
        for name in ("run", "enlist", "mixed"):
            compiled = getattr(kernel, name)
            monkeypatch.setattr(kernel, name, getattr(compiled, "py_func", compiled))
    assert found(case) == RECORDED[case]

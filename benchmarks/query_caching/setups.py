"""Set-ups of the benchmark, each a chain of real servers with delaying proxies between them.

- uncached: clients - 150 ms - application without Quaestor - mongod
- CDN: clients - 4 ms - Varnish - 146 ms - application with Quaestor - mongod; its purges come back over 146 ms as well
- full: the same, with clients that keep copies

Beside the application with Quaestor stand Valkey and a 1 x 1 grid on Spark, or everything is embedded in its process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from benchmarks import harness
from benchmarks.query_caching.app import APP, CDN, DATABASE
from benchmarks.query_caching.delaying_proxy import distances
from quaestor.model import GridShape
from quaestor.testing import programs, reaper, servers

SETUPS: Final = ("uncached", "CDN", "full")
ORIGIN_MS: Final = 150.0
CDN_MS: Final = 4.0
_PATH = "/openapi.json"


@dataclass(slots=True)
class Stack:
    """One set-up that runs.

    url: of what clients ask.
    pids: of the process at the head of each part.
    """

    url: str
    pids: dict[str, int] = field(default_factory=dict)

    def meter(self) -> Meter:
        """A meter of what each part uses, this process ("clients") too. Takes long; reading it does not."""
        heads = {part: psutil.Process(pid) for part, pid in self.pids.items()}
        return Meter(
            {"clients": [psutil.Process()]}
            | {part: [head, *head.children(recursive=True)] for part, head in heads.items()}
        )


@dataclass(frozen=True, slots=True)
class Meter:
    """Meter of the processor time of parts, each of them the processes that it had when the meter was made."""

    parts: Mapping[str, Sequence[psutil.Process]]

    def read_s(self) -> Mapping[str, float]:
        """Processor time that each part has used so far, in s."""
        return {part: sum(map(_used_s, processes)) for part, processes in self.parts.items()}


def _used_s(process: psutil.Process) -> float:
    with suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        return float(times.user + times.system)
    return 0.0


@contextmanager
def running(setup: str, mongod: servers.Server, *, grid: bool, delta_s: int) -> Iterator[Stack]:
    """Start one set-up on a mongod that is filled, and stop it at the end."""
    environment = {"MONGO_URL": mongod.url, "UVICORN_TIMEOUT_KEEP_ALIVE": "120"}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="quaestor-bench-")))
        folder.chmod(0o711)  # varnishd gives up root's rights, and has to find its VCL
        pids = {"mongod": mongod.pid}
        if setup == "uncached":
            app = stack.enter_context(harness.uvicorn(APP, environment=environment, path=_PATH))
            proxies, (port,) = stack.enter_context(distances((app.port, ORIGIN_MS)))
            yield Stack(f"http://{servers.HOST}:{port}", pids | {"app": app.pid, "proxies": proxies.pid})
            return
        if grid:
            pids |= _grid(stack, folder, mongod.url, environment)
        app_port, varnish_port = servers.free_port(), servers.free_port()
        proxies, (front, far, back) = stack.enter_context(
            distances((varnish_port, CDN_MS), (app_port, ORIGIN_MS - CDN_MS), (varnish_port, ORIGIN_MS - CDN_MS))
        )
        environment |= {
            CDN: f"http://{servers.HOST}:{back}", "QUAESTOR_SKETCH_DELTA_S": str(delta_s), "QUAESTOR_TRUST_NEW_SKETCH": "1",
        }  # fmt: skip
        (folder / "varnish").mkdir()
        varnish = programs.varnish_before(folder / "varnish", app_port=far, port=varnish_port)
        varnish.start()
        stack.callback(varnish.stop)
        app = stack.enter_context(harness.uvicorn(APP, environment=environment, path=_PATH, port=app_port))
        pids |= {"app": app.pid, "proxies": proxies.pid, "varnish": varnish.pid}
        yield Stack(f"http://{servers.HOST}:{front}", pids)


def _grid(stack: ExitStack, folder: Path, mongo: str, environment: dict[str, str]) -> Mapping[str, int]:
    """Start Valkey and a 1 x 1 grid, and tell the application of them."""
    valkey = stack.enter_context(servers.running(servers.redis_server, "valkey"))
    (folder / "grid").mkdir()
    cells = programs.grid_server(
        folder / "grid", deployment=DATABASE, redis_url=valkey.url, mongo_url=mongo,
        shape=GridShape(query_partitions=1, write_partitions=1),
    )  # fmt: skip
    stack.callback(reaper.stop_tree, cells)
    cells.launch()
    cells.wait_ready(timeout_s=180)
    environment |= {"REDIS_URL": valkey.url, "QUAESTOR_DEPLOYMENT": DATABASE}
    return {"valkey": valkey.pid, "grid": cells.pid}

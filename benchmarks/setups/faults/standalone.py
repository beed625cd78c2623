"""A Spark standalone cluster of real processes on loopback: a master, and workers that come and go.

Its processes see nothing of the source tree: no PYTHONPATH, no Python of ours, another working directory.
"""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyspark

from quaestor.testing.servers import HOST, Server, free_port

_DEPLOY = "org.apache.spark.deploy"
_NOT_OURS = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_CONF_DIR", "VIRTUAL_ENV")
_STOP_S = 20


@dataclass(slots=True)
class Standalone:
    """The master at `url`, and its workers in the order in which they were started, dead ones included."""

    folder: Path
    master: Server
    page: str
    workers: list[Server] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.master.url

    def state(self) -> dict[str, Any]:
        """Return the contents of the master's JSON page."""
        with urllib.request.urlopen(self.page, timeout=5) as answer:
            state: dict[str, Any] = json.load(answer)
            return state

    def applications(self) -> list[str]:
        """Return the ids of the applications that the master runs, or would run."""
        return [app["id"] for app in self.state()["activeapps"]]

    def cores_used(self) -> int:
        return int(self.state()["coresused"])

    def add_worker(self, *, cores: int, memory: str = "1g") -> Server:
        """Start one, and return once the master knows it."""
        folder = self.folder / f"worker-{len(self.workers)}"
        folder.mkdir()
        port = free_port()
        worker = _server(
            folder,
            "worker.Worker",
            [
                "--host", HOST, "--port", str(port), "--webui-port", str(free_port()), "--cores", str(cores),
                "--memory", memory, "--work-dir", str(folder / "work"), self.url,
            ],
            port=port,
            ready=lambda: any(worker["port"] == port and worker["state"] == "ALIVE" for worker in self.state()["workers"]),
        )  # fmt: skip
        worker.start()
        self.workers.append(worker)
        return worker

    @staticmethod
    def executors(worker: Server) -> list[psutil.Process]:
        """The executors that this worker has started."""
        return psutil.Process(worker.pid).children()

    def lose(self, worker: Server) -> None:
        """SIGKILL, to the worker and to every process that it has started: as if its machine was gone."""
        family = [psutil.Process(worker.pid), *psutil.Process(worker.pid).children(recursive=True)]
        for process in family:
            process.send_signal(signal.SIGKILL)
        worker.stop()
        psutil.wait_procs(family, timeout=_STOP_S)


@contextmanager
def standalone(folder: Path, *cores: int, memory: str = "1g") -> Iterator[Standalone]:
    """A master, and a worker with each of these numbers of cores. All processes that they started have ended afterwards."""
    port, page = free_port(), free_port()
    address = f"http://{HOST}:{page}/json/"

    def ready() -> bool:
        with urllib.request.urlopen(address, timeout=1) as answer:
            return bool(json.load(answer)["status"] == "ALIVE")

    where = ["--host", HOST, "--port", str(port), "--webui-port", str(page)]
    made = Standalone(folder, _server(folder, "master.Master", where, port=port, ready=ready), address)
    made.master.start()
    try:
        for count in cores:
            made.add_worker(cores=count, memory=memory)
        yield made
    finally:
        running = [server for server in (*made.workers, made.master) if server.process is not None]
        left = [child for server in running for child in psutil.Process(server.pid).children(recursive=True)]
        for server in running:
            server.stop()
        _, alive = psutil.wait_procs(left, timeout=_STOP_S)
        for process in alive:
            process.kill()


def _server(folder: Path, role: str, arguments: Sequence[str], *, port: int, ready: Any) -> Server:
    home = os.environ.get("SPARK_HOME") or pyspark.__path__[0]
    without = [word for name in _NOT_OURS for word in ("-u", name)]
    return Server(
        role.lower(),
        ["env", "-C", str(folder), *without, f"{home}/bin/spark-class", f"{_DEPLOY}.{role}", *arguments],
        folder,
        port,
        f"spark://{HOST}:{port}",
        ready,
        environment={
            "SPARK_HOME": home,
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": str(folder),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        },
    )

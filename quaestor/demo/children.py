"""The demo's own processes, ready to be started: app workers, live page, replay, Spark grid, Varnish before the app."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from cdn_adapters import varnish_vcl
from quaestor.demo import replay, servers
from quaestor.demo.servers import HOST, Server
from quaestor.errors import ConfigurationError

JAVA_VERSIONS = (17, 21)


def require_java() -> str:
    """The Java to run Spark with. Raises ConfigurationError with the remedy if there is none, or one Spark cannot use."""
    home = os.environ.get("JAVA_HOME")
    binary = shutil.which(f"{home}/bin/java") if home else shutil.which("java")
    remedy = "install one (apt-get install openjdk-17-jre-headless), set JAVA_HOME, or go on with --without-spark"
    if binary is None:
        raise ConfigurationError(f"no Java found, and Spark needs Java 17 or 21: {remedy}")
    told = subprocess.run([binary, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', told)
    if found is None or int(found[1]) not in JAVA_VERSIONS:
        raise ConfigurationError(f"{binary} is Java {found[1] if found else '?'}, Spark needs 17 or 21: {remedy}")
    return binary


def app_server(folder: Path, *, port: int, workers: int, environment: dict[str, str]) -> Server:
    return servers.python_server(
        folder,
        "app",
        _uvicorn("quaestor.demo.flights_app:create_app", port, workers=workers),
        port=port,
        path="/airlines",
        environment=environment,
    )


def live_server(folder: Path, *, port: int, environment: dict[str, str]) -> Server:
    return servers.python_server(
        folder,
        "live page",
        _uvicorn("quaestor.demo.live:create_app", port, workers=1),
        port=port,
        path="/totals",
        environment=environment,
    )


def varnish_server(folder: Path, *, port: int, app_port: int) -> Server:
    """Varnish in front of the app, configured as VarnishAdapter expects."""
    return servers.varnish_server(folder, varnish_vcl(HOST, app_port), port=port)


def _uvicorn(factory: str, port: int, *, workers: int) -> list[str]:
    return [
        "-m", "uvicorn", "--factory", factory, "--host", HOST, "--port", str(port), "--workers", str(workers),
        "--log-level", "warning", "--no-access-log", "--timeout-graceful-shutdown", "2",
    ]  # fmt: skip


def replay_process(folder: Path, *, mongo_url: str, database: str, speed: float, laps: int) -> Server:
    """The replay by its file name, not as a part of the package: it is somebody else's program. -P: nor its neighbours."""
    arguments = [
        sys.executable, "-P", replay.__file__, mongo_url, database, "--speed", str(speed), "--laps", str(laps)
    ]  # fmt: skip
    return Server("replay", arguments, folder, 0, "", ready=lambda: True)

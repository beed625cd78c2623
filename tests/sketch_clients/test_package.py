"""The npm package of `clients/js`, built from the sources in a folder of its own, as `make browser-client` builds it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks.setups.clients.node import CLIENT, NODE

ROOT = CLIENT.parents[1]
SERVED = (ROOT / "middleware" / "browser", ROOT / "quaestor" / "live" / "websocket")
LIBRARIES = CLIENT / "node_modules"

pytestmark = [
    pytest.mark.timeout(600),
    # All of them: whichever comes first waits for the build.
    pytest.mark.long,
    pytest.mark.skipif(
        not (LIBRARIES / "publint").exists(), reason="`make js-libraries` installs the libraries of clients/js"
    ),
]


def play(client: Path, program: str) -> None:
    """Run a program of a folder of the client. Fails with its output."""
    played = subprocess.run(
        [NODE, "--no-warnings", program],
        cwd=client, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert played.returncode == 0, played.stdout[-8000:]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of the client alone, with what is built of it. The scripts that this checkout serves stay as they are."""
    root = tmp_path_factory.mktemp("package")
    client = root / CLIENT.relative_to(ROOT)
    shutil.copytree(CLIENT, client, ignore=shutil.ignore_patterns("node_modules", "dist"))
    shutil.copy(ROOT / "LICENSE", root)
    (client / "node_modules").symlink_to(LIBRARIES)
    for folder in (*SERVED, SERVED[1] / "http"):
        (root / folder.relative_to(ROOT)).mkdir(parents=True)
    play(client, "node_modules/typescript/bin/tsc")
    play(client, "build.mjs")
    return client


def test_the_package_works_where_it_is_installed(built: Path) -> None:
    """README and LICENSE, types for SWR and TanStack, no internals in public types, the hook `useQuaestor`, no side effects."""
    play(built, "test/package.mjs")


def test_pages_load_few_bytes(built: Path) -> None:
    """Page module, worker and live queries, minified and compressed, stay below their limits."""
    play(built, "test/size.mjs")


def test_the_served_scripts_are_those_that_are_built(built: Path) -> None:
    """The middleware and the live endpoint serve what the sources and the locked tools give."""
    root = built.parents[1]
    scripts = [script for folder in SERVED for script in (root / folder.relative_to(ROOT)).rglob("*.js")]
    assert len(scripts) == 7
    for script in scripts:
        assert script.read_text() == (ROOT / script.relative_to(root)).read_text(), "run `make browser-client`"

"""The rules by which the browser client uses copies, on a scripted network and scripted clocks, in Node.js."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.sketch_clients.node import CLIENT, NODE

PROTECTIONS = {
    "copies that the sketch names": (
        "client.ts",
        [
            ("(shows > made || !flat!.names(name))", "true"),
        ],
    ),
    "a sketch older than the bound": ("client.ts", [("time.now() - bound(wanted),", "0,")]),
    "own writes": ("client.ts", [("wanted.readYourWrites ? known.written : 0", "0")]),
    "own writes of pages that are gone": ("client.ts", [("known.written = LATEST;", "")]),
    "the wall clock": ("server_time.ts", [("wall - wallThen, ", "")]),
    "the monotonic clock": ("server_time.ts", [(", monotonic - monotonicThen", "")]),
    "what an answer without a lifetime drops": ("copies.ts", [("if (kept.get(url)?.etag !== etag) drop(url);", "")]),
    "the number that the server repeats": ("sketch_loader.ts", [('if (!found.fresh) throw Error("an old one");', "")]),
    "the age of a sketch on a page's first load": (
        "sketch_loader.ts",
        [("known ? 0 : wall", "0"), ("Math.abs(wall - shown) < AMISS", "true")],
    ),
}
"""What protects from stale copies: module, and what takes its place to be without it."""


BUILT = CLIENT.parents[1] / "middleware" / "browser"


def play(
    client: Path, *, histories: int, only: str = ".", built: Path | None = None
) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"HISTORIES": str(histories)} | ({"CLIENT": str(built)} if built else {})
    return subprocess.run(
        [NODE, "--no-warnings", "--test-force-exit", f"--test-name-pattern={only}", client / "test" / "client.test.ts"],
        env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip


def test_rules() -> None:
    """Each rule by itself, and Δ, own writes and monotonic reads in random histories with wrong clocks and old sketches."""
    played = play(CLIENT, histories=60)
    assert played.returncode == 0, played.stdout[-8000:]


def test_rules_of_the_page_module_as_it_is_served() -> None:
    """Minified, with short names in place of its own."""
    played = play(CLIENT, histories=20, built=BUILT / "client.js")
    assert played.returncode == 0, played.stdout[-8000:]


def test_rules_of_the_service_worker() -> None:
    """What it handles, what it gives to pages, and what it remembers when the browser ends it."""
    program = CLIENT / "test" / "worker.test.ts"
    played = subprocess.run(
        [NODE, "--no-warnings", "--test-force-exit", program],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert played.returncode == 0, played.stdout[-8000:]


def test_what_the_middleware_serves_is_built_of_these_sources() -> None:
    """`make browser-client` builds them, and notes of what."""
    sources = hashlib.sha256()
    for source in sorted((CLIENT / "src").iterdir()):
        sources.update(source.read_bytes())
    assert (BUILT / "sources.sha256").read_text().strip() == sources.hexdigest(), "run `make browser-client`"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_rules_in_many_histories() -> None:
    played = play(CLIENT, histories=2000, only="random histories")
    assert played.returncode == 0, played.stdout[-8000:]


@pytest.mark.slow
@pytest.mark.parametrize("protection", PROTECTIONS)
def test_without_a_protection_histories_break_a_promise(protection: str, tmp_path: Path) -> None:
    """The random histories would find that it is missing."""
    for part in ("src", "test"):
        shutil.copytree(CLIENT / part, tmp_path / part)
    shutil.copy(CLIENT / "package.json", tmp_path)
    name, replacements = PROTECTIONS[protection]
    module = tmp_path / "src" / name
    text = module.read_text()
    for old, new in replacements:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    module.write_text(text)
    played = play(tmp_path, histories=400, only="random histories")
    assert played.returncode != 0
    assert "ERR_ASSERTION" in played.stdout, played.stdout[-8000:]

"""The rules by which the browser client uses copies, on a scripted network and scripted clocks, in Node.js."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.sketch_clients.node import CLIENT, NODE


def play(histories: int) -> None:
    played = subprocess.run(
        [NODE, "--no-warnings", "--test-force-exit", CLIENT / "test" / "client.test.ts"],
        env=os.environ | {"HISTORIES": str(histories)}, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert played.returncode == 0, played.stdout[-8000:]


def test_rules() -> None:
    """Each rule by itself, and Δ, own writes and monotonic reads in random histories with wrong clocks and old sketches."""
    play(histories=60)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_rules_in_many_histories() -> None:
    play(histories=2000)

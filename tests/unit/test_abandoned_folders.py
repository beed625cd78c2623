"""Temporary folders of killed processes are removed by the next one, and nothing else is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from quaestor.invalidation.grid.spark.temporary_folders import own_folder

PREFIX = "quaestor-spark-"
HOLD = """
import sys
from quaestor.invalidation.grid.spark.temporary_folders import own_folder
with own_folder("quaestor-spark-") as folder:
    (folder / "tmp").mkdir()
    (folder / "tmp" / "file").write_text("x")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of these tests."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def holder() -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def names(parent: Path) -> set[str]:
    return {entry.name for entry in parent.iterdir()}


def test_a_folder_is_gone_with_its_block(parent: Path) -> None:
    with own_folder(PREFIX) as folder:
        (folder / "file").write_text("x")
        assert folder.parent == parent
    assert names(parent) == set()


def test_folders_of_a_killed_process_are_removed_and_those_of_a_living_one_are_not(parent: Path) -> None:
    killed, left = holder()
    living, used = holder()
    try:
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        assert left.exists()
        with own_folder(PREFIX) as folder:
            assert names(parent) == {used.name, folder.name}
            assert (used / "tmp" / "file").exists()
    finally:
        living.communicate("")
    assert names(parent) == set()


def test_only_folders_that_are_surely_ours_are_removed(parent: Path, tmp_path: Path) -> None:
    """A folder stays if it has no lock or another name, or if others can write to it; a link to elsewhere stays too.

    Removal follows no link.
    """
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(0o700)
    (elsewhere / "owner").touch()
    (elsewhere / "precious").touch()

    def made(name: str, mode: int = 0o700) -> Path:
        folder = parent / name
        folder.mkdir()
        folder.chmod(mode)
        return folder

    made(f"{PREFIX}no-lock")
    for name, mode in ((f"{PREFIX}open", 0o777), (f"{PREFIX}abandoned", 0o700), ("another", 0o700)):
        (made(name, mode) / "owner").touch()
    (parent / f"{PREFIX}abandoned" / "link").symlink_to(elsewhere)
    (parent / f"{PREFIX}link").symlink_to(elsewhere)
    (made(f"{PREFIX}linked-lock") / "owner").symlink_to(elsewhere / "owner")
    os.mkfifo(made(f"{PREFIX}pipe") / "owner")
    before = names(parent)
    with own_folder(PREFIX) as folder:
        assert before - names(parent) == {f"{PREFIX}abandoned", f"{PREFIX}pipe"}
        assert folder.exists()
    assert {entry.name for entry in elsewhere.iterdir()} == {"owner", "precious"}

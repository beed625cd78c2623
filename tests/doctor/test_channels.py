"""`quaestor doctor` on the channels of a folder: each fault has its line, and none is left when all is well."""

from __future__ import annotations

from pathlib import Path

from quaestor.channels.brokers.delivery import letters_of
from quaestor.continuous.folder_lock import folder_lock
from quaestor.doctor import channels
from quaestor.doctor.diagnosis import Level
from quaestor.settings import Settings
from tests.dashboard.channels_folder import Folder, filled, settings


def lines(folder: Folder, path: Path, after_s: int = 0) -> list[tuple[Level, str]]:
    """Return level and sentence of each diagnosis."""
    now_ms = folder.now_ms + after_s * 1_000
    return [(line.level, line.sentence) for line in channels.examined(Settings(**settings(path)), clock=lambda: now_ms)]


def test_each_fault_of_channels_has_a_line_until_it_is_mended(tmp_path: Path) -> None:
    """No process, an unconfirmed message, a lease that is over, a refused record, and a late run."""
    folder = filled(tmp_path)
    parts = folder.channels.parts
    levels = dict(reversed(line) for line in lines(folder, tmp_path))
    assert levels == {
        "2 channels and feeds wait: no process runs them": Level.MEND,
        "Local: 1 messages were not confirmed": Level.WARN,
        "broker station at https://93.184.216.34/results/%3Cimg%20src=x%20onerror=alert(1)%3E: lease over; its results wait":
            Level.MEND,
        "feed TweetFeed: 1 records were refused": Level.WARN,
    }  # fmt: skip
    with folder_lock(tmp_path, ".channels"):
        folder.channels.brokers.register("station", "https://93.184.216.34/", replaces=True)
        folder.channels.brokers.note_down("station", folder.now_ms * 1_000)
        for letter in list(letters_of(parts.catalogue.root).list()):
            letters_of(parts.catalogue.root).remove(letter)
        parts.catalogue.drop("TweetFeed_dead_letters")
        ((level, sentence),) = lines(folder, tmp_path)
        assert (level, sentence.partition(":")[0]) == (Level.MEND, "broker station at https")
        assert "down since" in sentence
        folder.channels.brokers.note_down("station", 0)
        assert lines(folder, tmp_path) == [(Level.OK, "1 channels and 1 feeds run in time")]
        assert lines(folder, tmp_path, after_s=35) == [(Level.MEND, "Local: a run is due since 25 s, every 10 s")]


def test_a_folder_without_definitions_has_no_line(tmp_path: Path) -> None:
    """The examination makes no folder."""
    assert channels.examined(Settings(**settings(tmp_path / "none"))) == []
    assert channels.examined(Settings()) == []
    assert not (tmp_path / "none").exists()

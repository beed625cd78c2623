"""Files of results: durable, and each key once."""

from __future__ import annotations

import json
import os
import resource
import signal
from pathlib import Path

import pytest

from quaestor.continuous.delivery.batch import ResultBatch
from quaestor.continuous.delivery.file import FileSink
from quaestor.continuous.delivery.sink import DeliveryError

pytestmark = pytest.mark.anyio


def batch(run: int, *values: int, first: int = 0, query: str = "q") -> ResultBatch:
    return ResultBatch(query=query, run=run, instant=run * 10, first=first, rows=[{"v": value} for value in values])


def lines(path: Path) -> list[tuple[str, int]]:
    return [(line["key"], line["row"]["v"]) for line in map(json.loads, path.read_text().splitlines())]


async def test_a_repeated_batch_adds_nothing(tmp_path: Path) -> None:
    """A repetition adds nothing after a restart, for an older run, for a part of a batch, and beside another writer."""
    path = tmp_path / "results.ndjson"
    first, second = FileSink("file:results.ndjson", path), FileSink("file:results.ndjson", path)
    await first.deliver(batch(1, 10, 11))
    await second.deliver(batch(1, 10, 11))
    await second.deliver(batch(2, 20))
    await first.deliver(batch(1, 10, 11, 12))
    await first.deliver(batch(2, 20))
    await first.deliver(batch(2, 30, query="r"))
    await FileSink("file:results.ndjson", path).deliver(batch(1, 11, 12, 13, first=1))
    assert lines(path) == [
        ("q/1/0", 10), ("q/1/1", 11), ("q/2/0", 20), ("q/1/2", 12), ("r/2/0", 30), ("q/1/3", 13),
    ]  # fmt: skip


async def test_an_unfinished_line_is_removed(tmp_path: Path) -> None:
    """A power cut in the middle of a line leaves no broken JSON behind."""
    path = tmp_path / "results.ndjson"
    sink = FileSink("file:results.ndjson", path)
    await sink.deliver(batch(1, 10))
    with path.open("ab") as file:
        file.write(b'{"key":"q/2/0","que')
    await sink.deliver(batch(2, 20))
    assert lines(path) == [("q/1/0", 10), ("q/2/0", 20)]
    path.write_bytes(b"x" * 100)
    await FileSink("file:results.ndjson", path).deliver(batch(3, 30))
    assert lines(path) == [("q/3/0", 30)]


async def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """The failure may pass, and the batch is then added whole. A limit of the process stands for the full disk."""
    path = tmp_path / "results.ndjson"
    sink = FileSink("file:results.ndjson", path)
    await sink.deliver(batch(1, 10))
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, limits[1]))
    try:
        with pytest.raises(DeliveryError) as raised:
            await sink.deliver(batch(2, 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert (raised.value.reason, raised.value.retryable) == ("disk", True)
    assert path.read_bytes() == before
    await sink.deliver(batch(2, 20))
    assert lines(path) == [("q/1/0", 10), ("q/2/0", 20)]


async def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    """Rotation by another program loses nothing."""
    path = tmp_path / "results.ndjson"
    sink = FileSink("file:results.ndjson", path)
    await sink.deliver(batch(1, 10))
    os.rename(path, tmp_path / "old.ndjson")
    await sink.deliver(batch(2, 20))
    await sink.deliver(batch(2, 20))
    assert lines(path) == [("q/2/0", 20)]


@pytest.mark.parametrize(
    "line", ['{"key":"q/2/0', "a note", "[]", '{"key":7}', '{"key":"q/x/0"}', "{}", "", "9", "[" * 100_000]
)
async def test_lines_of_other_programs_stay(tmp_path: Path, line: str) -> None:
    """A file with a line by hand still receives results, each once."""
    path = tmp_path / "results.ndjson"
    path.write_text(f"{line}\n")
    sink = FileSink("file:results.ndjson", path)
    for run in (2, 3, 2):
        await sink.deliver(batch(run, run))
    first, *rest = path.read_text().splitlines()
    assert (first, [json.loads(text)["key"] for text in rest]) == (line, ["q/2/0", "q/3/0"])


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DeliveryError, match="restore the folder"):
        await FileSink("file:x", tmp_path / "none" / "x").deliver(batch(1, 1))

"""A table in a folder and in an object store: racing writers, writers that are killed between steps, damaged entries."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import obstore
import pytest

from quaestor.errors import ConfigurationError, DependencyError
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.log import Table
from quaestor.tables.maintenance import maintain
from quaestor.tables.object_storage import ObjectStorage
from quaestor.tables.storage import FolderStorage, LogStorage
from tests.versioned.object_store import BUCKET, object_store, store_at
from tests.versioned.writer import SCHEMA, storage_at, table_at

EVER = 1 << 62
STEPS = 16


@pytest.fixture(scope="module")
def store_url() -> Iterator[str]:
    with object_store() as url:
        yield url


@pytest.fixture(params=["folder", "object store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Place of a table of this test."""
    if request.param == "folder":
        return str(tmp_path / "table")
    return f"{request.getfixturevalue('store_url')}#{tmp_path.name}"


def writer(place: str, name: str, count: int, die_at: int = -1) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.versioned.writer", place, name, str(count), str(die_at)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])


def numbers(place: str) -> Counter[tuple[str, int]]:
    """The rows as a process sees them that has just come."""
    table = table_at(place)
    rows = table.scan(table.snapshot(), -1, EVER).to_pylist()
    return Counter((row["writer"], row["n"]) for row in rows)


def test_a_folder_is_listed_with_its_folders_and_without_hidden_files(tmp_path: Path) -> None:
    """Paths begin at the root. Folders behind links do not belong to the table."""
    for path in ("data/a", "data/day=1/b", "data/.hidden", "data/.drafts/c", "elsewhere/d"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    (tmp_path / "data/link").symlink_to(tmp_path / "elsewhere")
    stored = list(FolderStorage(tmp_path).list("data"))
    assert sorted(entry.path for entry in stored) == ["data/a", "data/day=1/b"]
    assert all(entry.modified_ms == (tmp_path / entry.path).stat().st_mtime_ns // 1_000_000 for entry in stored)


def test_a_folder_that_cannot_be_listed_is_no_empty_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its log a table would look new, and its rows would be gone."""

    def refused(path: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("quaestor.tables.storage.os.scandir", refused)
    with pytest.raises(DependencyError, match=r"_log could not be listed: .*Permission denied"):
        Table(FolderStorage(tmp_path)).snapshot()


def test_an_object_is_created_once_and_whole(place: str) -> None:
    """The contract of the log: the second creation reports that the object exists, and changes nothing."""
    storage = storage_at(place)
    assert storage.create_if_absent("_log/1.json", b"first")
    assert not storage.create_if_absent("_log/1.json", b"second")
    assert storage.read("_log/1.json") == b"first"
    assert [stored.path for stored in storage.list("_log")] == ["_log/1.json"]
    assert list(storage.below("other").list("_log")) == []
    storage.delete("_log/1.json")
    storage.delete("_log/1.json")
    with pytest.raises(FileNotFoundError):
        storage.read("_log/1.json")
    with pytest.raises(FileNotFoundError):
        storage.open("_log/1.json")


def test_racing_writers_lose_nothing(place: str) -> None:
    """Three processes append at once: each row is in the table once, and no two entries have the same instant."""
    children = [writer(place, name, 12) for name in "abc"]
    for child in children:
        child.communicate(timeout=120)
        assert child.returncode == 0
    assert numbers(place) == Counter({(name, number): 1 for name in "abc" for number in range(12)})
    table = table_at(place)
    assert len(set(table.scan(table.snapshot(), -1, EVER, []).column("ts").to_pylist())) == 36
    assert table.snapshot().number == 35


@pytest.mark.parametrize("place", ["folder", pytest.param("object store", marks=pytest.mark.slow)], indirect=True)
def test_a_writer_killed_between_any_two_steps_loses_and_repeats_nothing(place: str) -> None:
    """Each process dies at the next step of an append, of a sum, or of the removal of old entries. Its successor continues."""
    durable: set[int] = set()
    for die_at in range(STEPS):
        child = writer(place, "a", STEPS, die_at)
        output, _ = child.communicate(timeout=120)
        assert child.returncode == -9
        durable |= set(map(int, output.split()))
        rows = numbers(place)
        assert durable <= {number for _, number in rows}, "a durable row was lost"
        assert set(rows.values()) <= {1}, "a row was published twice"
    last = writer(place, "a", 3)
    last.communicate(timeout=120)
    rows = numbers(place)
    assert rows == Counter({("a", number): 1 for number in range(len(rows))})
    assert len(rows) > STEPS
    leftovers = maintain(Table(storage_at(place)), file_bytes=1 << 20, keep_days=0, grace_s=0, now_ms=1 << 43)
    assert leftovers.made == 1
    assert leftovers.deleted >= len(rows)
    assert numbers(place) == rows
    assert len(list(storage_at(place).list("data"))) == 1
    assert list(storage_at(place).list("_drafts")) == []


@pytest.mark.parametrize("content", [b"", b'{"v": 2, "add": []}', b"\xff"])
def test_a_damaged_entry_is_refused(place: str, content: bytes) -> None:
    """The message names the entry and the remedy; nothing is read around it."""
    table = table_at(place)
    for number in range(3):
        table.append([{"writer": "a", "n": number}])
    path = f"_log/{1:020d}.json"
    storage = storage_at(place)
    whole = storage.read(path)
    storage.delete(path)
    storage.create_if_absent(path, content)
    with pytest.raises(DependencyError, match=rf"{path} is damaged.*restore it"):
        numbers(place)
    storage.delete(path)
    with pytest.raises(DependencyError, match=r"is missing.*restore it"):
        numbers(place)
    storage.create_if_absent(path, whole)
    assert len(numbers(place)) == 3


class Repeating:
    """Storage whose requests are sent twice: the answer to the first one was lost, as a client sees a time-out."""

    def __init__(self, inner: LogStorage) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def create_if_absent(self, path: str, content: bytes) -> bool:
        self._inner.create_if_absent(path, content)
        return self._inner.create_if_absent(path, content)


def test_a_repeated_request_counts_once(place: str) -> None:
    """The store reports that the entry exists, because the first request had created it: the writer recognises its own entry."""
    table = table_at(place)
    table.table.storage = Repeating(table.table.storage)  # type: ignore[assignment]
    table.append([{"writer": "a", "n": 1}])
    assert numbers(place) == Counter({("a", 1): 1})
    assert table_at(place).snapshot().number == 0


def test_a_catalogue_lies_in_an_object_store(store_url: str, tmp_path: Path) -> None:
    """Without a shared disk: another process sees the table, its rows and its columns."""
    root = ObjectStorage(store_at(store_url), f"catalogues/{tmp_path.name}")
    orders = Catalogue(root).create("orders", SCHEMA)
    instant = orders.append([{"writer": "a", "n": 1}])
    other = Catalogue(root).open("orders")
    assert other.schema() == SCHEMA
    assert other.scan(other.snapshot(), instant - 1, instant, ["n"]).column("n").to_pylist() == [1]
    Catalogue(root).drop("orders")
    left = [item["path"] for page in obstore.list(store_at(store_url), f"catalogues/{tmp_path.name}") for item in page]
    assert [path for path in left if "/orders-" in path] == []


def test_a_store_that_does_not_answer_is_a_failure_that_may_pass(store_url: str) -> None:
    """A missing bucket, for instance. The message names the place; a prefix is required."""
    missing = obstore.store.S3Store(
        "absent",
        endpoint=store_url,
        region="us-east-1",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
        aws_access_key_id="key",
        aws_secret_access_key="secret",
    )
    with pytest.raises(DependencyError, match=r"t/_log.*could not be listed"):
        Table(ObjectStorage(missing, "t")).snapshot()
    with pytest.raises(DependencyError, match="could not be written"):
        ObjectStorage(missing, "t").create_if_absent("x", b"")
    with pytest.raises(ConfigurationError, match="needs a prefix"):
        ObjectStorage(store_at(store_url), "/")
    assert BUCKET in ObjectStorage(store_at(store_url), "t").location


FULL = """
import resource, sys
from pathlib import Path
from quaestor.errors import DependencyError
from tests.versioned.writer import table_at
table = table_at(sys.argv[1])
table.append([{"n": 1}])
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    table.append([{"n": 2}])
except DependencyError as error:
    print(error)
"""


def test_a_full_disk_is_a_clear_error_and_leaves_the_table_as_it_was(tmp_path: Path) -> None:
    """The size of files is limited, so that a write fails in its middle as on a full disk."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    run = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "could not be written" in run.stdout
    assert "make room" in run.stdout
    assert set(numbers(str(tmp_path))) == {(None, 1)}
    assert list(FolderStorage(tmp_path).list("_drafts")) == []

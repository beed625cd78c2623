"""Traces: a recorded trace is read again, also during its recording; a strange file is refused in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from quaestor.errors import ConfigurationError
from quaestor.event_layer.partitioning import query_hash
from quaestor.ttl import TtlEstimator, recording, trace_format
from quaestor.ttl.recording import TraceRecorder
from quaestor.ttl.trace_format import Changed, Filled, Served, Withdrawn, read

START_MS = 1_700_000_000_000


def recorder(path: Path, *, share: float = 1.0, max_bytes: int = 10**6) -> TraceRecorder:
    inner = TtlEstimator(ttl_min_ms=1, ttl_max_ms=10**6)
    return TraceRecorder(inner, path=path, share=share, max_bytes=max_bytes, started_ms=START_MS)


def registration(query_id: str) -> str:
    return f"origin:1#{query_hash(query_id):016x}"


def test_a_recorded_trace_is_read_again(tmp_path: Path) -> None:
    """A fill, hits of it, an invalidation, a withdrawal; the file holds no names,
    and the estimator received all events.
    """
    path = tmp_path / "trace"
    trace_recorder = recorder(path)
    trace_recorder.observe_read(
        ["secret"], now_ms=START_MS + 5, ttl_ms=100, given_ms=50, write_rate_hz=0.5, kind="db.items"
    )
    trace_recorder.served(
        [((registration("secret"),), 3), ((registration("never filled"),), 1)], now_ms=START_MS + 1_000
    )
    trace_recorder.write()
    trace_recorder.observe_invalidation("secret", now_ms=START_MS + 1_500)
    trace_recorder.observe_withdrawal("secret", now_ms=START_MS + 1_600)
    trace_recorder.observe_invalidation("never filled", now_ms=START_MS + 1_700)
    trace_recorder.end()
    trace = read(path)
    filled, served, other, changed, withdrawn = trace.records
    assert isinstance(filled, Filled)
    name = filled.result
    assert filled == Filled(5, name, (name,), 50, 100, 0.5, "db.items")
    assert served == Served(1_000, name, 3)
    assert isinstance(other, Served)
    assert (changed, withdrawn) == (Changed(1_500, name), Withdrawn(1_600, name))
    assert (trace.started_ms, trace.share, trace.full) == (START_MS, 1.0, False)
    assert "secret" not in path.read_text()
    assert f"{query_hash('secret'):016x}" not in path.read_text()
    assert trace_recorder.estimate_ms(["secret"], write_rate_hz=0, now_ms=START_MS + 1_700) < 10**6


def test_a_share_of_the_results_is_recorded_whole(tmp_path: Path) -> None:
    trace_recorder = recorder(tmp_path / "trace", share=0.25)
    for i in range(2_000):
        trace_recorder.observe_read([f"q{i}", f"p{i}"], now_ms=START_MS + i)
        trace_recorder.served([((registration(f"q{i}"), registration(f"p{i}")), 1)], now_ms=START_MS + i)
    trace_recorder.end()
    records = read(tmp_path / "trace").records
    filled = [record.result for record in records if isinstance(record, Filled)]
    assert filled == [record.result for record in records if isinstance(record, Served)]
    assert 400 < len(filled) < 600


def test_a_file_that_is_full_ends_whole(tmp_path: Path) -> None:
    trace_recorder = recorder(tmp_path / "trace", max_bytes=2_000)
    for i in range(100):
        trace_recorder.observe_read([f"q{i}"], now_ms=START_MS + i)
        trace_recorder.write()
    trace_recorder.end()
    trace = read(tmp_path / "trace")
    assert trace.full
    assert 5 < len(trace.records) < 50
    assert (tmp_path / "trace").stat().st_size < 2_100


def test_waiting_lines_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MOST_WAITING", 10)
    trace_recorder = recorder(tmp_path / "trace")
    for i in range(100):
        trace_recorder.observe_read([f"q{i}"], now_ms=START_MS + i)
    trace_recorder.end()
    trace = read(tmp_path / "trace")
    assert trace.full
    assert len(trace.records) == 10


def test_a_trace_that_never_began_is_whole(tmp_path: Path) -> None:
    recorder(tmp_path / "trace").end()
    assert read(tmp_path / "trace").records == ()


def test_of_a_trace_that_is_still_written_or_was_cut_the_whole_lines_are_read(tmp_path: Path) -> None:
    """Wherever it ends at this moment; it is known not to have ended. More lines than its last one counts are refused."""
    path = tmp_path / "trace"
    trace_recorder = recorder(path)
    for i in range(5):
        trace_recorder.observe_read([f"q{i}"], now_ms=START_MS + i, kind="c")
    trace_recorder.end()
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(first, len(whole) - 1):
        path.write_bytes(whole[:length])
        trace = read(path)
        assert (trace.ended, len(trace.records)) == (False, min(5, whole[first : length + 1].count(b"\n")))
    path.write_bytes(whole[: first - 2])
    with pytest.raises(ConfigurationError, match="is no trace"):
        read(path)
    path.write_bytes(whole + b'["c",1,"q"]\n')
    with pytest.raises(ConfigurationError, match="counts"):
        read(path)
    path.write_bytes(whole)
    assert (read(path).ended, len(read(path).records)) == (True, 5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no trace"),
        ("{}\n", "is no trace"),
        ("no json\n", "is no trace"),
        ('{"format":"quaestor trace","version":2,"started_ms":1,"share":1}\n["e",1,false]\n', "has version 2"),
        ('{"format":"quaestor trace","version":1,"started_ms":1,"share":9}\n["e",1,false]\n', "share of 9"),
        (
            '{"format":"quaestor trace","version":1,"started_ms":1,"share":1}\n["x",1]\n["e",2,false]\n',
            "damaged in line 2",
        ),
        (
            '{"format":"quaestor trace","version":1,"started_ms":1,"share":1}\n["c",1]\n["e",2,false]\n',
            "damaged in line 2",
        ),
        ('{"format":"quaestor trace","version":1,"started_ms":1,"share":1}\n7\n["e",2,false]\n', "damaged in line 2"),
        ('{"format":"quaestor trace","version":1,"started_ms":1,"share":1}\n["e",7,false]\n', "counts 7"),
        (
            '{"format":"quaestor trace","version":1,"started_ms":1,"share":1}\n["c",1,"' + "q" * 70_000 + '"]\n',
            "damaged in line 2",
        ),
    ],
)
def test_a_file_that_is_no_trace_of_this_version_is_refused_in_one_sentence(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=said) as raised:
        trace_format.read(path)
    assert "\n" not in str(raised.value)


def test_bytes_that_are_no_text_and_files_that_are_not_there_are_refused(tmp_path: Path) -> None:
    (tmp_path / "trace").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "trace", tmp_path / "none"):
        with pytest.raises(ConfigurationError, match="cannot be read"):
            read(path)
    with pytest.raises(ConfigurationError, match="share"):
        recorder(tmp_path / "trace", share=0)

"""Loops on pipelines in memory take their steps in the thread that has appended, and miss and repeat nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from quaestor.event_layer import offsets
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.event_layer.turns import Turns, TurnTakingLayer
from tests.support import becomes


class Loop:
    """A loop that notes what it has read, and in which thread. Reads two entries at a time.

    pause_s: until its next step is due. fails: raised by its next step.
    """

    def __init__(self) -> None:
        self.layer = MemoryEventLayer()
        self.prompt = TurnTakingLayer(self.layer)
        self.read: list[bytes] = []
        self.threads: list[str] = []
        self.pause_s = 60.0
        self.fails: Exception | None = None
        self.at_work, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()
        self._after = offsets.START

    def step(self) -> float:
        self.at_work.set()
        assert self.go_on.wait(20)
        failed, self.fails = self.fails, None
        if failed is not None:
            raise failed
        entries = self.layer.read(self.behind(), count=2, block_ms=0)
        for entry in entries:
            self.read.append(entry.payload)
            self.threads.append(threading.current_thread().name)
            self._after = entry.offset
        return 0.0 if len(entries) == 2 else self.pause_s

    def behind(self) -> dict[str, str]:
        return {"writes": self._after}

    @contextmanager
    def running(self) -> Iterator[list[Exception]]:
        """The loop in a thread of its own, after its first step. Yields what ended it."""
        stop, ended = threading.Event(), []

        def run() -> None:
            try:
                self.layer.turns.run(stop, Turns(self.step), ("writes",), self.behind)
            except Exception as error:
                ended.append(error)

        thread = threading.Thread(target=run, name="own")
        thread.start()
        try:
            assert self.at_work.wait(20)
            becomes(lambda: bool(self.layer._bells.get("writes")))
            yield ended
        finally:
            stop.set()
            self.go_on.set()
            self.layer.wake()
            thread.join(20)
            assert not thread.is_alive()


def test_a_loop_at_rest_ends_when_it_is_woken() -> None:
    """Its next step is due in a minute."""
    loop, stop = Loop(), threading.Event()
    turns = Turns(loop.step)
    thread = threading.Thread(target=loop.layer.turns.run, args=(stop, turns, ("writes",), loop.behind))
    thread.start()
    becomes(lambda: bool(loop.layer._bells.get("writes")))
    stop.set()
    loop.layer.turns.wake("other")
    loop.layer.turns.wake("writes")
    thread.join(20)
    assert not thread.is_alive()
    loop.layer.turns.wake("writes")  # no loop reads it any more


def test_an_append_is_followed_by_a_step_in_its_thread() -> None:
    """The loop's own thread sleeps on."""
    loop = Loop()
    with loop.running():
        for number in range(5):
            loop.prompt.append("writes", [b"%d" % number])
            assert loop.read[-1] == b"%d" % number
    assert set(loop.threads) == {threading.current_thread().name}


def test_the_loops_thread_reads_what_one_step_has_left() -> None:
    loop = Loop()
    with loop.running():
        loop.prompt.append("writes", [b"a", b"b", b"c"])
        becomes(lambda: loop.read == [b"a", b"b", b"c"])
    assert loop.threads[-1] == "own"


def test_other_layers_wake_the_loops_thread() -> None:
    """Only who asks for it takes turns of others."""
    loop = Loop()
    with loop.running():
        loop.layer.append("writes", [b"a"])
        becomes(lambda: loop.read == [b"a"])
    assert loop.threads == ["own"]


def test_an_append_does_not_wait_for_a_loop_at_work() -> None:
    """Its entry is read by the step after that."""
    loop = Loop()
    with loop.running():
        loop.at_work.clear()
        loop.go_on.clear()
        loop.layer.append("writes", [b"a"])
        assert loop.at_work.wait(20)
        loop.prompt.append("writes", [b"b"])
        loop.prompt.append("writes", [b"c"])
        assert loop.read == []
        loop.go_on.set()
        becomes(lambda: loop.read == [b"a", b"b", b"c"])
    assert set(loop.threads) == {"own"}


def test_a_step_that_raises_ends_the_loop_and_not_the_appender() -> None:
    """The next entries wait for the next run."""
    loop = Loop()
    with loop.running() as ended:
        loop.fails = LookupError("of the loop")
        loop.prompt.append("writes", [b"a"])
        becomes(lambda: bool(ended))
        loop.prompt.append("writes", [b"b"])
    assert [type(error) for error in ended] == [LookupError]
    assert loop.read == []
    with loop.running():
        becomes(lambda: loop.read == [b"a", b"b"])


def test_a_step_that_becomes_due_sooner_wakes_the_loops_thread() -> None:
    """A step may take in a result that ends by the clock."""
    loop = Loop()
    with loop.running():
        loop.pause_s = 0.01
        loop.prompt.append("writes", [b"a"])
        loop.at_work.clear()
        assert loop.at_work.wait(20)


def test_an_ended_loop_is_left_alone() -> None:
    loop = Loop()
    with loop.running():
        pass
    loop.prompt.append("writes", [b"a"])
    assert loop.read == []
    assert [entry.payload for entry in loop.layer.read({"writes": offsets.START}, count=9, block_ms=0)] == [b"a"]


@pytest.mark.parametrize("prompt", [True, False])
def test_every_entry_is_read_once_and_in_order(prompt: bool) -> None:
    """Whichever thread takes the turn: four threads append, two of them with turns."""
    loop, each = Loop(), 2_000
    with loop.running():

        def append(name: int, layer: object) -> None:
            for number in range(each):
                layer.append("writes", [b"%d:%d" % (name, number)])  # type: ignore[attr-defined]

        layers = [loop.prompt, loop.layer, loop.prompt if prompt else loop.layer, loop.layer]
        threads = [threading.Thread(target=append, args=named) for named in enumerate(layers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        becomes(lambda: len(loop.read) >= 4 * each)
    for name in range(4):
        mine = [entry for entry in loop.read if entry.startswith(b"%d:" % name)]
        assert mine == [b"%d:%d" % (name, number) for number in range(each)]
    assert len(loop.read) == 4 * each

"""FirstUse: a module in place of its import."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
import types
from pathlib import Path

import pytest

from quaestor.first_use import FirstUse
from tests.support import becomes

_SLOW = """
import sys
gate = sys.modules["first_use_gate"]
gate.entered.set()
gate.loads += 1
assert gate.opened.wait(20)
VALUE = 7
"""


class Gate(types.ModuleType):
    """A gate for which the slow module waits, and a count of its runs."""

    def __init__(self) -> None:
        super().__init__("first_use_gate")
        self.entered, self.opened = threading.Event(), threading.Event()
        self.loads = 0


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """A module `first_use_slow`, whose import does not end before the gate opens."""
    (tmp_path / "first_use_slow.py").write_text(_SLOW)
    monkeypatch.syspath_prepend(tmp_path)
    made = Gate()
    monkeypatch.setitem(sys.modules, "first_use_gate", made)
    monkeypatch.delitem(sys.modules, "first_use_slow", raising=False)
    return made


def _imports(thread: threading.Thread) -> bool:
    """Whether a thread is inside an import."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        if frame.f_code.co_name == "import_module":
            return True
        frame = frame.f_back
    return False


def test_nothing_is_imported_before_a_name_is_read() -> None:
    late = FirstUse("this.module.does.not.exist")
    with pytest.raises(ModuleNotFoundError, match="this"):
        _ = late.name


def test_two_first_uses_at_once_get_the_complete_module(gate: Gate) -> None:
    """The second thread, which comes while the module is being imported, waits for it, and the module runs once."""
    late, values = FirstUse("first_use_slow"), list[int]()
    threads = [threading.Thread(target=lambda: values.append(late.VALUE)) for _ in range(2)]
    threads[0].start()
    assert gate.entered.wait(20)
    threads[1].start()
    becomes(lambda: _imports(threads[1]))
    gate.opened.set()
    for thread in threads:
        thread.join(20)
    assert (values, gate.loads) == ([7, 7], 1)


def test_a_name_is_looked_up_in_the_module_once(gate: Gate) -> None:
    """Later reads are those of an attribute, so hot paths pay nothing."""
    gate.opened.set()
    late = FirstUse("first_use_slow")
    assert late.VALUE == 7
    assert vars(late)["VALUE"] == 7


def test_a_missing_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = FirstUse("json").no_such_name


def test_copying_imports_no_module() -> None:
    """Libraries that copy or pickle look for special names; these are no use of the module."""
    late = FirstUse("this.module.does.not.exist")
    for copied in (copy.copy(late), copy.deepcopy(late), pickle.loads(pickle.dumps(late))):
        assert vars(copied) == vars(late)

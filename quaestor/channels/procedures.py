"""Executions of periodic procedures: the values and the user of each, and its next instant, kept durably.

EXECUTE begins the executions of a procedure that has a period. An execution is taken before it begins, so no two processes
execute the same instant. A process that is killed in an execution does not repeat it; the next instant follows.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Final

from quaestor.channels.statements import parse
from quaestor.channels.statements.model import Execute
from quaestor.clock import Clock, system_clock
from quaestor.errors import DependencyError
from quaestor.tables.changes import Change, Snapshot
from quaestor.tables.log import Table
from quaestor.tables.storage import LogStorage

_FORMAT: Final = 1
_LONGEST_ERROR: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """Periodic executions of one procedure. Instants in microseconds since 1970.

    name: of the procedure.
    text: EXECUTE statement with its values.
    user: has the rights of the executions; empty: the operator.
    created: creation of the procedure; a procedure that replaced it is not executed.
    due: next execution.
    executed: newest execution; None: there was none since EXECUTE.
    error: of the newest execution; empty: none.
    """

    name: str
    text: str
    user: str
    created: int
    due: int
    executed: int | None = None
    error: str = ""

    @property
    def statement(self) -> Execute:
        """EXECUTE statement with its values."""
        (statement,) = parse(self.text)
        assert isinstance(statement, Execute)
        return statement


class Procedures:
    """Periodic executions of the procedures of one place. Several processes may change them.

    Methods raise DependencyError if the storage fails.
    """

    def __init__(self, storage: LogStorage, *, clock: Clock = system_clock) -> None:
        self._log = Table(storage.below("_procedures"))
        self._clock = clock

    def now(self) -> int:
        """Return the present instant."""
        return self._clock() * 1_000

    def all(self) -> list[Repeated]:
        """Return all periodic executions, by the name of the procedure."""
        notes = self._log.snapshot().notes
        return [_decoded(notes[name], name) for name in sorted(notes)]

    def find(self, name: str) -> Repeated | None:
        """Return the executions of a procedure; None: EXECUTE has not begun them."""
        return _of(self._log.snapshot(), name)

    def begin(self, repeated: Repeated) -> None:
        """Begin executions, in place of those of an earlier EXECUTE."""
        self._publish(lambda _: Change(notes={repeated.name.lower(): _encoded(repeated)}))

    def take(self, repeated: Repeated, *, now: int, following: int) -> bool:
        """Take the next execution, for this process alone; return whether no other process was faster.

        following: instant of the execution after it.
        """
        taken = replace(repeated, due=following, executed=now)
        is_ours = False

        def decide(present: Snapshot) -> Change | None:
            nonlocal is_ours
            is_ours = _of(present, repeated.name) == repeated
            return Change(notes={repeated.name.lower(): _encoded(taken)}) if is_ours else None

        self._publish(decide)
        return is_ours

    def note_error(self, name: str, executed: int, error: str) -> None:
        """Keep the error of an execution; empty: it had none. A later EXECUTE has forgotten the execution."""

        def decide(present: Snapshot) -> Change | None:
            known = _of(present, name)
            if known is None or known.executed != executed or known.error == error[:_LONGEST_ERROR]:
                return None
            return Change(notes={name.lower(): _encoded(replace(known, error=error[:_LONGEST_ERROR]))})

        self._publish(decide)

    def end(self, name: str) -> None:
        """End the executions of a procedure that is dropped or replaced."""
        key = name.lower()
        self._publish(lambda now: Change(notes={key: None}) if key in now.notes else None)

    def _publish(self, decide: Callable[[Snapshot], Change | None]) -> None:
        self._log.publish(decide, now_us=self.now())


def _of(snapshot: Snapshot, name: str) -> Repeated | None:
    text = snapshot.notes.get(name.lower())
    return None if text is None else _decoded(text, name)


def _encoded(repeated: Repeated) -> str:
    return json.dumps({"v": _FORMAT, **asdict(repeated)})


def _decoded(text: str, name: str) -> Repeated:
    try:
        fields = json.loads(text)
        if fields.pop("v") != _FORMAT:
            raise ValueError("another format")
        return Repeated(**fields)
    except (ValueError, KeyError, TypeError) as error:
        raise DependencyError(
            f"the executions of procedure {name!r} are damaged: {error}; drop and create it again", retryable=False
        ) from error

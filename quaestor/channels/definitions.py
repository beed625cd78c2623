"""Definitions: the named things that statements create, kept durably in one log. Several processes may change them.

A definition is published before its tables are made, and removed after they are deleted. A process that is killed in
between leaves a definition that does not work yet, or no more; DROP removes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Final

from quaestor.channels.rewriting.definition import ChannelDefinition
from quaestor.channels.rewriting.definition import Kind as ChannelKind
from quaestor.channels.rewriting.definition import Parameter as ChannelParameter
from quaestor.channels.statements import Statement, parse
from quaestor.channels.statements.model import CreateChannel, CreateFunction, Kind
from quaestor.channels.subscriptions import dataset_name
from quaestor.clock import Clock, system_clock
from quaestor.errors import ConfigurationError, DependencyError
from quaestor.tables.changes import Change, Snapshot
from quaestor.tables.log import Table
from quaestor.tables.storage import LogStorage

_FOLDER: Final = "_definitions"
_FORMAT: Final = 1
_KINDS: Final = (Kind.TYPE, Kind.DATASET, Kind.FEED, Kind.FUNCTION, Kind.CHANNEL, Kind.BROKER, Kind.PROCEDURE)


class State(StrEnum):
    """State of a definition. Its tables are being made, it works, it is paused, or its tables are being deleted."""

    CREATING = "creating"
    READY = "ready"
    PAUSED = "paused"
    DROPPING = "dropping"


class NameTakenError(ConfigurationError):
    """Error of a name that a thing of the same kind has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """Definition.

    text: of the statement that created it.
    user: its owner; empty: the operator.
    uses: keys of the definitions that it needs.
    created: instant of its creation.
    """

    kind: Kind
    name: str
    text: str
    user: str = ""
    uses: tuple[str, ...] = ()
    state: State = State.READY
    created: int = 0

    @property
    def key(self) -> str:
        """Key of the definition."""
        return key_of(self.kind, self.name)

    @property
    def statement(self) -> Statement:
        """Statement that created it."""
        return _parsed(self.text)


class Definitions:
    """Definitions of one catalogue.

    root: storage of the catalogue.
    most_of_user: definitions that a user may own; the operator may own any number.

    All methods raise DependencyError if the storage fails.
    """

    def __init__(self, root: LogStorage, *, clock: Clock = system_clock, most_of_user: int = 1_000) -> None:
        self._log = Table(root.below(_FOLDER))
        self._clock = clock
        self._most_of_user = most_of_user

    def all(self, kind: Kind | None = None) -> list[Definition]:
        """Return all definitions, or those of a kind, by kind and name."""
        notes = self._log.snapshot().notes
        definitions = (_decoded(notes[key], key) for key in sorted(notes))
        return [definition for definition in definitions if kind in (None, definition.kind)]

    def get(self, kind: Kind, name: str) -> Definition:
        """Return a definition. Raises ConfigurationError if there is none."""
        return _of(self._log.snapshot(), kind, name)

    def find(self, kind: Kind, name: str) -> Definition | None:
        """Return a definition; None: there is none."""
        key = key_of(kind, name)
        text = self._log.snapshot().notes.get(key)
        return None if text is None else _decoded(text, key)

    def named(self, name: str) -> list[Definition]:
        """Return the definitions with a name, of all kinds."""
        return [entry for kind in _KINDS if (entry := self.find(kind, name)) is not None]

    def users_of(self, kind: Kind, name: str) -> list[Definition]:
        """Return the definitions that use a definition."""
        return _users(self._log.snapshot(), key_of(kind, name))

    def create(self, definition: Definition) -> Definition:
        """Publish a definition.

        Raises NameTakenError for a taken name, ConfigurationError for a missing part that it uses, and beyond the quota.
        """
        added = replace(definition, created=self._clock() * 1_000)

        def decide(now: Snapshot) -> Change:
            if added.key in now.notes:
                raise NameTakenError(_taken(_decoded(now.notes[added.key], added.key)))
            self._check(now, added)
            return Change(notes={added.key: _encoded(added)})

        self._publish(decide)
        return added

    def replace(self, definition: Definition) -> Definition:
        """Publish a definition, also in place of one that nothing uses. Raises ConfigurationError."""
        added = replace(definition, created=self._clock() * 1_000)

        def decide(now: Snapshot) -> Change:
            _refuse_users(now, added)
            self._check(now, added)
            return Change(notes={added.key: _encoded(added)})

        self._publish(decide)
        return added

    def change(self, kind: Kind, name: str, change: Callable[[Definition], Definition]) -> Definition:
        """Change state, text or uses of a definition. Raises ConfigurationError.

        change: called again if another process was faster.
        """

        def decide(now: Snapshot) -> Change:
            changed = change(_of(now, kind, name))
            _check_uses(now, changed)
            return Change(notes={changed.key: _encoded(changed)})

        return _of(self._publish(decide), kind, name)

    def ready(self, definition: Definition) -> Definition:
        """Mark a definition whose tables are made. Raises ConfigurationError if it was dropped meanwhile."""

        def change(present: Definition) -> Definition:
            if present.state is not State.CREATING:
                raise ConfigurationError(f"{present.kind} {present.name!r} was dropped while it was created")
            return replace(present, state=State.READY)

        return self.change(definition.kind, definition.name, change)

    def begin_drop(self, kind: Kind, name: str) -> Definition:
        """Mark a definition whose tables are about to be deleted. Raises ConfigurationError that names its users."""

        def decide(now: Snapshot) -> Change:
            definition = _of(now, kind, name)
            _refuse_users(now, definition)
            return Change(notes={definition.key: _encoded(replace(definition, state=State.DROPPING))})

        return _of(self._publish(decide), kind, name)

    def end_drop(self, definition: Definition) -> None:
        """Remove a definition."""
        key = definition.key
        self._publish(lambda now: Change(notes={key: None}) if key in now.notes else None)

    def channels(self) -> list[ChannelDefinition]:
        """Return the channels that run."""
        return [self.channel(entry) for entry in self.all(Kind.CHANNEL) if entry.state is State.READY]

    def subscription_datasets(self) -> set[str]:
        """Return the names of the datasets that hold the subscriptions of channels."""
        return {dataset_name(entry.name) for entry in self.all(Kind.CHANNEL)}

    def channel(self, definition: Definition) -> ChannelDefinition:
        """Return the channel of a definition. Raises ConfigurationError if its function is gone."""
        statement = definition.statement
        if not isinstance(statement, CreateChannel):
            raise ConfigurationError(f"{definition.name!r} is no channel")
        return self.channel_of(statement)

    def channel_of(self, statement: CreateChannel) -> ChannelDefinition:
        """Return the channel of a statement. Raises ConfigurationError if its function is missing or does not fit."""
        body, parameters = statement.body, statement.parameters
        if statement.using is not None:
            function = self.get(Kind.FUNCTION, statement.using.function).statement
            if not isinstance(function, CreateFunction) or function.python:
                raise ConfigurationError(f"function {statement.using.function!r} is Python: a channel needs a query")
            if len(function.parameters) != statement.using.arity:
                raise ConfigurationError(
                    f"function {function.name!r} has {len(function.parameters)} parameters, not {statement.using.arity}"
                )
            body, parameters = function.body, function.parameters
        assert body is not None, "a channel without a function has a body"
        return ChannelDefinition(
            name=statement.name,
            body=body.text,
            parameters=tuple(ChannelParameter(entry.name, entry.type) for entry in parameters),
            kind=ChannelKind.CONTINUOUS if statement.using is None else ChannelKind.REPETITIVE,
            period=period_text(statement.period_us),
            push=statement.push,
            distinct=statement.distinct,
            every_instant=statement.every_instant,
            start=statement.start,
            grouped=statement.grouped,
            priority=statement.priority,
        )

    def _check(self, now: Snapshot, added: Definition) -> None:
        _check_uses(now, added)
        if not added.user or added.key in now.notes:
            return
        owned = sum(_decoded(text, key).user == added.user for key, text in now.notes.items())
        if owned >= self._most_of_user:
            raise ConfigurationError(
                f"{added.user!r} owns {owned} definitions, the most that are allowed: drop some of them"
            )

    def _publish(self, decide: Callable[[Snapshot], Change | None]) -> Snapshot:
        return self._log.publish(decide, now_us=self._clock() * 1_000)


def key_of(kind: Kind, name: str) -> str:
    """Return the key of a definition. Names differ in more than upper and lower case."""
    return f"{kind}:{name.lower()}"


def period_text(period_us: int) -> str:
    """Return a period as schedules read it."""
    seconds, rest = divmod(period_us, 1_000_000)
    return f"{seconds}s" if not rest and seconds < 10**9 else f"PT{seconds}.{rest:06d}S"


@lru_cache(maxsize=4_096)
def _parsed(text: str) -> Statement:
    (statement,) = parse(text)
    return statement


def _users(now: Snapshot, key: str) -> list[Definition]:
    definitions = (_decoded(now.notes[other], other) for other in sorted(now.notes))
    return [definition for definition in definitions if key in definition.uses]


def _refuse_users(now: Snapshot, definition: Definition) -> None:
    users = _users(now, definition.key)
    if users:
        names = ", ".join(f"{user.kind} {user.name}" for user in users[:10])
        more = f" and {len(users) - 10} more" if len(users) > 10 else ""
        raise ConfigurationError(f"{definition.kind} {definition.name!r} is in use: drop {names}{more} first")


def _check_uses(now: Snapshot, definition: Definition) -> None:
    for key in definition.uses:
        kind, _, name = key.partition(":")
        used = _decoded(now.notes[key], key) if key in now.notes else None
        if used is None or used.state in (State.CREATING, State.DROPPING):
            state = "does not exist" if used is None else f"is not ready ({used.state})"
            raise ConfigurationError(f"{definition.kind} {definition.name!r} uses {kind} {name!r}, which {state}")


def _of(snapshot: Snapshot, kind: Kind, name: str) -> Definition:
    key = key_of(kind, name)
    if key not in snapshot.notes:
        names = [other.partition(":")[2] for other in sorted(snapshot.notes) if other.startswith(f"{kind}:")]
        raise ConfigurationError(f"there is no {kind} {name!r}; there are {', '.join(names[:20]) or 'none'}")
    return _decoded(snapshot.notes[key], key)


def _taken(definition: Definition) -> str:
    if definition.state in (State.CREATING, State.DROPPING):
        return f"{definition.kind} {definition.name!r} is {definition.state}: wait; if its process was killed, drop it first"
    return f"{definition.kind} {definition.name!r} exists: drop it first, or write IF NOT EXISTS"


def _encoded(definition: Definition) -> str:
    return json.dumps({"v": _FORMAT, **asdict(definition)})


def _decoded(text: str, key: str) -> Definition:
    try:
        fields = json.loads(text)
        if fields.pop("v") != _FORMAT:
            raise ValueError("another format")
        fields |= {"kind": Kind(fields["kind"]), "state": State(fields["state"]), "uses": tuple(fields["uses"])}
        return Definition(**fields)
    except (ValueError, KeyError, TypeError) as error:
        raise DependencyError(f"the definition {key!r} is damaged: {error}; restore it", retryable=False) from error

"""Definitions of feeds: source, dataset, mode and state, kept durably beside the datasets."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from quaestor.channels.datasets import Mode
from quaestor.channels.names import NAME
from quaestor.clock import Clock, system_clock
from quaestor.errors import ConfigurationError, DependencyError
from quaestor.tables.changes import Change, Snapshot
from quaestor.tables.log import Table
from quaestor.tables.storage import LogStorage

SOURCES: Final[Mapping[str, tuple[frozenset[str], frozenset[str]]]] = {
    "http": (frozenset(), frozenset()),
    "tcp": (frozenset({"address"}), frozenset()),
    "files": (frozenset({"path"}), frozenset()),
    "redis": (frozenset({"stream"}), frozenset({"url", "from"})),
    "kafka": (frozenset({"url", "topic"}), frozenset({"from"})),
    "mongodb": (frozenset({"database", "collection"}), frozenset({"url", "from"})),
    "channel": (frozenset({"url", "subscription"}), frozenset()),
}
"""Needed and further fields of a source, by its type. A channel of another instance may also post to a source of type http."""
_OF_USERS: Final = frozenset({"http", "channel"})
"""Sources that a user may name: the others listen on this machine, or reach its files and the servers around it."""
_HIDDEN: Final = frozenset({"subscription"})
"""Fields that admit to a source."""
_WAYS: Final = frozenset({"url", "address", "from"})
"""Fields that do not decide which records a source has."""
_FORMAT: Final = 1
_SECRET: Final = re.compile(r"//[^/@]*@")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedDefinition:
    """Feed.

    source: `type` and the fields of the source, of WITH.
    dataset: empty: not connected yet.
    function: name of the enriching function; empty: none.
    owner: user that created the feed.
    is_started: whether records are taken.
    identity: of this feed among all that have had its name, increasing; empty: the feed is older than identities.
    """

    name: str
    source: Mapping[str, Any] = field(default_factory=dict)
    dataset: str = ""
    mode: Mode = Mode.INSERT
    function: str = ""
    owner: str = ""
    is_started: bool = False
    identity: str = ""

    @property
    def place(self) -> str:
        """Name of the feed's positions. A feed of the same name that is created later has others."""
        return f"{self.name}.{self.identity}" if self.identity else self.name

    def described(self) -> dict[str, Any]:
        """Return the feed as plain data. Secrets are left out: users and passwords in URLs, and ids of subscriptions."""
        source = {name: _SECRET.sub("//", value) for name, value in self.source.items() if name not in _HIDDEN}
        state = "started" if self.is_started else "stopped"
        fields = asdict(self)
        del fields["identity"]
        return {**fields, "mode": self.mode.value, "source": source, "type": source.get("type"), "state": state}


class Feeds:
    """Feeds of one place. Several processes may change them. Every change is durable when its method returns.

    Methods raise ConfigurationError for a wrong name or value, DependencyError if the storage fails.
    """

    def __init__(self, storage: LogStorage, *, clock: Clock = system_clock) -> None:
        self._log = Table(storage.below("_feeds"))
        self._clock = clock

    def all(self) -> list[FeedDefinition]:
        """Return all feeds, by name."""
        notes = self._log.snapshot().notes
        return [_decoded(notes[name], name) for name in sorted(notes)]

    def get(self, name: str) -> FeedDefinition:
        """Return a feed."""
        return _of(self._log.snapshot(), name)

    def create(
        self, name: str, options: Mapping[str, Any], *, owner: str = "", replaces: bool = False
    ) -> FeedDefinition:
        """Create a feed that is not connected yet.

        options: of WITH: `type`, and the fields of the source.
        replaces: whether a stopped feed may be there already. The new feed takes its place and dataset, and its position too
            if the source differs in nothing but `url`, `address` and `from`.
        """
        if not NAME.fullmatch(name):
            raise ConfigurationError(f"{name!r} cannot name a feed: use letters, digits and _, at most 63")
        identity = f"{self._clock() * 1_000:016x}{uuid.uuid4().hex[:8]}"
        feed = FeedDefinition(name=name, source=_checked(name, options), owner=owner, identity=identity)
        if owner and feed.source["type"] not in _OF_USERS:
            kind = feed.source["type"]
            raise ConfigurationError(
                f"the source of feed {name!r} is of type {kind!r}, which only the operator may use"
            )

        def decide(now: Snapshot) -> Change:
            if name not in now.notes:
                return Change(notes={name: _encoded(feed)})
            before = _decoded(now.notes[name], name)
            if not replaces or before.is_started:
                raise ConfigurationError(f"the feed {name!r} exists: stop and drop it first")
            kept = before.identity if _records_of(before.source) == _records_of(feed.source) else identity
            return Change(notes={name: _encoded(replace(before, source=feed.source, owner=owner, identity=kept))})

        return _of(self._publish(decide), name)

    def connect(
        self, name: str, dataset: str, *, mode: str | None = None, function: str | None = None
    ) -> FeedDefinition:
        """Connect a stopped feed to a dataset.

        mode: insert, upsert or merge; None: insert.
        function: name of the enriching function; None: none.
        """
        modes = {known.value: known for known in Mode}
        if mode is not None and mode not in modes:
            raise ConfigurationError(f"{mode!r} is no mode of a feed: write {', '.join(modes)}")
        wanted = Mode.INSERT if mode is None else modes[mode]

        def change(feed: FeedDefinition) -> FeedDefinition:
            if feed.is_started:
                raise ConfigurationError(f"the feed {name!r} runs: stop it before you connect it")
            return replace(feed, dataset=dataset, mode=wanted, function=function or "")

        return self._changed(name, change)

    def start(self, name: str) -> FeedDefinition:
        """Let a connected feed take records, also after a restart of the process."""

        def change(feed: FeedDefinition) -> FeedDefinition:
            if not feed.dataset:
                raise ConfigurationError(f"the feed {name!r} has no dataset: CONNECT FEED {name} TO DATASET ...")
            return replace(feed, is_started=True)

        return self._changed(name, change)

    def stop(self, name: str) -> FeedDefinition:
        """Let a feed take no more records. Taken records are still written."""
        return self._changed(name, lambda feed: replace(feed, is_started=False))

    def drop(self, name: str) -> None:
        """Drop a stopped feed. Its dataset stays."""
        if self.get(name).is_started:
            raise ConfigurationError(f"the feed {name!r} runs: stop it before you drop it")
        self._publish(lambda now: Change(notes={name: None}) if name in now.notes else None)

    def _changed(self, name: str, change: Callable[[FeedDefinition], FeedDefinition]) -> FeedDefinition:
        return _of(self._publish(lambda now: Change(notes={name: _encoded(change(_of(now, name)))})), name)

    def _publish(self, decide: Callable[[Snapshot], Change | None]) -> Snapshot:
        return self._log.publish(decide, now_us=self._clock() * 1_000)


def _checked(name: str, source: Mapping[str, Any]) -> dict[str, Any]:
    kind = str(source.get("type"))
    if kind not in SOURCES:
        raise ConfigurationError(f"the source of feed {name!r} is of type {kind!r}: write {', '.join(sorted(SOURCES))}")
    needed, further = SOURCES[kind]
    if missing := sorted(needed - source.keys()):
        raise ConfigurationError(f"the source {kind} of feed {name!r} needs {missing[0]!r}")
    if unknown := sorted(source.keys() - needed - further - {"type"}):
        raise ConfigurationError(f"the source {kind} of feed {name!r} has no {unknown[0]!r}")
    for key, value in source.items():
        if not isinstance(value, str) or not value:
            raise ConfigurationError(f"{key} of feed {name!r} is no text")
    return dict(source)


def _records_of(source: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in source.items() if name not in _WAYS}


def _of(snapshot: Snapshot, name: str) -> FeedDefinition:
    if name not in snapshot.notes:
        raise ConfigurationError(f"no feed {name!r}: there are {', '.join(sorted(snapshot.notes)) or 'none'}")
    return _decoded(snapshot.notes[name], name)


def _encoded(feed: FeedDefinition) -> str:
    return json.dumps({"v": _FORMAT, **asdict(feed)})


def _decoded(text: str, name: str) -> FeedDefinition:
    try:
        fields = json.loads(text)
        if fields.pop("v") != _FORMAT:
            raise ValueError("another format")
        return FeedDefinition(**{**fields, "mode": Mode(fields["mode"])})
    except (ValueError, KeyError, TypeError) as error:
        raise DependencyError(f"the feed {name!r} is damaged: {error}; create it again", retryable=False) from error

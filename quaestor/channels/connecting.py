"""Connection of a feed to a dataset: the definition names what the feed uses, so that DROP refuses it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from quaestor.channels.answers import Answer
from quaestor.channels.definitions import Definition
from quaestor.channels.parts import StatementParts
from quaestor.channels.statements.model import ConnectFeed, Kind
from quaestor.channels.uses import uses_of
from quaestor.errors import ConfigurationError


def connect(parts: StatementParts, statement: ConnectFeed, feed: Definition) -> Answer:
    """Connect a stopped feed. Raises ConfigurationError for a running feed, and for a missing dataset or function.

    The feed uses both datasets until it is connected: a process that ends in between frees neither.
    """

    def use(keys: Iterable[str]) -> None:
        uses = tuple(sorted(set(keys) - {feed.key}))
        parts.definitions.change(Kind.FEED, feed.name, lambda present: replace(present, uses=uses))

    wanted = uses_of(statement, parts.definitions)
    use((*feed.uses, *wanted))
    try:
        parts.feeds.connect(
            statement.feed,
            statement.dataset,
            mode=None if statement.mode is None else statement.mode.value,
            function=statement.function,
        )
    except ConfigurationError:
        use(feed.uses)
        raise
    use(wanted)
    return Answer(f"connected feed {statement.feed} to dataset {statement.dataset}")

"""One request of a sender: its targets, and the purges in the outbox that it serves. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from quaestor.cdn_adapters.capabilities import Capabilities
from quaestor.cdn_adapters.place import Target
from quaestor.cdn_adapters.purge_members import target_of
from quaestor.cdn_adapters.requests import requests_of
from quaestor.purge_ports import QueuedPurge


class PurgeRequest(NamedTuple):
    """A request.

    targets: of one kind, each once.
    held: the purges that the request serves, taken from the outbox.
    """

    targets: tuple[Target, ...]
    held: tuple[QueuedPurge, ...]

    def halves(self) -> tuple[PurgeRequest, PurgeRequest]:
        """Return two requests, each with half of the targets."""
        middle = len(self.targets) // 2
        first = set(self.targets[:middle])
        return (
            PurgeRequest(
                self.targets[:middle], tuple(purge for purge in self.held if target_of(purge.member) in first)
            ),
            PurgeRequest(
                self.targets[middle:], tuple(purge for purge in self.held if target_of(purge.member) not in first)
            ),
        )


def purge_requests(capabilities: Capabilities, purges: Sequence[QueuedPurge]) -> Iterator[PurgeRequest]:
    """Yield the requests for these purges, each within the capabilities."""
    by_target: dict[Target, list[QueuedPurge]] = {}
    for purge in purges:
        by_target.setdefault(target_of(purge.member), []).append(purge)
    for targets in requests_of(capabilities, list(by_target)):
        yield PurgeRequest(targets, tuple(purge for target in targets for purge in by_target[target]))

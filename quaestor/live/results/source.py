"""Source of results of channels, as the endpoint needs it."""

from __future__ import annotations

from typing import Protocol


class ResultPage(Protocol):
    """Answer with results."""

    @property
    def body(self) -> bytes:
        """JSON."""
        ...

    @property
    def is_final(self) -> bool:
        """Whether the same request always has the same answer, as long as the results are kept."""
        ...

    @property
    def upto(self) -> int:
        """Last run that the page covers."""
        ...


class ResultSource(Protocol):
    """Results of all channels. Methods raise ConfigurationError for an unknown name, DependencyError if a storage fails.

    All methods except `wait` may block.
    """

    def for_broker(self, channel: str, broker: str, after: int, limit: int, upto: int | None) -> ResultPage:
        """Return the results for a broker in the runs after a run, up to another one; None: up to the newest."""
        ...

    def for_subscription(self, channel: str, subscription: str, after: int, limit: int, upto: int | None) -> ResultPage:
        """Return the results for a subscription, as `for_broker` does."""
        ...

    def newest(self, channel: str) -> int:
        """Return the newest run of a channel that has results; 0: there was none."""
        ...

    def is_public(self, broker: str) -> bool:
        """Whether everybody may read the pages of a broker."""
        ...

    def admits(self, broker: str, fields: dict[str, str], content: str) -> bool:
        """Whether a broker has signed this content."""
        ...

    def acknowledge(self, channel: str, broker: str, run: int) -> int:
        """Acknowledge a run; return the highest run up to which everything is acknowledged."""
        ...

    async def wait(self, channel: str, after: int, within_s: float) -> bool:
        """Wait for a run after a run; return whether there is one within the time."""
        ...

"""Registries that statements work on: brokers and feeds, and the queries of analysts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Entry(Protocol):
    """Entry of a registry."""

    @property
    def name(self) -> str:
        """Name of the entry."""

    def described(self) -> dict[str, Any]:
        """Return the entry as plain data, without secrets."""


class BrokerEntry(Entry, Protocol):
    """Registered broker."""

    @property
    def key(self) -> str:
        """Key that signs its requests, and those to it."""

    @property
    def accepts_subscriptions(self) -> bool:
        """Whether new subscriptions may name this broker."""

    @property
    def is_down(self) -> bool:
        """Whether it is known to answer no requests."""


class BrokerRegistry(Protocol):
    """Registered brokers. Methods raise ConfigurationError and DependencyError."""

    def register(
        self,
        name: str,
        url: str,
        *,
        options: Mapping[str, Any] | None = None,
        owner: str = "",
        replaces: bool = False,
    ) -> BrokerEntry:
        """Register a broker, or give it another address."""

    def get(self, name: str) -> BrokerEntry:
        """Return a broker."""

    def drain(self, name: str) -> BrokerEntry:
        """Let a broker take no new subscriptions."""

    def resume(self, name: str) -> BrokerEntry:
        """Let a broker take subscriptions again."""

    def drop(self, name: str) -> None:
        """Drop a broker."""


class FeedRegistry(Protocol):
    """Feeds. Methods raise ConfigurationError and DependencyError."""

    def create(self, name: str, options: Mapping[str, Any], *, owner: str = "", replaces: bool = False) -> Entry:
        """Create a feed."""

    def connect(self, name: str, dataset: str, *, mode: str | None = None, function: str | None = None) -> Entry:
        """Connect a feed to a dataset."""

    def get(self, name: str) -> Entry:
        """Return a feed."""

    def start(self, name: str) -> Entry:
        """Start a feed."""

    def stop(self, name: str) -> Entry:
        """Stop a feed, when it has drained."""

    def drop(self, name: str) -> None:
        """Drop a feed."""


class Analyst(Protocol):
    """Ad hoc queries over datasets."""

    def rows(self, text: str) -> Any:
        """Return the rows of a query as an Arrow table. Raises QueryRefusedError, DependencyError."""

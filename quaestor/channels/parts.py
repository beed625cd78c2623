"""Parts that statements work on, and what several of them need: the shapes of datasets, and compiled channels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from quaestor.channels.datasets import Dataset, dataset_names
from quaestor.channels.definitions import Definition, Definitions, State
from quaestor.channels.procedures import Procedures
from quaestor.channels.quotas import SubscriptionCounts
from quaestor.channels.registries import Analyst, BrokerRegistry, FeedRegistry
from quaestor.channels.rewriting.compilation import CompiledChannel, compile_channel
from quaestor.channels.rewriting.definition import Shape
from quaestor.channels.statements.model import Kind
from quaestor.errors import ConfigurationError
from quaestor.tables.catalogue import Catalogue


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementParts:
    """Parts of an interpreter.

    python_modules: modules whose functions a statement may name; others are refused.
    """

    catalogue: Catalogue
    definitions: Definitions
    brokers: BrokerRegistry
    feeds: FeedRegistry
    analyst: Analyst
    counts: SubscriptionCounts
    procedures: Procedures
    python_modules: tuple[str, ...] = ()

    def shapes(self) -> Mapping[str, Shape]:
        """Return the shapes of all datasets, by name. Raises DependencyError."""
        opened = ((name, Dataset.open(self.catalogue, name)) for name in dataset_names(self.catalogue))
        return {name: Shape(dataset.schema, dataset.active) for name, dataset in opened}

    def compiled(self, definition: Definition) -> CompiledChannel:
        """Return a channel, compiled. Raises QueryRefusedError, ConfigurationError, DependencyError."""
        return compile_channel(self.definitions.channel(definition), self.shapes())

    def open_broker(self, name: str) -> str:
        """Return the name of a broker that takes new subscriptions, as it was created. Raises ConfigurationError."""
        present = self.definitions.get(Kind.BROKER, name).name
        if not self.brokers.get(present).accepts_subscriptions:
            raise ConfigurationError(f"broker {present!r} takes no new subscriptions: name another one")
        return present

    def is_dropped(self, broker: str) -> bool:
        """Whether a broker was dropped, maybe while it was given subscriptions that its drop has not seen."""
        present = self.definitions.find(Kind.BROKER, broker)
        return present is None or present.state is State.DROPPING

"""Functions of an application as sinks: `@quaestor.continuous("SELECT ...", every="1m")` on an async function."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from sqlglot import parse
from sqlglot.errors import SqlglotError

from quaestor.continuous.delivery.addresses import sink_of
from quaestor.continuous.delivery.batch import ResultBatch
from quaestor.continuous.delivery.sink import DeliveryError, Sink
from quaestor.continuous.installed import NAME, InstalledQueries, InstalledQuery
from quaestor.errors import ConfigurationError
from quaestor.settings.continuous import ContinuousSettings

Receiver = Callable[[ResultBatch], Awaitable[object]]
PREFIX: Final = "function:"
TIMEOUT_S: Final = 600.0
"""Longest time for a function with one batch."""


def reachable_sink(address: str, settings: ContinuousSettings) -> Sink | None:
    """Return the sink of an address; None: a function, which only its application can call. Raises ConfigurationError."""
    return None if address.startswith(PREFIX) else sink_of(address, settings)


class FunctionSink:
    """Async function. Implements Sink. The function confirms a batch by returning; an exception is a failure that may pass.

    timeout_s: longest time of a call; then it is cancelled, and the delivery has failed.
    """

    kind = "function"

    def __init__(self, name: str, function: Receiver, *, timeout_s: float = TIMEOUT_S) -> None:
        self.name = f"{PREFIX}{name}"
        self._function = function
        self._timeout_s = timeout_s

    async def deliver(self, batch: ResultBatch) -> None:
        """See Sink."""
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                await self._function(batch)
        except Exception as error:  # an application's code may raise anything
            if limit.expired():
                raise DeliveryError(
                    f"{self.name} did not return within {self._timeout_s:g} s", reason="timeout"
                ) from error
            raise DeliveryError(f"{self.name} raised {error!r}", reason="function") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredQuery:
    """Query that an application declares, with the function that receives its results."""

    query: InstalledQuery
    function: Receiver


class DeclaredQueries:
    """Queries that an application declares, by name."""

    def __init__(self) -> None:
        self._declared: dict[str, DeclaredQuery] = {}

    def __bool__(self) -> bool:
        return bool(self._declared)

    def add(self, text: str, *, every: str, name: str, at_most: str, function: Receiver) -> None:
        """Declare a query. Raises ConfigurationError for a bad or repeated name."""
        if not NAME.fullmatch(name) or name in self._declared:
            raise ConfigurationError(f"{name!r} cannot name a continuous query here: give another name=")
        query = InstalledQuery(name=name, text=text, every=every, at_most=at_most, sinks=(f"{PREFIX}{name}",))
        self._declared[name] = DeclaredQuery(query=query, function=function)

    def sink_of(self, address: str) -> FunctionSink | None:
        """Return the sink of an address; None: this process does not declare the function."""
        declared = self._declared.get(address.removeprefix(PREFIX))
        return None if declared is None else FunctionSink(declared.query.name, declared.function)

    def install(self, installed: InstalledQueries, *, now: int) -> None:
        """Install the declared queries, from now on. A declared text or period that differs replaces the installed one.

        A new text begins where the runs of the old text ended, so the time without a process is lost for neither.

        Raises ConfigurationError, DependencyError.
        """
        known = {query.name: query for query in installed.all()}
        for name, declared in self._declared.items():
            wanted = replace(declared.query, start=now)
            present = known.get(name)
            if present is None:
                installed.install(wanted)
                continue
            if _normal(present.text) != _normal(wanted.text):
                installed.change_text(name, wanted.text, start=min(now, installed.progress(present)))
            if (present.every, present.at_most, present.sinks) != (wanted.every, wanted.at_most, wanted.sinks):
                installed.change(name, partial(_with_schedule_of, wanted))


def _normal(text: str) -> str:
    """Return a text without comments, and with one form of its spaces and keywords."""
    try:
        return ";".join(tree.sql("duckdb", comments=False) for tree in parse(text, read="duckdb") if tree is not None)
    except SqlglotError:
        return text  # the run reports the fault


def _with_schedule_of(wanted: InstalledQuery, query: InstalledQuery) -> InstalledQuery:
    return replace(query, every=wanted.every, at_most=wanted.at_most, sinks=wanted.sinks)

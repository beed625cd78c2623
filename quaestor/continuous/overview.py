"""Overview of the installed queries for operators: next runs, results, lag, dead letters, the three texts; and replay."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any

from quaestor.continuous.administration import Administration
from quaestor.continuous.delivery.batch import moment
from quaestor.continuous.delivery.courier import Courier
from quaestor.continuous.delivery.dead_letters import DeadLetters
from quaestor.continuous.delivery.sink import shown
from quaestor.continuous.functions import reachable_sink
from quaestor.continuous.installed import InstalledQuery
from quaestor.continuous.schedule.periods import period
from quaestor.errors import QuaestorError
from quaestor.observability.telemetry import Telemetry


def overview(administration: Administration, *, now: int) -> list[dict[str, Any]]:
    """Return all installed queries, by name. Raises DependencyError.

    now: instant.

    `next` is the next run as the period has it: an instant, or None for a query that does not run. Load may stretch periods.
    `late_s` is the time since a run that is due, in seconds.
    """
    letters = _letters(administration).counts()
    return [
        {**_described(administration, query, now), "dead_letters": letters[query.name]}
        for query in administration.installed.all()
    ]


def texts(administration: Administration, name: str) -> dict[str, str]:
    """Return the three texts of a query and its meaning over time. Raises ConfigurationError, QueryError, DependencyError."""
    return explained(administration, administration.installed.get(name).text)


def explained(administration: Administration, text: str) -> dict[str, str]:
    """Return the three forms of a text and its meaning over time. Raises QueryError, DependencyError."""
    compiled = administration.engine.prepare(text).compiled
    return {
        "meaning": compiled.explanation,
        "standard": compiled.standard.sql("duckdb", pretty=True),
        "monotone": compiled.monotone.sql("duckdb", pretty=True),
        "incremental": compiled.incremental.sql("duckdb", pretty=True),
    }


def dead_letters(administration: Administration, name: str, *, limit: int = 100) -> list[dict[str, Any]]:
    """Return the oldest dead letters of a query. Raises ConfigurationError, DependencyError."""
    administration.installed.get(name)
    letters = islice(_letters(administration).list(name), limit)
    return [
        {
            "key": letter.batch.key,
            "rows": len(letter.batch.rows),
            "sink": shown(letter.sink),
            "reason": letter.reason,
            "error": letter.error,
            "attempts": letter.attempts,
        }
        for letter in letters
    ]


def replay(administration: Administration, name: str, telemetry: Telemetry) -> dict[str, int]:
    """Send the dead letters of a query again, each once. Blocks. Raises ConfigurationError, DependencyError.

    `asked` counts the letters for functions: the application that declares them sends them.
    """
    administration.installed.get(name)
    settings = administration.settings
    courier = Courier(_letters(administration), telemetry, attempts=settings.delivery_attempts)
    done = asyncio.run(courier.replay(lambda address: reachable_sink(address, settings), name))
    return {"delivered": done.delivered, "failed": done.failed, "asked": done.asked}


def _described(administration: Administration, query: InstalledQuery, now: int) -> dict[str, Any]:
    try:
        snapshot = administration.catalogue.open(query.results).snapshot()
        progress = snapshot.progress.get(query.name)
        rows = sum(file.rows for file in snapshot.files.values())
    except QuaestorError:
        progress, rows = None, 0  # dropped meanwhile
    last = query.start if progress is None else progress
    due = (period(query.every).next(last) if last > 0 else now) if query.runs else None
    return {
        "name": query.name,
        "text": query.text,
        "state": query.state.value,
        "reason": query.reason,
        "every": query.every,
        "sinks": [shown(sink) for sink in query.sinks],
        "progress": None if progress is None else moment(progress),
        "next": None if due is None else moment(max(due, now)),
        "late_s": 0.0 if due is None else max(0, now - due) / 1_000_000,
        "rows": rows,
    }


def _letters(administration: Administration) -> DeadLetters:
    return DeadLetters(administration.catalogue.root)

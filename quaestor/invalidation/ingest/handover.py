"""Handover from earlier generations of the grid: the part of ingest.

When a grid gets new partitions, ingest of the new generation begins where the earlier generations' cells stopped. Ingest then
has their registrations taken over. The grid implements the handover, in its package `resizing`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from quaestor.model import Version

NOT_KNOWN: Version = 0
"""Placeholder for an unknown version."""


class Followed(NamedTuple):
    """Database that ingest of the earlier generations followed.

    database, election: see ResumePosition; None: not known.
    unbroken: the generations agree, and every gap that they reported had reached all of their cells by `as_of`.
    """

    database: str | None
    election: str | None
    unbroken: bool


class Handover(Protocol):
    """Steps of a handover for ingest. Ingest may die in between, so each step may be repeated. Raises EventLayerError."""

    @property
    def done(self) -> bool:
        """Whether nothing is left to take over."""

    @property
    def as_of(self) -> Version:
        """Version up to which the earlier generations have dealt with every write; NOT_KNOWN if there is none."""

    def begin(self) -> bool:
        """Decide `as_of`; True if it is decided or unnecessary. False until all cells of this generation run: try again."""

    def followed(self) -> Followed:
        """Return the database followed so far. Call before a probe of the primary, so that a change in between shows."""

    def complete(self) -> None:
        """Take over the registrations of the earlier generations."""

    def lost(self) -> None:
        """Begin anew: the event layer has lost its data."""

    def tidy(self) -> None:
        """Empty the earlier generations' pipelines once no process needs them. Call repeatedly."""


class FirstGeneration:
    """Handover of a first generation, without predecessors."""

    done = True
    as_of: Version = NOT_KNOWN

    def begin(self) -> bool:
        """Return True: there is nothing to do."""
        return True

    def followed(self) -> Followed:
        """Return an unknown database."""
        return Followed(database=None, election=None, unbroken=True)

    def complete(self) -> None:
        """Do nothing."""

    def lost(self) -> None:
        """Do nothing."""

    def tidy(self) -> None:
        """Do nothing."""

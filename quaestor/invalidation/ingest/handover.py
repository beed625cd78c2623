"""Handover from earlier generations of the grid, as far as ingest has a part in it.

When a grid is partitioned anew, ingest of the new generation begins where the cells of the earlier ones have got to, and sees
to it that what they guard is taken over. How that is done is the grid's business (its package `resizing`).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from quaestor.model import Version

NOT_KNOWN: Version = 0
"""A version that nobody knows."""


class Followed(NamedTuple):
    """The database that ingest of the earlier generations was following.

    database, election: see ResumePosition; None: not known.
    unbroken: they agree, and whatever gap they told of had reached all of their cells by `as_of`.
    """

    database: str | None
    election: str | None
    unbroken: bool


class Handover(Protocol):
    """The steps of a handover, for ingest, which may die in between: each may be repeated. Raises EventLayerError."""

    @property
    def done(self) -> bool:
        """Whether nothing is left to take over."""

    @property
    def as_of(self) -> Version:
        """The version up to which the earlier generations have dealt with every write; NOT_KNOWN."""

    def begin(self) -> bool:
        """Whether `as_of` is decided, or nothing has to be done. Until all cells of this generation run: False, ask again."""

    def followed(self) -> Followed:
        """The database followed so far. Ask before the primary is asked who it is: what happens in between is then seen."""

    def complete(self) -> None:
        """Take over what the earlier generations guard."""

    def lost(self) -> None:
        """Begin anew: the event layer has lost its data."""

    def tidy(self) -> None:
        """Empty the earlier generations' pipelines once nobody needs them. Called again and again."""


class FirstGeneration:
    """A handover from nobody."""

    done = True
    as_of: Version = NOT_KNOWN

    def begin(self) -> bool:
        """True: nothing has to be done."""
        return True

    def followed(self) -> Followed:
        """Nothing is known."""
        return Followed(database=None, election=None, unbroken=True)

    def complete(self) -> None:
        """Do nothing."""

    def lost(self) -> None:
        """Do nothing."""

    def tidy(self) -> None:
        """Do nothing."""

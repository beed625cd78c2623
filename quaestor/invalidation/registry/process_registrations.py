"""Registrations of one app process, with the state that the parts of its registry share."""

from __future__ import annotations

from dataclasses import dataclass

from quaestor.invalidation.registry.grid_view import GridView
from quaestor.invalidation.registry.held_registrations import HeldRegistrations
from quaestor.invalidation.registry.query_sender import QuerySender
from quaestor.invalidation.registry.recheck_rule import RecheckRule
from quaestor.invalidation.registry.shared_registrations import SharedRegistrations
from quaestor.invalidation.registry.validity import Validity
from quaestor.ports import EventLayer
from quaestor.runtime.supervision.process_context import ProcessContext


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRegistrations:
    """Registrations of one app process.

    origin: first part of the ids of all of them.
    validity: dead registrations, and the freshness of the grid.
    shared: live registrations, and the queries and leases of each.
    held: registrations whose queries run again before their entries are evicted.
    rule: decides which queries run again.
    view: the grid, as its heartbeats show it.
    sender: sends registrations and cancellations to the grid.
    """

    origin: str
    validity: Validity
    shared: SharedRegistrations
    held: HeldRegistrations
    rule: RecheckRule
    view: GridView
    sender: QuerySender


def process_registrations(layer: EventLayer, process: ProcessContext, *, origin: str) -> ProcessRegistrations:
    """Return the registrations of a process that has none yet."""
    grid = process.settings.grid
    validity = Validity()
    held = HeldRegistrations(validity, origin=origin, limit_ms=2 * grid.recheck_ms, clock=process.clock)
    shared = SharedRegistrations(validity.dead)
    shared.held = held.names
    return ProcessRegistrations(
        origin=origin, validity=validity, shared=shared, held=held, rule=RecheckRule(grid.recheck), view=GridView(),
        sender=QuerySender(layer, process.telemetry),
    )  # fmt: skip

"""Authorization of query events: the apps of every tenant write to a query pipeline, so an entry may claim anything.

An id names its tenant, which must be the sender's. No tenant can then register in another's name, on another's account, or
cancel another's registrations. Names become names of pipelines, so only names that settings allow pass. A lease keeps an
entry in the shared pipeline, so its length is bounded. (A client that can write to the event layer can still lie about its
tenant. Tenants that do not trust each other need separate deployments and Redis users.)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, TypeVar, cast

from quaestor.errors import EventLayerError
from quaestor.event_layer.tenancy import tenant_of
from quaestor.model import Cancellation, Registration, Usage
from quaestor.settings import is_tenant

LONGEST_LEASE_MS: Final = 366 * 86_400_000
_LONGEST_ID: Final = 256

Event = TypeVar("Event", bound=Registration | Cancellation | Usage)


def authorized(event: Event, deployment: str) -> Event:
    """Return the part of an event that its tenant may send. Raises EventLayerError if nothing is left. O(ids)."""
    if isinstance(event, Usage):
        return event
    if not _is_name(event.tenant) or not (event.tenant == deployment or is_tenant(event.tenant)):
        raise EventLayerError(f"there is no tenant {event.tenant!r:.100}", retryable=False)
    ids = [event.id] if isinstance(event, Registration) else event.registration_ids
    own = tuple(name for name in ids if _is_name(name) and tenant_of(name, deployment) == event.tenant)
    if not own:
        raise EventLayerError(f"ids like {ids[0]!r:.100} do not belong to tenant {event.tenant!r}", retryable=False)
    if not _is_name(event.query_id):
        raise EventLayerError(f"{event.query_id!r:.100} is no query id", retryable=False)
    return cast(Event, replace(event, registration_ids=own)) if isinstance(event, Cancellation) else event


def lease_ms(expires_at_ms: int, *, since_ms: int) -> int:
    """Return the end of a lease requested at `since_ms` (ms since the epoch); 0 if it exceeds the longest lease."""
    return expires_at_ms if expires_at_ms <= since_ms + LONGEST_LEASE_MS else 0


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_ID

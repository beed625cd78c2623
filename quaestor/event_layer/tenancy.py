"""Tenant of a registration, from its id alone.

An id begins with the origin, and the origin with `<tenant>~` for every tenant except the one named like the deployment.
Every part that routes notifications uses exactly these functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_SEPARATOR: Final = "~"


def origin_of(tenant: str, deployment: str, process: str) -> str:
    """Return the beginning of all ids that this process of a tenant makes."""
    return process if tenant == deployment else f"{tenant}{_SEPARATOR}{process}"


def tenant_of(registration_id: str, deployment: str) -> str:
    """Return the tenant of the registration with this id. O(length of the id)."""
    tenant, separator, _ = registration_id.partition(_SEPARATOR)
    return tenant if separator else deployment


def by_tenant(registration_ids: Iterable[str], deployment: str) -> dict[str, list[str]]:
    """Return the registrations by tenant, in their order."""
    ids_by_tenant: dict[str, list[str]] = {}
    for registration_id in registration_ids:
        ids_by_tenant.setdefault(tenant_of(registration_id, deployment), []).append(registration_id)
    return ids_by_tenant

"""The tenant of a registration, from its id alone: it begins with the origin, and this with `<tenant>~` for every tenant but
the one that is named like the deployment. Everybody who routes notifications uses these functions, and only these."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_SEPARATOR: Final = "~"


def origin_of(tenant: str, deployment: str, process: str) -> str:
    """The beginning of all ids that this process of a tenant gives."""
    return process if tenant == deployment else f"{tenant}{_SEPARATOR}{process}"


def tenant_of(registration_id: str, deployment: str) -> str:
    """The tenant of the registration with this id. O(length of the id)."""
    tenant, separator, _ = registration_id.partition(_SEPARATOR)
    return tenant if separator else deployment


def by_tenant(registration_ids: Iterable[str], deployment: str) -> dict[str, list[str]]:
    """Registrations by tenant, in the order in which they come."""
    found: dict[str, list[str]] = {}
    for registration_id in registration_ids:
        found.setdefault(tenant_of(registration_id, deployment), []).append(registration_id)
    return found

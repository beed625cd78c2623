"""Rights of one principal under the rules of collections and of single records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import bson

from quaestor.model import Document
from quaestor.rest.access import Access, Action, Principal
from quaestor.rest.problems import Problem, not_found
from quaestor.rest.record_acl import Kind, condition, permits, well_formed


class Rights:
    """Rights of one principal."""

    def __init__(self, access: Access, principal: Principal) -> None:
        self._access = access
        self._principal = principal

    @property
    def audience(self) -> tuple[str, ...]:
        """Name of the audience, equal for principals under the same rules."""
        return ("superuser",) if self._principal.superuser else self._principal.names

    def may(self, collection: str, action: Action) -> bool:
        """Whether the principal may perform this action in this collection."""
        return self._access.permits(collection, action, self._principal)

    def may_change_rules(self, collection: str) -> bool:
        """Whether the principal may change the rules of records that it may update; always if records have none."""
        return self._access.record_acl is None or self.may(collection, Action.WRITE_ACL)

    def require(self, collection: str, *actions: Action) -> None:
        """Require at least one of these actions.

        Raises Problem: 403 if the principal may read the collection, otherwise 404.
        """
        if not any(self.may(collection, action) for action in actions):
            raise forbidden() if self.may(collection, Action.READ) else not_found()

    def guarded(self, filter_: Document, kind: Kind) -> Document:
        """Return the filter, joined with the records' own rules."""
        field = self._access.record_acl
        rules = {} if field is None else condition(field, kind, self._principal)
        if not rules:
            return filter_
        return {"$and": [filter_, rules]} if "$and" in filter_ else {**filter_, **rules}

    @property
    def judged(self) -> bool:
        """Whether the principal is subject to the rules of single records."""
        return self._access.record_acl is not None and not self._principal.superuser

    def malformed(self, filter_: Document) -> Document | None:
        """Return a filter for records that are hidden because their rules are malformed; None: none can be."""
        field = self._access.record_acl
        return {"$and": [filter_, {"$nor": [well_formed(field)]}]} if field is not None and self.judged else None

    def shows(self, collection: str, record: Mapping[str, Any]) -> bool:
        """Whether the principal may see this record."""
        field = self._access.record_acl
        own = field is None or permits(record.get(field, {}), "read", self._principal)
        return own and self.may(collection, Action.READ)

    def mentions_rules(self, record: Mapping[str, Any]) -> bool:
        """Whether a record, or a patch of one, mentions its rules."""
        return self._access.record_acl is not None and self._access.record_acl in record

    def require_rules_kept(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Raise Problem (403) if the rules of a record have changed."""
        if self._rules(before) != self._rules(after):
            raise self.rules_forbidden()

    def rules_forbidden(self) -> Problem:
        """Return the problem (403) of a change of a record's rules."""
        field = self._access.record_acl
        detail = f"Changing the rules in {field} needs the right write_acl."
        return Problem(403, "forbidden", detail, pointer=f"/{field}")

    def _rules(self, record: Mapping[str, Any]) -> bytes:
        """Return the encoded rules: equal values of different types are different rules."""
        field = self._access.record_acl
        return bson.encode({field: record[field]}) if field is not None and field in record else b""


def forbidden() -> Problem:
    """Return the problem (403) of a forbidden action."""
    return Problem(403, "forbidden", "You may not do this.")

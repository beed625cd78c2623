"""Access rules of collections: deny by default, deny before allow, superusers pass.

After Orestes: rules by operation for users and roles, on collections here and on single records in `record_acl`. Unlike in
Orestes an empty `allow` list permits nobody: removing the last name from a list must not make it public.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from quaestor.errors import ConfigurationError

EVERYBODY: Final = "*"
"""In a list: every principal, signed in or not."""
SIGNED_IN: Final = "user:*"
"""In a list: every principal that is signed in."""


class Action(StrEnum):
    """Action on records that a rule covers. WRITE_ACL: changing the rules in the record itself."""

    READ = "read"
    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    WRITE_ACL = "write_acl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Principal of a request.

    user: None for an anonymous principal.
    roles: names without a prefix.
    superuser: no rule applies.
    """

    user: str | None = None
    roles: frozenset[str] = frozenset()
    superuser: bool = False

    def __post_init__(self) -> None:
        if self.user is not None and (not self.user or self.user == "*"):
            raise ConfigurationError(f"{self.user!r} cannot be the name of a user")

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names that stand for this principal in a list: `*`, `user:*`, `user:<name>`, `role:<name>`; sorted."""
        names = {EVERYBODY, *(f"role:{role}" for role in self.roles)}
        if self.user is not None:
            names |= {SIGNED_IN, f"user:{self.user}"}
        return tuple(sorted(names))


ANONYMOUS: Final = Principal()


@dataclass(frozen=True, slots=True)
class Rule:
    """Rule about one action.

    allow, deny: names as in Principal.names. `deny` overrides `allow`; names in neither list are denied.
    """

    allow: frozenset[str] = frozenset()
    deny: frozenset[str] = frozenset()

    @classmethod
    def of(cls, allow: Iterable[str] = (), deny: Iterable[str] = ()) -> Rule:
        """Return a rule with these names. Raises ConfigurationError for names of another form."""
        rule = cls(frozenset(allow), frozenset(deny))
        for name in sorted(rule.allow | rule.deny):
            if name != EVERYBODY and not (name.startswith(("user:", "role:")) and len(name) > 5):
                raise ConfigurationError(f"{name!r} is not '*', 'user:<name>' or 'role:<name>'")
        return rule

    def permits(self, principal: Principal) -> bool:
        """Whether the rule permits this principal."""
        if principal.superuser:
            return True
        names = principal.names
        return self.deny.isdisjoint(names) and not self.allow.isdisjoint(names)


NOBODY: Final = Rule()
ALL: Final = Rule.of(allow=(EVERYBODY,))


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionAccess:
    """Rules of one collection, one for each operation.

    insert, update: PUT needs `insert` to create a record, and `update` to replace one.
    write_acl: required besides `update` for changing the rules in a record; the creator of a record sets its first rules.
    """

    read: Rule = NOBODY
    insert: Rule = NOBODY
    update: Rule = NOBODY
    delete: Rule = NOBODY
    write_acl: Rule = NOBODY

    def permits(self, action: Action, principal: Principal) -> bool:
        """Whether this principal may perform this action in the collection."""
        rules = {
            Action.READ: self.read,
            Action.INSERT: self.insert,
            Action.UPDATE: self.update,
            Action.DELETE: self.delete,
            Action.WRITE_ACL: self.write_acl,
        }
        return rules[action].permits(principal)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Access rules of a router.

    collections: rules by name.
    otherwise: rules of every other collection; by default they permit nobody.

    record_acl: the field of a record that holds its own rules (see `record_acl`); None: records have none.
    """

    collections: Mapping[str, CollectionAccess] = field(default_factory=dict)
    otherwise: CollectionAccess = CollectionAccess()
    record_acl: str | None = "_acl"

    def __post_init__(self) -> None:
        acl = self.record_acl
        if acl is not None and (not acl or acl == "_id" or acl.startswith("$") or "." in acl or "\0" in acl):
            raise ConfigurationError(
                f"record_acl {acl!r} must be the name of a top-level field other than _id, or None"
            )

    @classmethod
    def public_read(cls, *collections: str, record_acl: str | None = "_acl") -> Access:
        """Return access by which every principal may read these collections (none named: all), and none may write.

        The records' own rules restrict it further.
        """
        rules = CollectionAccess(read=ALL)
        if collections:
            return cls(collections=dict.fromkeys(collections, rules), record_acl=record_acl)
        return cls(otherwise=rules, record_acl=record_acl)

    @classmethod
    def public(cls, *collections: str, record_acl: str | None = "_acl") -> Access:
        """Return access by which every principal may read and write. The records' own rules restrict it, and are fixed."""
        rules = CollectionAccess(read=ALL, insert=ALL, update=ALL, delete=ALL)
        if collections:
            return cls(collections=dict.fromkeys(collections, rules), record_acl=record_acl)
        return cls(otherwise=rules, record_acl=record_acl)

    def permits(self, collection: str, action: Action, principal: Principal) -> bool:
        """Whether this principal may perform this action in this collection."""
        return self.collections.get(collection, self.otherwise).permits(action, principal)


def addressable(collection: str) -> bool:
    """Whether this may be the name of a collection that the router exposes."""
    return (
        0 < len(collection) <= 120
        and not collection.startswith((".", "system."))
        and ".system." not in collection
        and not collection.endswith(".")
        and "$" not in collection
        and ".." not in collection
        and "\0" not in collection
        and "/" not in collection
        and collection.isprintable()
    )

"""Rules of a single record, kept in a field of it: `{"read": {"allow": [...], "deny": [...]}, "write": {...}}`.

They are part of the query, so the database applies them before it counts, sorts and limits, and a cached list depends on
exactly the records that its reader may see. Names are those of `access.Principal.names`. Without the field, without `read`, or
without its `allow`, the collection's rule alone decides; an empty `allow` lets nobody in but superusers. What is not written
as it should be lets nobody in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from quaestor.model import Document
from quaestor.rest.access import EVERYBODY, Principal

Kind = Literal["read", "write"]
_KINDS = ("read", "write")
_LISTS = ("allow", "deny")
MAX_NAMES = 10_000
"""Names in one list of a record."""


class BadAclError(ValueError):
    """Not a record's rules; the message says what is wrong with them."""


def condition(field: str, kind: Kind, principal: Principal) -> Document:
    """The filter that a record must pass for this principal; {} for superusers.

    Exactly matchable by the query engine; its size grows with the principal's roles, not with the records' lists.
    """
    if principal.superuser:
        return {}
    names = list(principal.names)
    rule = f"{field}.{kind}"
    allow, deny = f"{rule}.allow", f"{rule}.deny"
    return {
        "$and": [
            {
                "$or": [
                    {field: {"$exists": False}},
                    {field: {"$type": "object"}, rule: {"$exists": False}},
                    {rule: {"$type": "object"}, allow: {"$exists": False}},
                    {allow: {"$in": names}},
                ]
            },
            {"$or": [{deny: {"$exists": False}}, {deny: {"$type": "array", "$nin": names}}]},
        ]
    }


def require_acl(value: Any) -> None:
    """Raise BadAclError for what condition() would read as "nobody" or otherwise than its author meant it."""
    if not isinstance(value, Mapping):
        raise BadAclError("must be an object with `read` and `write`")
    for kind, rule in value.items():
        if kind not in _KINDS:
            raise BadAclError(f"has {kind!r}; it may have `read` and `write`")
        if not isinstance(rule, Mapping):
            raise BadAclError(f"`{kind}` must be an object with `allow` and `deny`")
        for name, members in rule.items():
            if name not in _LISTS:
                raise BadAclError(f"`{kind}` has {name!r}; it may have `allow` and `deny`")
            _require_names(f"`{kind}.{name}`", members)


def _require_names(what: str, members: Any) -> None:
    if not isinstance(members, list) or len(members) > MAX_NAMES:
        raise BadAclError(f"{what} must be an array of at most {MAX_NAMES} names")
    bad = next((member for member in members if not _is_name(member)), None)
    if bad is not None:
        raise BadAclError(f"{what} holds {bad!r}; names are '*', 'user:<name>' and 'role:<name>'")


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and (value == EVERYBODY or (value.startswith(("user:", "role:")) and len(value) > 5))


def permits(acl: Any, kind: Kind, principal: Principal) -> bool:
    """Whether condition() finds a record with this value in the field; absent: pass `{}`."""
    if principal.superuser:
        return True
    if not isinstance(acl, Mapping):
        return False
    rule = acl.get(kind, {})
    if not isinstance(rule, Mapping):
        return False
    names = set(principal.names)
    deny = rule.get("deny", [])
    if not isinstance(deny, list) or not _disjoint(names, deny):
        return False
    return "allow" not in rule or (isinstance(rule["allow"], list) and not _disjoint(names, rule["allow"]))


def _disjoint(names: set[str], members: Iterable[Any]) -> bool:
    return names.isdisjoint(member for member in members if isinstance(member, str))

"""Rules of a single record, kept in a field of it: `{"read": {"allow": [...], "deny": [...]}, "write": {...}}`.

The rules are part of the query, so the database applies them before it counts, sorts and limits. A cached list therefore
depends on exactly the records that its reader may see. Names are those of `access.Principal.names`. Without the field, without
`read`, or without its `allow`, the collection's rule alone decides; an empty `allow` permits only superusers. A malformed field
permits only superusers too: a mistyped `raed` must not open a record that it was meant to close.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from quaestor.model import Document
from quaestor.rest.access import EVERYBODY, Principal

Kind = Literal["read", "write"]
_KINDS = ("read", "write")
_LISTS = ("allow", "deny")
MAX_NAMES = 10_000
"""Most names in one list of a record in a request."""
_NAMES: Final = {"bsonType": "array", "items": {"bsonType": "string", "pattern": r"^(\*(?![\s\S])|(user|role):[\s\S])"}}
_RULE: Final = {"bsonType": "object", "additionalProperties": False, "properties": dict.fromkeys(_LISTS, _NAMES)}
_RULES: Final = {"bsonType": "object", "additionalProperties": False, "properties": dict.fromkeys(_KINDS, _RULE)}


class BadAclError(ValueError):
    """A value that is no record's rules; the message gives the fault."""


def condition(field: str, kind: Kind, principal: Principal) -> Document:
    """Return the filter that a record must pass for this principal; {} for superusers.

    The query engine matches it exactly. Its size grows with the principal's roles, not with the records' lists.
    """
    if principal.superuser:
        return {}
    names = list(principal.names)
    allow, deny = f"{field}.{kind}.allow", f"{field}.{kind}.deny"
    return {
        "$and": [
            {"$or": [{allow: {"$exists": False}}, {allow: {"$in": names}}]},
            {deny: {"$nin": names}},
            well_formed(field),
        ]
    }


def well_formed(field: str) -> Document:
    """Return the filter that a record passes if its rules are absent or well formed."""
    return {"$jsonSchema": {"properties": {field: _RULES}}}


def require_acl(value: Any) -> None:
    """Raise BadAclError for malformed rules, which would permit nobody, and for rules that are too long for a request."""
    _require_well_formed(value)
    for kind, rule in value.items():
        for name, members in rule.items():
            if len(members) > MAX_NAMES:
                raise BadAclError(f"`{kind}.{name}` has {len(members)} names; at most {MAX_NAMES} are taken")


def _require_well_formed(value: Any) -> None:
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
    if not isinstance(members, list):
        raise BadAclError(f"{what} must be an array of names")
    for member in members:
        if not _is_name(member):
            raise BadAclError(f"{what} holds {member!r}; names are '*', 'user:<name>' and 'role:<name>'")


def _is_name(value: Any) -> bool:
    """Whether a value is a name. Not of a subclass: the driver decodes code to a subclass of str."""
    return type(value) is str and (value == EVERYBODY or (value.startswith(("user:", "role:")) and len(value) > 5))


def permits(acl: Any, kind: Kind, principal: Principal) -> bool:
    """Whether condition() finds a record with this value in the field; for an absent field pass `{}`."""
    if principal.superuser:
        return True
    try:
        _require_well_formed(acl)
    except BadAclError:
        return False
    rule = acl.get(kind, {})
    names = set(principal.names)
    return names.isdisjoint(rule.get("deny", ())) and ("allow" not in rule or not names.isdisjoint(rule["allow"]))

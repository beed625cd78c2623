"""Records and queries of a MongoDB database over HTTP: one router to mount, cached exactly like hand-written handlers."""

from quaestor.rest.access import Access, Action, CollectionAccess, Principal, Rule
from quaestor.rest.limits import Limits
from quaestor.rest.router import QuaestorRouter

__all__ = ["Access", "Action", "CollectionAccess", "Limits", "Principal", "QuaestorRouter", "Rule"]

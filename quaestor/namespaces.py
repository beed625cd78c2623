"""Namespaces: the names of collections and databases, and which of them include which."""

from __future__ import annotations

from typing import Any, Final

from quaestor.errors import ConfigurationError

Collection = Any
"""A namespace ("shop.items"), or a pymongo collection, synchronous or asynchronous."""

_EVERYTHING: Final = "*"


def covers(event: str, namespace: str) -> bool:
    """Whether the namespace of a collection event includes this one."""
    if event in (namespace, _EVERYTHING, f"{_EVERYTHING}.{_EVERYTHING}"):
        return True
    database = event.removesuffix(".*")
    return (event.endswith(".*") or "." not in event) and namespace.startswith(f"{database}.")


def namespace_of(collection: Collection, where: str) -> str:
    """The name `database.collection` of a namespace or a pymongo collection.

    where: it stood, for the message.

    Raises ConfigurationError if it is neither.
    """
    namespace = collection
    if not isinstance(collection, str):
        # By its own names and not by type: that would import a driver.
        database = getattr(collection, "database", None)
        namespace = f"{getattr(database, 'name', '')}.{getattr(collection, 'name', '')}"
    if not all(namespace.partition(".")):
        raise ConfigurationError(
            f"{where}: {collection!r} is no collection: give 'database.collection' or a pymongo collection"
        )
    return str(namespace)

"""Partitions of the Cache Sketch: filters of some collections each, beside the union of all. Pure.

A site with very many resources fills one filter; a client that keeps answers of few collections then loads the filters of those
alone. Which one an answer belongs to is decided once, when it becomes an entry, and goes with it: every copy made of the entry
names it, and a write reports it there. So it may differ between two answers of one URL, and a filter that somebody does not know
is replaced by the union, which contains every other.

Behind the API a resource in a partition is called `<resource>#<token>` (no resource contains a `#`), and its key is its digest
and the token.

A sketch that is forgotten with its process has an *epoch*, a random number, and the tokens of its partitions begin with that. So
what an earlier process handed out names partitions that this one does not know, and what this one hands out is in partitions that
contain nothing else: they may be trusted while the union, which tells of both, may not.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

from quaestor.cache_sketch.wire_format import digest
from quaestor.errors import ConfigurationError

MAX_PARTITIONS = 64
"""Filters beside the union: 31 MB. What is reported of further ones is in the union alone."""
TOKEN = re.compile(r"(?:[0-9a-f]{8}){1,3}")
"""A group's; behind an epoch, if there is one; or an epoch alone, for what is in no group."""
EPOCH_DIGITS = 16
UNION, OTHERS = "union", "others"
"""Labels in metrics: of everything, and of what is in no group."""
EVERY_COLLECTION = "*"
_IN_PARTITION = re.compile(rf"(.*)#({TOKEN.pattern})", re.DOTALL)
_NAMESPACE = re.compile(r"[^\s.=,*#]+\.[^\s=,*#]+")
_GROUP = re.compile(r"[A-Za-z0-9_-]{1,64}")


def token_of(name: str) -> str:
    """The token of a group or a collection: its name is not for strangers."""
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def valid_group(name: str) -> bool:
    """Whether a group of answers may have this name."""
    return _GROUP.fullmatch(name) is not None


def in_partition(resource: str, token: str) -> str:
    """The name of a resource in a partition; an empty token is none."""
    return f"{resource}#{token}" if token else resource


def key_of(name: str) -> bytes:
    """The key of a resource, or of one in a partition: its digest, followed by the token."""
    found = _IN_PARTITION.fullmatch(name)
    return digest(name) if found is None else digest(found[1]) + found[2].encode()


def label_of(token: str) -> str:
    """The name of a filter in metrics, the same after each start."""
    group = token[EPOCH_DIGITS:] if len(token) >= EPOCH_DIGITS else token
    return group or (OTHERS if token else UNION)


class Partitioning:
    """The choice of partitions, as the setting `sketch_partitions` declares it.

    declared: `shop.items`: this collection has a filter of its own; `prices=shop.items`: it shares one with the others of
        the group `prices`; `*`: every further collection has its own.
    epoch: of the sketch, 16 hex digits; empty: it has none.

    Raises ConfigurationError for anything else.
    """

    def __init__(self, declared: Sequence[str] = (), *, epoch: str = "") -> None:
        self._epoch = epoch
        self._tokens: dict[str, str] = {}
        self._every = False
        for entry in declared:
            group, grouped, namespace = entry.rpartition("=")
            if entry == EVERY_COLLECTION:
                self._every = True
            elif not _NAMESPACE.fullmatch(namespace) or (grouped and not valid_group(group)):
                raise ConfigurationError(
                    f"sketch_partitions names {entry!r}: write 'database.collection', 'group=database.collection', or '*'"
                )
            elif namespace in self._tokens:
                raise ConfigurationError(
                    f"sketch_partitions names {namespace!r} twice: a collection is in one partition"
                )
            else:
                self._tokens[namespace] = token_of(group or namespace)

    def token(self, namespaces: Iterable[str], *, group: str = "") -> str:
        """The partition of an answer that read these. If they are of several, or of none: the epoch's own, or empty, for none.

        group: what its route says; then it counts alone.
        """
        if group:
            return self._epoch + token_of(group)
        tokens = {self._tokens.get(name) or (token_of(name) if self._every else "") for name in namespaces}
        return self._epoch + (tokens.pop() if len(tokens) == 1 else "")

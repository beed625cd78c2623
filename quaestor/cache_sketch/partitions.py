"""Partitions of the Cache Sketch: filters for a few collections each, beside the union of all. Pure.

On a site with very many resources one filter gets full. A client that keeps answers of few collections then loads only the
filters of those collections. An answer's partition is chosen once, when the answer becomes an entry, and stays with the entry.
Every copy names the partition, and a write is reported there. Two answers of one URL may therefore have different partitions. For
a partition that the sketch does not know, it sends the union, which contains every other filter.

Behind the API a resource in a partition is called `<resource>#<token>` (no resource contains a `#`). Its key is its digest,
followed by the token.

A sketch that is lost with its process has an *epoch*, a random number at the start of its partitions' tokens. Copies that an
earlier process handed out therefore name partitions that this process does not know. Copies of this process are in partitions
without any earlier copy. Their filters may be trusted at once, while the union, which covers both kinds of copies, may not.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence

from quaestor.cache_sketch.wire_format import digest
from quaestor.errors import ConfigurationError

MAX_PARTITIONS = 64
"""Most filters beside the union: 31 MB. Resources of further partitions are in the union alone."""
TOKEN = re.compile(r"(?:[0-9a-f]{8}){1,3}")
"""Token of a group, with the epoch in front if the sketch has one. An epoch alone stands for resources in no group."""
EPOCH_DIGITS = 16
UNION, OTHERS = "union", "others"
"""Labels in metrics: of the union, and of the resources in no group."""
EVERY_COLLECTION = "*"
_IN_PARTITION = re.compile(rf"(.*)#({TOKEN.pattern})", re.DOTALL)
_NAMESPACE = re.compile(r"[^\s.=,*#]+\.[^\s=,*#]+")
_GROUP = re.compile(r"[A-Za-z0-9_-]{1,64}")


def token_of(name: str) -> str:
    """Token of a group or a collection, which hides the name from strangers."""
    return hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def valid_group(name: str) -> bool:
    """Whether a group of answers may have this name."""
    return _GROUP.fullmatch(name) is not None


def in_partition(resource: str, token: str) -> str:
    """Name of a resource in a partition; with an empty token, the resource's own name."""
    return f"{resource}#{token}" if token else resource


def key_of(name: str) -> bytes:
    """Key of a resource, in a partition or not: its digest, followed by the token."""
    match = _IN_PARTITION.fullmatch(name)
    return digest(name) if match is None else digest(match[1]) + match[2].encode()


def label_of(token: str) -> str:
    """Name of a filter in metrics, the same after each start."""
    group = token[EPOCH_DIGITS:] if len(token) >= EPOCH_DIGITS else token
    return group or (OTHERS if token else UNION)


class Partitioning:
    """Choice of partitions, as the setting `sketch_partitions` declares it.

    declared: `shop.items`: this collection has a filter of its own. `prices=shop.items`: this collection shares a filter with the
        rest of the group `prices`. `*`: every other collection has a filter of its own.
    epoch: epoch of the sketch, 16 hex digits; empty: the sketch has none.

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
        """Partition of an answer that read these collections. Of several partitions or none, it is the epoch alone, or empty.

        group: group that the route names; it then decides alone.
        """
        if group:
            return self._epoch + token_of(group)
        tokens = {self._tokens.get(name) or (token_of(name) if self._every else "") for name in namespaces}
        return self._epoch + (tokens.pop() if len(tokens) == 1 else "")

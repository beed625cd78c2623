"""A compiled filter: the form that callers outside this package use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import bson
from bson.errors import BSONError

from quaestor.errors import UnsupportedQueryError
from quaestor.query.allowance import counts_expressions, one_query
from quaestor.query.ast import Node, predicates_of
from quaestor.query.compile import compile_node
from quaestor.query.encoding import OPTIONS
from quaestor.query.geo.near import near_of, require_one
from quaestor.query.normalise import normalise_and_identify
from quaestor.query.parse import parse
from quaestor.query.paths import Matcher
from quaestor.query.text import TextIndex
from quaestor.query.text.operator import bind


@dataclass(frozen=True, slots=True, eq=False)
class CompiledQuery:
    """A filter that is ready for matching.

    matches: decides whether mongod returns a document for the filter. May raise UncertainMatchError.
    root: the normalised tree.
    identity: equal for equal queries, however they are written.
    """

    matches: Matcher
    root: Node
    identity: bytes


_MOST: Final = 128
_LARGEST: Final = 1_024
"""Largest filter in bytes that is kept; the compiled form takes some times as much."""
RECENT: Final[dict[bytes, CompiledQuery]] = {}
"""Compiled filters by their BSON. A subscription compiles its filter about ten times: in the app, in its stage, in its cells."""


def compile_query(source: Mapping[str, Any], text_index: TextIndex | None = None) -> CompiledQuery:
    """Compile a filter for matching many documents. Equal filters of late may share one compiled form. Thread-safe.

    text_index: searched by `$text`; without it a filter with `$text` is unsupported.

    Raises:
        MalformedQueryError: mongod would refuse it.
        UnsupportedQueryError: mongod would accept it; it cannot be matched exactly here, or its regular expressions are too
            large together.
    """
    name = _name_of(source) if text_index is None else None
    if name is not None and (known := RECENT.get(name)) is not None:
        return known
    try:
        with one_query():
            parsed = parse(source)
            operators = {predicate.operator for predicate in predicates_of(parsed)}
            if "$text" in operators:
                parsed = bind(parsed, text_index)
            if "$near" in operators:
                require_one(parsed)
            root, identity = normalise_and_identify(parsed)
            if "$near" in operators:
                near_of(root)
            compiled = CompiledQuery(compile_node(root), root, identity)
            is_free = not counts_expressions()
    except RecursionError as error:
        raise UnsupportedQueryError("a filter too deeply nested for the stack that is left") from error
    if name is not None and is_free:  # regular expressions count for each query that holds them
        if len(RECENT) >= _MOST:
            RECENT.clear()
        RECENT[name] = compiled
    return compiled


def _name_of(source: Mapping[str, Any]) -> bytes | None:
    """Return the BSON of a filter; None: it is too large, or BSON cannot hold it."""
    try:
        name = bson.encode(source, codec_options=OPTIONS)
    except (BSONError, TypeError, ValueError, OverflowError, RecursionError):
        return None
    return name if len(name) <= _LARGEST else None

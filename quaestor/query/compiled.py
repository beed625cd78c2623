"""A compiled filter: the form that callers outside this package use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quaestor.errors import UnsupportedQueryError
from quaestor.query.allowance import one_query
from quaestor.query.ast import Node
from quaestor.query.compile import compile_node
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


def compile_query(source: Mapping[str, Any], text_index: TextIndex | None = None) -> CompiledQuery:
    """Compile a filter for matching many documents.

    text_index: searched by `$text`; without it a filter with `$text` is unsupported.

    Raises:
        MalformedQueryError: mongod would refuse it.
        UnsupportedQueryError: mongod would accept it; it cannot be matched exactly here, or its regular expressions are too
            large together.
    """
    try:
        with one_query():
            parsed = bind(parse(source), text_index)
            require_one(parsed)
            root, identity = normalise_and_identify(parsed)
            near_of(root)
            return CompiledQuery(compile_node(root), root, identity)
    except RecursionError as error:
        raise UnsupportedQueryError("a filter too deeply nested for the stack that is left") from error

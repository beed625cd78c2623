"""MongoDB's filter language: parsed, normalised, compiled and matched exactly as mongod 6.0 does.

`compile_query` is what most callers want. `docs/query_semantics.md` lists what is refused and where matches can differ.
"""

from quaestor.invalidation.query.compile import compile_node
from quaestor.invalidation.query.compiled import CompiledQuery, compile_query
from quaestor.invalidation.query.identity import identity
from quaestor.invalidation.query.normalise import normalise
from quaestor.invalidation.query.parse import parse
from quaestor.invalidation.query.ranking import rank_key
from quaestor.invalidation.query.sorting import sort_documents, sort_key, sort_key_function

__all__ = [
    "CompiledQuery",
    "compile_node",
    "compile_query",
    "identity",
    "normalise",
    "parse",
    "rank_key",
    "sort_documents",
    "sort_key",
    "sort_key_function",
]

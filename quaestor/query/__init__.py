"""MongoDB's filter language: parsed, normalised, compiled and matched exactly as mongod 6.0 does.

`compile_query` is the usual entry point. `docs/query_semantics.md` lists refused queries, and where matches can differ.
"""

from quaestor.query.compile import compile_node
from quaestor.query.compiled import CompiledQuery, compile_query
from quaestor.query.identity import identity
from quaestor.query.normalise import normalise
from quaestor.query.parse import parse
from quaestor.query.ranking import rank_key
from quaestor.query.sorting import sort_documents, sort_key, sort_key_function

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

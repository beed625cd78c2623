"""`$text`: finding and scoring a search's words in a collection's text index, like mongod.

The index, not the filter, defines the searched fields, their weights and their language. Without its definition
(`Query.text_index`) nothing can be matched, and the query is widened. `docs/query_semantics.md` lists the languages.
"""

from quaestor.query.text.index import TextIndex

__all__ = ["TextIndex"]

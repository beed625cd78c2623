"""`$text`: words of a search found in a collection's text index, as mongod finds and scores them.

Which fields are searched, with what weights and in what language is said by the index, not by the filter: without its
definition (`Query.text_index`) nothing can be matched, and the query is widened. `docs/query_semantics.md` lists the languages.
"""

from quaestor.query.text.index import TextIndex

__all__ = ["TextIndex"]

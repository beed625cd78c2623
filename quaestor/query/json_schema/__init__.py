"""`$jsonSchema`: MongoDB's dialect of JSON Schema draft 4, as mongod 6.0 matches it."""

from __future__ import annotations

from quaestor.query.json_schema.compiler import compile_schema

__all__ = ["compile_schema"]

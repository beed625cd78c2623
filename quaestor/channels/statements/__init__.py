"""Statements of channels, feeds and datasets: text is read into frozen values, and printed back."""

from quaestor.channels.statements.errors import StatementError
from quaestor.channels.statements.model import Statement
from quaestor.channels.statements.reading import parse
from quaestor.channels.statements.writing import written

__all__ = ["Statement", "StatementError", "parse", "written"]

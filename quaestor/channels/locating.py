"""Places of refusals: a query is refused at a place in itself, and the user wrote it inside a statement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from quaestor.channels.statements.model import Body
from quaestor.continuous.sql.refusals import QueryRefusedError
from quaestor.errors import ConfigurationError


@contextmanager
def located(body: Body | None) -> Iterator[None]:
    """Give a refusal its place in the whole text. None: it has no place in this text. Raises StatementError."""
    try:
        yield
    except QueryRefusedError as error:
        if body is None:
            raise ConfigurationError(f"the query of its function: {error}") from error
        raise body.error(error.line, error.column, f"{error.reason}; {error.remedy}") from error

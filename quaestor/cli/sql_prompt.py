"""Prompt of `quaestor sql`: statements over several lines, completion from the catalogue, errors with a caret."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from quaestor.channels.administration import Channels
from quaestor.channels.answers import Answer
from quaestor.channels.datasets import Dataset, dataset_names
from quaestor.channels.statements import StatementError, parse
from quaestor.channels.statements.grammar import KEYWORDS
from quaestor.cli.plain_text import line, printable
from quaestor.continuous.delivery.batch import to_json
from quaestor.errors import QuaestorError

FUNCTIONS: Final = (
    "active_timestamp",
    "current_channel_time",
    "distance",
    "is_new",
    "near",
    "near_sphere",
    "previous_channel_time",
)
_SQL: Final = ("SELECT", "WHERE", "JOIN", "GROUP BY", "ORDER BY", "LIMIT", "HAVING", "UNION", "AND", "COUNT", "SUM")
_WORD: Final = re.compile(r"(?<![A-Za-z0-9_])[A-Za-z_][A-Za-z0-9_]*+$")
_WIDEST: Final = 60
_HISTORY: Final = ".quaestor_sql_history"


class CatalogueCompleter(Completer):
    """Completion of keywords, functions, and the names of datasets, columns, channels and brokers."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield the words that begin as the word before the cursor does."""
        match = _WORD.search(document.text_before_cursor)
        begun = match[0] if match else ""
        if not begun:
            return
        for word, meaning in self._words():
            if word.lower().startswith(begun.lower()):
                yield Completion(word, -len(begun), display_meta=meaning)

    def _words(self) -> Iterator[tuple[str, str]]:
        yield from self._names()
        yield from ((name, "function") for name in FUNCTIONS)
        yield from ((word, "") for word in sorted({*KEYWORDS, *_SQL}))

    def _names(self) -> Iterator[tuple[str, str]]:
        """Yield the names of the catalogue; none if its storage does not answer."""
        parts = self._channels.parts
        try:
            columns: set[str] = set()
            for name in set(dataset_names(parts.catalogue)) - parts.definitions.subscription_datasets():
                yield name, "dataset"
                columns.update(Dataset.open(parts.catalogue, name).schema.names)
            yield from ((name, "column") for name in sorted(columns))
            yield from ((entry.name, entry.kind.value) for entry in parts.definitions.all() if entry.kind != "dataset")
        except QuaestorError:
            return


class Prompt:
    """Prompt for statements. user: owner of what is created."""

    def __init__(self, channels: Channels, *, user: str = "") -> None:
        self._channels = channels
        self._user = user

    def run(self) -> None:
        """Read statements and execute them until the end of the input."""
        session: PromptSession[str] = PromptSession(
            lexer=PygmentsLexer(SqlLexer),
            completer=CatalogueCompleter(self._channels),
            complete_while_typing=True,
            multiline=True,
            key_bindings=_bindings(),
            history=_history(),
            prompt_continuation=lambda width, *_: " " * (width - 2) + "> ",
        )
        while True:
            try:
                text = session.prompt("quaestor> ")
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            self.execute(text)

    def execute(self, text: str) -> bool:
        """Execute statements and print their answers; return whether all succeeded."""
        try:
            for answer in self._channels.interpreter.run(text, user=self._user):
                print("\n".join(_table(answer)))
        except StatementError as error:
            print(printable(f"{error.caret(text)}\n{error}", keep="\n\t"), file=sys.stderr)
            return False
        except QuaestorError as error:
            print(printable(str(error)), file=sys.stderr)
            return False
        return True


def is_complete(text: str) -> bool:
    """Whether a text is ready to be executed: it ends with a semicolon outside strings, brackets and comments, or is empty."""
    if not text.strip():
        return True
    if not text.rstrip().endswith(";"):
        return False
    try:
        parse(text)
    except StatementError as error:
        return not any(part in error.reason for part in ("does not end", "is not closed"))
    return True


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return bindings


def _history() -> History:
    try:
        path = Path.home() / _HISTORY
        path.touch(mode=0o600)
        return FileHistory(str(path))
    except (OSError, RuntimeError):
        return InMemoryHistory()


def _table(answer: Answer) -> Iterator[str]:
    """Yield the lines of an answer: a table with aligned columns, or its sentence. Cells of the last column are whole."""
    if answer.columns:
        rows = [[*(_cut(_cell(value)) for value in row[:-1]), _cell(row[-1])] for row in answer.rows]
        widths = [min(_WIDEST, max(map(len, column))) for column in zip(answer.columns, *rows, strict=True)]
        yield _row(answer.columns, widths)
        yield "-+-".join("-" * width for width in widths)
        yield from (_row(row, widths) for row in rows)
        yield f"({len(rows)} {'row' if len(rows) == 1 else 'rows'})"
    if answer.text:
        yield printable(answer.text)


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    return line(value if isinstance(value, str) else to_json(value).strip('"'))


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"

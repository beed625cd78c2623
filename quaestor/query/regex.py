"""Regular expressions from queries: matched like mongod 6.0 (PCRE, UTF-8), in time linear in the text.

The pattern is translated for RE2, whose time is linear for every pattern. RE2 lacks look-around, back references, atomic and
possessive groups. Patterns with these run on the `regex` engine with a time limit; at the limit the result is unknown and
UncertainMatchError is raised. Plain literals and anchored literals need no engine, and patterns without groups and repetition
run on Python's own.

A pattern may come from a stranger. Therefore no pattern is compiled that is too large (`pcre.pieces.LARGEST_WORK`, `allowance`),
and compiled patterns lie within a budget (`compiled_patterns`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from quaestor.errors import MalformedQueryError, UnsupportedQueryError
from quaestor.first_use import FirstUse
from quaestor.query.allowance import charge
from quaestor.query.bounded_engine import BoundedEngine
from quaestor.query.bson_order import regex_flags
from quaestor.query.compiled_patterns import ENGINES_BYTES, PATTERNS_BYTES, WithinBytes
from quaestor.query.pcre.pieces import LONGEST, Options
from quaestor.query.pcre.required_text import LONGEST as LONGEST_REQUIRED
from quaestor.query.pcre.required_text import RequiredText, Requirements
from quaestor.query.pcre.translation import Translation

if TYPE_CHECKING:
    import re2

    from quaestor.query.pcre import translate as patterns
else:
    re2 = FirstUse("re2")
    patterns = FirstUse("quaestor.query.pcre.translate")

_LETTERS: Final = frozenset("imsxu")
_STEPS_PER_CHARACTER: Final = 5
_SMALL_WORK: Final = 200
"""Largest plain pattern that runs on Python's own engine; its owner keeps it, outside the budget."""
_BYTES: Final = 2_000
_BYTES_PER_CHARACTER: Final = 8
"""Bytes per character that are kept of a pattern: its source, its prefix, a small engine."""
_MOST_BYTES: Final = 32_764
"""Longest pattern in bytes, in PCRE as mongod uses it."""
_TEXT: Final = re.compile(r"[A-Za-z0-9 _-]+")
"""Patterns without special characters."""
_ENGINE_BYTES: Final = 16_000
_RE2_BYTES_PER_STEP: Final = 200
"""Bytes for RE2's program and for its automaton, which grows in use; RE2 is limited to them."""
_BOUNDED_BYTES_PER_STEP: Final = 300


ENGINES: Final[WithinBytes[Any]] = WithinBytes(budget_bytes=ENGINES_BYTES)
"""Compiled engines, by their purpose and pattern."""

Found = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled regular expression. Equal ones are shared.

    source, options: as written in the query.
    prefix: every string that matches starts with this; "" if nothing is known. (Stored regular expressions can match
        as well: `$regex` also holds for a stored value that is the same expression.)
    occurs: decides whether the pattern occurs in a string. Raises UncertainMatchError when the bounded engine ran out of time.
    bounded: the bounded engine may be used.
    required: requirements that every matching string meets; empty: nothing is known.
    work: steps of its program.
    """

    source: str
    options: str
    prefix: str = field(compare=False)
    occurs: Found = field(compare=False, repr=False)
    bounded: bool = field(compare=False, repr=False)
    required: Requirements = field(compare=False, repr=False)
    work: int = field(compare=False, repr=False)

    @staticmethod
    def of_value(value: Any, options: str | None = None) -> Pattern:
        """Return the pattern of a regex value (bson.Regex or re.Pattern) or a string. Raises like `pattern`."""
        if isinstance(value, str):
            return pattern(value, options or "")
        source = value.pattern.decode() if isinstance(value.pattern, bytes) else value.pattern
        return pattern(source, regex_flags(value.flags) if options is None else options)


_PATTERNS: Final[WithinBytes[Pattern]] = WithinBytes(budget_bytes=PATTERNS_BYTES)


def pattern(source: str, options: str) -> Pattern:
    """Compile a pattern, or return the compiled one.

    Raises:
        MalformedQueryError: PCRE would not compile it, or an option is unknown.
        UnsupportedQueryError: neither engine can express it, or it is too large to be compiled.
    """
    made = _PATTERNS.get((source, options), lambda: _made(source, options))
    if made.work:
        charge((source, options), _work(source, made.work))
    return made


def bounded_engine(source: str, options: str) -> BoundedEngine:
    """Return the bounded engine for a pattern that `pattern` accepted: it finds the position and the groups of a match."""

    def make() -> tuple[BoundedEngine, int]:
        translation = patterns.translate(source, _switched(options))
        return BoundedEngine(translation.full), _ENGINE_BYTES + _BOUNDED_BYTES_PER_STEP * translation.work

    engine: BoundedEngine = ENGINES.get(("where", source, options), make)
    return engine


def _made(source: str, options: str) -> tuple[Pattern, int]:
    """Return a pattern with its bytes, without its engines. A pattern that is too large is refused before compiling."""
    if unknown := set(options) - _LETTERS:
        raise MalformedQueryError(f"invalid option {''.join(sorted(unknown))!r} of regular expression {source!r}")
    if "\0" in source:
        raise MalformedQueryError(f"regular expression {source!r} contains a null byte")
    if len(source.encode("utf-8", "surrogatepass")) > _MOST_BYTES:
        raise MalformedQueryError(f"a regular expression of more than {_MOST_BYTES:,} bytes")
    if len(source) > LONGEST and not {"i", "x"} & set(options) and _TEXT.fullmatch(source):
        # No engine is compiled for it, so its length does not matter.
        held = _BYTES + _BYTES_PER_CHARACTER * len(source)
        required = ((RequiredText(source[:LONGEST_REQUIRED]),),)
        return Pattern(source, options, "", lambda value: source in value, False, required, work=0), held
    try:
        translation = patterns.translate(source, _switched(options))
    except RecursionError as error:
        raise UnsupportedQueryError("a regular expression too deeply nested for the stack that is left") from error
    charge((source, options), _work(source, translation.work))
    search, bounded = _literal(translation) or _plain(translation), False
    if search is None:
        bounded = _may_ask_bounded(translation)
        search = _Search(source, options)
        search.ready()
    prefix = translation.prefix if translation.starts else ""
    held = _BYTES + _BYTES_PER_CHARACTER * len(source)
    return Pattern(source, options, prefix, search, bounded, translation.required, translation.work), held


def _work(source: str, steps: int) -> int:
    """Return the steps to compile a pattern: reading one character costs as much as several steps."""
    return steps + _STEPS_PER_CHARACTER * len(source)


def _switched(options: str) -> Options:
    return Options(
        ignore_case="i" in options, multiline="m" in options, dot_all="s" in options, extended="x" in options
    )


class _Search:
    """Search by an engine in the cache, which is compiled again after it was dropped."""

    __slots__ = ("_name", "_options", "_source")

    def __init__(self, source: str, options: str) -> None:
        self._source = source
        self._options = options
        self._name = ("whether", source, options)

    def __call__(self, value: str) -> bool:
        matches: bool = ENGINES.get(self._name, self._compile)(value)
        return matches

    def ready(self) -> None:
        """Compile the engine as a check. Raises UnsupportedQueryError."""
        ENGINES.get(self._name, self._compile)

    def _compile(self) -> tuple[Found, int]:
        return _engine(patterns.translate(self._source, _switched(self._options)))


def _literal(translation: Translation) -> Found | None:
    """Return a search without an engine, for patterns that are plain text."""
    if not translation.only_prefix:
        return None
    text = translation.prefix
    if translation.starts and translation.ends:
        return lambda value: value == text or (value.startswith(text) and value == text + "\n")
    if translation.starts:
        return lambda value: value.startswith(text)
    if translation.ends:
        return lambda value: value.endswith((text, text + "\n"))
    return lambda value: text in value


def _plain(translation: Translation) -> Found | None:
    """Return a search by Python's own engine, for small patterns without backtracking: it is linear for them, and far quicker
    to call."""
    if not translation.plain or translation.work > _SMALL_WORK:
        return None
    try:
        plain = re.compile(translation.full).search
    except re.error:
        return None  # \p, which Python's engine does not support
    return lambda value: plain(value) is not None


def _may_ask_bounded(translation: Translation) -> bool:
    return translation.linear is None or translation.newline_sensitive or translation.ascii_only


def _engine(translation: Translation) -> tuple[Found, int]:
    """Return a search, and its bytes."""
    bounded_bytes = _ENGINE_BYTES + _BOUNDED_BYTES_PER_STEP * translation.work
    linear_bytes = _ENGINE_BYTES + _RE2_BYTES_PER_STEP * translation.work
    search = None if translation.linear is None else _linear(translation.linear, max_bytes=linear_bytes)
    if search is None:
        return _bounded(translation.full), bounded_bytes
    if not _may_ask_bounded(translation):
        return lambda value: search(value.encode()) is not None, linear_bytes
    bounded = _bounded(translation.full)
    newline, ascii_only = translation.newline_sensitive, translation.ascii_only

    def matches(value: str) -> bool:
        if (newline and value[-1:] == "\n") or (ascii_only and not value.isascii()):
            return bounded(value)
        return search(value.encode()) is not None

    return matches, linear_bytes + bounded_bytes


def _linear(text: str, *, max_bytes: int) -> Callable[[bytes], Any] | None:
    """Return RE2's search; None: a repetition or a program beyond RE2's limits."""
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = max_bytes
    try:
        search: Callable[[bytes], Any] = re2.compile(text, options).search
    except re2.error:
        return None
    finally:
        re2.purge()  # otherwise it keeps the last 128, however large
    return search


def _bounded(text: str) -> Found:
    search = BoundedEngine(text).search
    return lambda value: search(value) is not None

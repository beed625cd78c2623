"""Regular expressions from queries: matched as mongod 6.0 would (PCRE, UTF-8), in time linear in the text.

The pattern is translated for RE2, whose time is linear whatever the pattern. Look-around, back references, atomic and
possessive groups, which RE2 does not have, run on the `regex` engine with a time limit; when it is reached the answer is
unknown and UncertainMatchError is raised. Plain literals and anchored literals need no engine at all, and patterns
without groups and repetition run on Python's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import re2
import regex

from quaestor.errors import MalformedQueryError, UncertainMatchError, UnsupportedQueryError
from quaestor.query.bson_order import regex_flags
from quaestor.query.pcre.pieces import Options
from quaestor.query.pcre.translate import translate
from quaestor.query.pcre.translation import Translation

TIME_LIMIT_S: Final = 0.05
"""How long the bounded engine may look at one text."""

_LETTERS: Final = frozenset("imsxu")
_RE2_OPTIONS: Final = re2.Options()
_RE2_OPTIONS.log_errors = False
_RE2_OPTIONS.never_capture = True


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled regular expression. Equal ones are shared.

    source, options: as written in the query.
    prefix: every string that matches starts with this; "" if nothing is known. (Stored regular expressions can match
        as well: `$regex` also holds for a stored value that is the same expression.)
    found: is the pattern found in a string? Raises UncertainMatchError when the bounded engine ran out of time.
    """

    source: str
    options: str
    prefix: str = field(compare=False)
    found: Callable[[str], bool] = field(compare=False, repr=False)

    @staticmethod
    def of_value(value: Any, options: str | None = None) -> Pattern:
        """The pattern of a regex value (bson.Regex or re.Pattern) or a string. Raises like `pattern`."""
        if isinstance(value, str):
            return pattern(value, options or "")
        source = value.pattern.decode() if isinstance(value.pattern, bytes) else value.pattern
        return pattern(source, regex_flags(value.flags) if options is None else options)


@lru_cache(maxsize=4096)
def pattern(source: str, options: str) -> Pattern:
    """Compile, or find what was compiled before.

    Raises:
        MalformedQueryError: PCRE would not compile it, or an option is unknown.
        UnsupportedQueryError: neither engine can express it.
    """
    if unknown := set(options) - _LETTERS:
        raise MalformedQueryError(f"invalid option {''.join(sorted(unknown))!r} of regular expression {source!r}")
    if "\0" in source:
        raise MalformedQueryError(f"regular expression {source!r} contains a null byte")
    switched = Options(
        ignore_case="i" in options, multiline="m" in options, dot_all="s" in options, extended="x" in options
    )
    try:
        translation = translate(source, switched)
    except RecursionError as error:
        raise UnsupportedQueryError("a regular expression too deeply nested for the stack that is left") from error
    prefix = translation.prefix if translation.starts else ""
    return Pattern(source, options, prefix, _literal(translation) or _engine(translation))


def _literal(translation: Translation) -> Callable[[str], bool] | None:
    """A search without an engine, for patterns that are just text."""
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


def _engine(translation: Translation) -> Callable[[str], bool]:
    if translation.plain:
        # Nothing to backtrack into, so Python's own engine is linear too, and far quicker to call.
        try:
            plain = re.compile(translation.full).search
        except re.error:
            pass  # \p, which it does not know
        else:
            return lambda value: plain(value) is not None
    if translation.linear is None:
        return _bounded(translation.full)
    try:
        search = re2.compile(translation.linear, _RE2_OPTIONS).search
    except re2.error:
        # A repetition or a program beyond RE2's limits.
        return _bounded(translation.full)
    if not translation.newline_sensitive and not translation.ascii_only:
        return lambda value: search(value.encode()) is not None
    bounded = _bounded(translation.full)
    newline, ascii_only = translation.newline_sensitive, translation.ascii_only

    def found(value: str) -> bool:
        if (newline and value[-1:] == "\n") or (ascii_only and not value.isascii()):
            return bounded(value)
        return search(value.encode()) is not None

    return found


def _bounded(text: str) -> Callable[[str], bool]:
    try:
        compiled = regex.compile(text, regex.VERSION0)
    except (regex.error, re.error) as error:
        raise UnsupportedQueryError(f"a regular expression that no engine here can run ({error})") from error

    def found(value: str) -> bool:
        try:
            return compiled.search(value, timeout=TIME_LIMIT_S) is not None
        except TimeoutError as error:
            raise UncertainMatchError(
                f"regular expression {text!r} took longer than {TIME_LIMIT_S} s; the record may match"
            ) from error

    return found

"""A pattern in the forms for RE2 and `regex`."""

from __future__ import annotations

from dataclasses import dataclass

from quaestor.query.pcre.required_text import Requirements


@dataclass(frozen=True, slots=True)
class Translation:
    """A pattern in the forms for two engines.

    linear: for RE2, or None if RE2 cannot express the pattern.
    full: for `regex`.
    newline_sensitive: on a text that ends with a newline, `linear` may differ from PCRE (`$` before it): use `full`.
    ascii_only: on other texts `linear` may differ (RE2 finds `\\B` inside a character of several bytes): use `full`.
    starts: anchored to the start of the text.
    prefix: every match starts with this text (and at the start if `starts`).
    plain: no groups and no repetition: any engine takes time linear in the text for each of its branches.
    only_prefix: the pattern consists of `prefix` alone.
    ends: `$` follows it directly.
    required: requirements that every match meets; empty: nothing is known.
    work: steps of its program, repetitions multiplied out, at most pieces.LARGEST_WORK.
    """

    linear: str | None
    full: str
    newline_sensitive: bool
    ascii_only: bool
    plain: bool
    starts: bool
    prefix: str
    only_prefix: bool
    ends: bool
    required: Requirements
    work: int

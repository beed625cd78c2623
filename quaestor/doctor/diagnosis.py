"""Diagnosis: the doctor's output, line by line."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

_WIDTH = 140


class Level(StrEnum):
    """Levels of a diagnosis."""

    OK = "ok"
    """Right, or decided by the application's author."""
    WARN = "warn"
    """Right, but it costs hits, time or a surprise."""
    MEND = "mend"
    """Nothing is cached, or something is wrong, until it is mended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Diagnosis of one thing.

    subject: the part examined: `mongod`, `redis`, a route.
    sentence: the finding.
    remedy: the commands that mend it, one a line, or the line of code to write; empty: no remedy is needed.
    """

    level: Level
    subject: str
    sentence: str
    remedy: tuple[str, ...] = ()


def ok(subject: str, sentence: str) -> Diagnosis:
    """Diagnosis of a part that is right."""
    return Diagnosis(level=Level.OK, subject=subject, sentence=sentence)


def warn(subject: str, sentence: str, *remedy: str) -> Diagnosis:
    """Diagnosis of a part that could be better."""
    return Diagnosis(level=Level.WARN, subject=subject, sentence=sentence, remedy=remedy)


def mend(subject: str, sentence: str, *remedy: str) -> Diagnosis:
    """Diagnosis of a part that must be mended."""
    return Diagnosis(level=Level.MEND, subject=subject, sentence=sentence, remedy=remedy)


def healthy(found: Sequence[Diagnosis]) -> bool:
    """Whether no part must be mended."""
    return all(one.level is not Level.MEND for one in found)


def to_json(found: Sequence[Diagnosis]) -> str:
    """Diagnoses as one JSON object."""
    findings = [
        {"level": one.level, "subject": one.subject, "sentence": one.sentence, "remedy": list(one.remedy)}
        for one in found
    ]
    return json.dumps({"healthy": healthy(found), "findings": findings})


def text(found: Sequence[Diagnosis]) -> str:
    """Diagnoses as lines for people; a command is never broken into two lines."""
    width = min(24, max((len(one.subject) for one in found), default=0))
    lines = []
    for one in found:
        head = f"{one.level:<4}  {one.subject:<{width}}  "
        indent = " " * (6 + width + 2)
        lines += textwrap.wrap(
            _printable(head + " ".join(one.sentence.split())), width=_WIDTH, subsequent_indent=indent, drop_whitespace=True,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
        lines += [_printable(f"{indent}$ {command}") for command in one.remedy]
    counts = {level: sum(one.level is level for one in found) for level in Level}
    lines.append(f"{counts[Level.OK]} ok, {counts[Level.WARN]} to look at, {counts[Level.MEND]} to mend")
    return "\n".join(lines)


def _printable(line: str) -> str:
    """Line without unprintable characters: names of collections and paths may hold any, also characters that control a
    terminal."""
    return "".join(one if one.isprintable() else "?" for one in line)

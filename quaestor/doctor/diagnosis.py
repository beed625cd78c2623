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


def healthy(diagnoses: Sequence[Diagnosis]) -> bool:
    """Whether no part must be mended."""
    return all(diagnosis.level is not Level.MEND for diagnosis in diagnoses)


def to_json(diagnoses: Sequence[Diagnosis]) -> str:
    """Diagnoses as one JSON object."""
    findings = [
        {
            "level": diagnosis.level,
            "subject": diagnosis.subject,
            "sentence": diagnosis.sentence,
            "remedy": list(diagnosis.remedy),
        }
        for diagnosis in diagnoses
    ]
    return json.dumps({"healthy": healthy(diagnoses), "findings": findings})


def text(diagnoses: Sequence[Diagnosis]) -> str:
    """Diagnoses as lines for people; a command is never broken into two lines."""
    width = min(24, max((len(diagnosis.subject) for diagnosis in diagnoses), default=0))
    lines = []
    for diagnosis in diagnoses:
        head = f"{diagnosis.level:<4}  {diagnosis.subject:<{width}}  "
        indent = " " * (6 + width + 2)
        lines += textwrap.wrap(
            _printable(head + " ".join(diagnosis.sentence.split())), width=_WIDTH, subsequent_indent=indent, drop_whitespace=True,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
        lines += [_printable(f"{indent}$ {command}") for command in diagnosis.remedy]
    counts = {level: sum(diagnosis.level is level for diagnosis in diagnoses) for level in Level}
    lines.append(f"{counts[Level.OK]} ok, {counts[Level.WARN]} to look at, {counts[Level.MEND]} to mend")
    return "\n".join(lines)


def _printable(line: str) -> str:
    """Line without unprintable characters: names of collections and paths may hold any, also characters that control a
    terminal."""
    return "".join(character if character.isprintable() else "?" for character in line)

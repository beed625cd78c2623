"""Transcripts of the documents: commands with the output that they print, run as they stand.

A transcript is a fenced block of the language `console`: lines that begin with `$ ` are commands, the others are output.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.docs.blocks import ROOT
from tests.support import becomes

_TRANSCRIPT = re.compile(r"^```console\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_SECONDS_LEFT = re.compile(r"\bttl=\d+")
_COMMAND_S = 120.0


@dataclass(frozen=True, slots=True)
class Step:
    """One command.

    output: the printed output, without the last line end.
    """

    command: str
    output: str

    @property
    def reads(self) -> bool:
        """Whether the command may be run again: it changes nothing."""
        return self.command.startswith("curl") and " -d " not in self.command


def transcript(document: str) -> list[Step]:
    """All commands of a document's transcripts, in order."""
    text = "".join(block["text"] for block in _TRANSCRIPT.finditer((ROOT / document).read_text()))
    command, *rest = re.split(r"^\$ ", text, flags=re.MULTILINE)
    assert not command, f"{document}: a transcript begins with output: {command!r}"
    return [Step(line, output.rstrip("\n")) for line, _, output in (step.partition("\n") for step in rest)]


def run(document: str, folder: Path, addresses: Mapping[str, str]) -> Iterator[str]:
    """Run a document's transcripts in bash, command by command, and yield each command that printed what the document says.

    A read is run again until it prints that: an answer may take a moment to be evicted. Lifetimes that are left, in seconds, may
    differ.

    addresses: the servers' addresses in the document, and those to use instead.
    """
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for step in transcript(document):
        command = step.command
        for printed, ours in addresses.items():
            command = command.replace(printed, ours)
        output = ""

        def agrees(command: str = command, expected: str = step.output) -> bool:
            nonlocal output
            done = subprocess.run(
                ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=_COMMAND_S
            )
            output = done.stdout.replace("\r", "").rstrip("\n") + done.stderr
            return _without_seconds(output) == _without_seconds(expected)

        try:
            becomes(agrees) if step.reads else agrees()
        finally:
            assert _without_seconds(output) == _without_seconds(step.output), step.command
        yield step.command


def _without_seconds(text: str) -> str:
    return _SECONDS_LEFT.sub("ttl=N", text)

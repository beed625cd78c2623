"""Order of the files when several workers run the tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.file_order import FIRST, place

TESTS = Path(__file__).parents[1]


def test_the_files_that_take_longest_exist_and_come_first_in_their_order() -> None:
    files = sorted(TESTS.rglob("test_*.py"), key=place)
    assert [file.relative_to(TESTS).as_posix() for file in files[: len(FIRST)]] == list(FIRST)


def test_the_others_are_mixed_in_the_same_way_by_every_process() -> None:
    """Workers whose orders differ are refused by pytest-xdist. No folder's files stay together."""
    others = [TESTS / "unit" / f"test_{n}.py" for n in range(20)] + [
        TESTS / "oracle" / f"test_{n}.py" for n in range(20)
    ]
    mixed = sorted(others, key=place)
    assert len({path.parent for path in mixed[:20]}) == 2
    program = "import sys; from pathlib import Path; from tests.file_order import place\n"
    program += "print(*sorted(map(Path, sys.argv[1:]), key=place))"
    elsewhere = subprocess.run(
        [sys.executable, "-c", program, *map(str, reversed(others))],
        cwd=TESTS.parent, text=True, capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    assert elsewhere.stdout.split() == list(map(str, mixed))

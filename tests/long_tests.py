"""Long tests: functions of over a second in the last measured run. `make test` leaves them to `make test-long`.

The list is `long_tests.json`, by file and function. `python -m tests.long_tests JUNIT.xml` writes it from the report of a run
(`pytest --junitxml`); functions that the run left out stay listed. Each file keeps its shortest function in `make test`, unless
that function takes over three seconds.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Final
from xml.etree import ElementTree

import pytest

LONG_S: Final = 1.0
"""Mean duration of a function's cases from which on the function is long."""
LONG_CASE_S: Final = 3.0
"""Duration of the longest case from which on the function is long."""
LIST: Final = Path(__file__).with_suffix(".json")
ROOT: Final = Path(__file__).parents[1]


def pytest_configure(config: pytest.Config) -> None:
    """Mark the long tests before options select by marks."""
    config.pluginmanager.register(LongTests(), "long-tests")


class LongTests:
    """Marks of the long tests."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Mark each case of a long function."""
        listed = {f"{file}::{function}" for file, functions in listed_functions().items() for function in functions}
        for item in items:
            if item.nodeid.partition("[")[0] in listed:
                item.add_marker("long")


def listed_functions() -> dict[str, list[str]]:
    """Return the names of the long functions by file."""
    functions: dict[str, list[str]] = json.loads(LIST.read_text())
    return functions


def durations_of(report: Path) -> Iterator[tuple[str, str, float]]:
    """File, function and duration in seconds of each case of a run. Raises ElementTree.ParseError."""
    for case in ElementTree.parse(report).iter("testcase"):
        parts = case.get("classname", "").split(".")
        for length in range(len(parts), 0, -1):
            file = Path(*parts[:length]).with_suffix(".py")
            if (ROOT / file).is_file():
                function = "::".join((*parts[length:], case.get("name", "").partition("[")[0]))
                yield file.as_posix(), function, float(case.get("time", 0))
                break


def long_functions(
    durations: Iterator[tuple[str, str, float]], listed: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Return the long functions by file: those of a run, and listed ones that the run left out."""
    cases: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for file, function, seconds in durations:
        cases[file][function].append(seconds)
    long = {file: sorted(names) for file, names in listed.items() if file not in cases}
    for file, functions in sorted(cases.items()):
        names = {name for name, each in functions.items() if fmean(each) > LONG_S or max(each) > LONG_CASE_S}
        names |= set(listed.get(file, ())) - functions.keys()
        if names >= functions.keys():
            shortest = min(names, key=lambda name: sum(functions[name]))
            names -= {shortest} if sum(functions[shortest]) <= LONG_CASE_S else set()
        if names:
            long[file] = sorted(names)
    return dict(sorted(long.items()))


if __name__ == "__main__":
    LIST.write_text(json.dumps(long_functions(durations_of(Path(sys.argv[1])), listed_functions()), indent=1) + "\n")

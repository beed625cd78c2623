"""The list of long tests: each name is a test of today, and a run's report decides what is listed."""

from __future__ import annotations

from pathlib import Path

from tests.long_tests import ROOT, durations_of, listed_functions, long_functions


def test_listed_functions_exist() -> None:
    """A function that was renamed would run in `make test` again."""
    for file, functions in listed_functions().items():
        source = (ROOT / file).read_text()
        missing = [name for name in functions if f"def {name.rpartition('::')[2]}(" not in source]
        assert [name for name in missing if not name.endswith("::runTest")] == [], file


def test_the_list_is_written_from_a_report(tmp_path: Path) -> None:
    """A function is long by its mean, by its longest case, or by an earlier run; a file keeps its shortest function."""
    report = tmp_path / "report.xml"
    cases = {
        "tests.unit.test_long_tests": {"a[1]": 0.5, "a[2]": 2.5, "b": 0.1, "c[1]": 0.1, "c[2]": 0.1, "c[3]": 3.1},
        "tests.test_gone": {"a": 9.0},
        "tests.unit.test_cli": {"a": 2.9, "b": 2.5},
        "tests.unit.test_codec": {"a": 9.0},
    }
    report.write_text(
        "<testsuite>"
        + "".join(
            f'<testcase classname="{module}" name="{name}" time="{seconds}"/>'
            for module, functions in cases.items()
            for name, seconds in functions.items()
        )
        + "</testsuite>"
    )
    listed = {"tests/unit/test_long_tests.py": ["b", "earlier"], "tests/unit/test_modes.py": ["x"]}
    assert long_functions(durations_of(report), listed) == {
        "tests/unit/test_cli.py": ["a"],
        "tests/unit/test_codec.py": ["a"],
        "tests/unit/test_long_tests.py": ["a", "c", "earlier"],
        "tests/unit/test_modes.py": ["x"],
    }

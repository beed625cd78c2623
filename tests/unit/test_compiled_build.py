"""The build that these tests run on: pure Python in a checkout, the listed compiled modules in a wheel of `make compiled`."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import quaestor
from quaestor.doctor.build_kind import compiled_modules, examined

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
HOOK = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
LISTED = sorted(module.removesuffix(".py").replace("/", ".") for module in HOOK["modules"])
IN_CHECKOUT = Path(quaestor.__file__).parent == ROOT / "quaestor"


def test_the_build_is_reported_from_the_loaded_modules() -> None:
    """A checkout runs its sources. A compiled wheel runs each listed module compiled, and no other one."""
    assert compiled_modules() == ([] if IN_CHECKOUT else LISTED)
    [diagnosis] = examined()
    assert diagnosis.sentence == ("pure Python" if IN_CHECKOUT else f"compiled: {len(LISTED)} modules")


def test_a_new_process_runs_the_same_build() -> None:
    """Tests start processes. Each loads the build that the tests themselves run on."""
    code = "from quaestor.doctor.build_kind import compiled_modules; print(*compiled_modules())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == compiled_modules()


def test_the_compiler_is_the_locked_one() -> None:
    """An isolated build installs the version of mypy with which the compiled build was tested."""
    locked = re.findall(r"^mypy==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert HOOK["compiler"] == [f"mypy[mypyc]=={version}" for version in locked]

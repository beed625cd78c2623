"""The README's imports exist, and importing the package has no effect by itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

import quaestor


def test_every_exported_name_can_be_had() -> None:
    for name in quaestor.__all__:
        assert getattr(quaestor, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Unknown'"):
        quaestor.Unknown  # noqa: B018


def test_importing_the_package_loads_neither_web_framework_nor_driver() -> None:
    program = "import sys, quaestor; print(sorted({'pymongo', 'redis', 'httpx', 'pydantic'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.strip() == "[]"

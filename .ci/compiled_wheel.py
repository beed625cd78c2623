"""Build hook of hatchling: with QUAESTOR_COMPILE=1 a wheel also contains modules that mypyc has compiled, from the same sources.

Such a wheel is for one platform and one minor version of Python. Without the variable the hook does nothing. pyproject.toml lists
the modules. mypyc sees those modules alone. Values from all other modules are untyped for mypyc, so it checks them at run time.
`make lint` checks the types.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_GROUP = "quaestor._compiled"
"""The shared library of all compiled modules. Its place is inside the package: the wheel has one top-level name."""
_OPTIONS = "[mypy]\nfollow_imports = skip\nignore_missing_imports = True\n"


class CompiledWheel(BuildHookInterface[Any]):
    """The hook."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return the requirements of this build, which an isolated one installs."""
        return self.config["compiler"] if self._wanted else []  # type: ignore[no-any-return]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the modules, and add them to the wheel."""
        if not self._wanted or version == "editable":
            return
        # A build that fails is not finalized: its folder goes with the process.
        self._temporary = tempfile.TemporaryDirectory(prefix="quaestor-compiled-")
        folder = Path(self._temporary.name)
        for module in self.config["modules"]:
            copy = folder / module
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(Path(self.root) / module, copy)
        subprocess.run([sys.executable, __file__, *self.config["modules"]], cwd=folder, check=True)
        library = folder / "library"
        build_data["pure_python"], build_data["infer_tag"] = False, True
        build_data["force_include"] |= {
            str(path): str(path.relative_to(library)) for path in library.rglob("*") if path.is_file()
        }

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary files."""
        if self._wanted and version != "editable":
            self._temporary.cleanup()

    @property
    def _wanted(self) -> bool:
        return os.environ.get("QUAESTOR_COMPILE") == "1"


def compile_here(modules: list[str]) -> None:
    """Compile these files of the current folder into its folder `library`."""
    from mypyc.build import mypycify
    from setuptools import Distribution

    Path("mypy.ini").write_text(_OPTIONS)
    # Packages need their __init__.py, or mypy gives the modules other names. Empty ones would be compiled, so they are stubs.
    for module in modules:
        for package in Path(module).parents[:-1]:
            (package / "__init__.pyi").touch()
    extensions = mypycify(
        ["--config-file=mypy.ini", *modules], group_name=_GROUP, target_dir="c", opt_level="2", debug_level="0"
    )
    build = Distribution({"name": "quaestor", "ext_modules": extensions}).get_command_obj("build_ext")
    build.build_lib, build.build_temp = "library", "objects"
    build.ensure_finalized()
    build.run()


if __name__ == "__main__":
    compile_here(sys.argv[1:])

"""``build_py`` of setuptools that puts a pack of kernels into the wheel.

::

    [build-system]
    requires = ["setuptools>=77", "cujit[cu13]"]
    build-backend = "setuptools.build_meta"

    [tool.setuptools.cmdclass]
    build_py = "cujit.integrations.setuptools_build.BuildPy"

    [tool.cujit.pack]
    worklist = "kernels.jsonl"
    arch = ["sm_80", "sm_90"]
    pack = "mylib/kernels.pack"
"""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools.command.build_py import build_py

from cujit.errors import OptionError
from cujit.integrations.wheels import WantedPack

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class BuildPy(build_py):  # type: ignore[misc]
    """Copies the package, and builds its pack, unless the install is editable."""

    def run(self) -> None:
        """Do it."""
        super().run()
        if not self.editable_mode:
            self._wanted().build(self._target())

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Return the written files, including the pack."""
        outputs: list[str] = super().get_outputs(include_bytecode)
        return outputs if self.editable_mode else [*outputs, str(self._target())]

    def _target(self) -> Path:
        return Path(self.build_lib, self._wanted().pack)

    def _wanted(self) -> WantedPack:
        project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
        table = project.get("tool", {}).get("cujit", {}).get("pack")
        if not isinstance(table, dict):
            raise OptionError("pyproject.toml contains no table [tool.cujit.pack]", help="docs/shipping.md")
        return WantedPack.of(table, Path.cwd(), where="tool.cujit.pack")

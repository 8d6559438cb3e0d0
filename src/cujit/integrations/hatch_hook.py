"""The build hook ``cujit`` of hatchling: puts a pack of kernels into the wheel.

::

    [build-system]
    requires = ["hatchling", "cujit[cu13]"]
    build-backend = "hatchling.build"

    [tool.hatch.build.targets.wheel.hooks.cujit]
    worklist = "kernels.jsonl"
    arch = ["sm_80", "sm_90"]
    pack = "mylib/kernels.pack"
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.plugin import hookimpl

from cujit.artifact.writing import make_temporary_directory
from cujit.integrations.wheels import WantedPack

_OF_HATCH = ("dependencies", "enable-by-default", "require-runtime-dependencies", "require-runtime-features")


class PackHook(BuildHookInterface):  # type: ignore[misc]
    """Builds the pack for a wheel, and none for an editable one, whose kernels are compiled when they are used."""

    PLUGIN_NAME = "cujit"
    _folder: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the pack, and have it put into the wheel."""
        if self.target_name != "wheel" or version == "editable":
            return
        settings = {key: value for key, value in self.config.items() if key not in _OF_HATCH}
        wanted = WantedPack.of(settings, self.root, where="the build hook cujit")
        self._folder = make_temporary_directory()
        path = self._folder / "kernels.pack"
        self.app.display_info(f"cujit: {wanted.build(path)}")
        build_data["force_include"][str(path)] = wanted.pack

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Delete what was built beside the wheel."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


@hookimpl  # type: ignore[untyped-decorator]
def hatch_register_build_hook() -> type[PackHook]:
    """Return the hook for hatchling."""
    return PackHook

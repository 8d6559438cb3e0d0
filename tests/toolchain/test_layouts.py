"""NVIDIA's wheels outside of site-packages, and wheels of which a file is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path

import pytest

import cujit

_SITE = Path(sysconfig.get_path("purelib"))
_PROGRAM = """
import cujit
kernel = "__global__ void k(int *o) { *o = 7; }"
fatbin = cujit.build(kernel, ["sm_90", "compute_80"], cache=False)
cujit.link([cujit.compile(kernel, to="ptx", rdc=True, cache=False)], cache=False)
out = cujit.cpu().zeros(1, "int32")
cujit.load(fatbin, "cpu")["k"][1, 1](out)
print(int(out.numpy()[0]), cujit.doctor().is_good)
"""


class Layout:
    """A virtual environment with everything but NVIDIA's toolkit wheels, which lie in ``wheels``."""

    def __init__(self, directory: Path) -> None:
        self.home = directory
        venv.create(directory / "venv", with_pip=False, symlinks=True)
        (self.site,) = (directory / "venv").glob("lib/python3.*/site-packages")
        self.wheels = directory / "wheels"
        self.wheels.mkdir()
        for entry in _SITE.iterdir():
            if entry.suffix != ".pth" and not entry.name.startswith(("pip", "setuptools")):
                (self.wheels if entry.name.startswith("nvidia") else self.site).joinpath(entry.name).symlink_to(entry)
        self.environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(directory),
            "PYTHONPATH": str(Path(cujit.__file__).parents[1]),
        }

    def run(self, code: str, environment: Mapping[str, str] = {}) -> str:
        """Run code in the environment, and return what it printed."""
        done = subprocess.run(
            [self.home / "venv/bin/python", "-c", code],
            env={**self.environment, **environment}, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Make one."""
    return Layout(tmp_path)


def test_wheels_on_pythonpath_are_found(layout: Layout) -> None:
    paths = os.pathsep.join([layout.environment["PYTHONPATH"], str(layout.wheels)])
    assert layout.run(_PROGRAM, {"PYTHONPATH": paths}) == "7 True"


def test_wheels_in_a_pth_file_are_found(layout: Layout) -> None:
    (layout.site / "wheels.pth").write_text(f"{layout.wheels}\n")
    assert layout.run(_PROGRAM) == "7 True"


def test_wheels_added_to_the_path_are_found(layout: Layout) -> None:
    added = f"import sys; sys.path.append({str(layout.wheels)!r})\n"
    assert layout.run(added + _PROGRAM) == "7 True"


def test_missing_wheels_are_reported_with_a_command(layout: Layout) -> None:
    code = "import cujit\ntry: cujit.compile('')\nexcept cujit.errors.ToolchainNotFoundError as e: print(e)"
    assert "pip install 'cujit[cu13]'" in layout.run(code)


_DOCTOR = """
import cujit, json
health = cujit.doctor()
print(json.dumps([health.is_good, {part.name: part.problem for part in health.parts}, list(health.fixes)]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the names of libraries are Linux's")
def test_doctor_finds_a_compiler_with_a_missing_file(layout: Layout) -> None:
    target = layout.home / "broken"
    for source in (_SITE / "nvidia").rglob("*"):
        copy = target / source.relative_to(_SITE)
        if source.is_dir():
            copy.mkdir(parents=True, exist_ok=True)
        elif not source.name.startswith("libnvrtc-builtins"):
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.symlink_to(source)
    paths = os.pathsep.join([layout.environment["PYTHONPATH"], str(target)])
    is_good, problems, fixes = json.loads(layout.run(_DOCTOR, {"PYTHONPATH": paths}))
    assert not is_good
    assert problems["NVRTC"].startswith("does not work: ")
    assert "libnvrtc-builtins" in problems["NVRTC"]
    assert any("--force-reinstall" in fix for fix in fixes)

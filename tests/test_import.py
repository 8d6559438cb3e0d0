"""Importing the package opens no library and reads nothing but itself."""

from __future__ import annotations

import os

import pytest

from processes import printed

_PRELUDE = """
import sys
def mapped():
    with open("/proc/self/maps") as maps:
        return {line.split(maxsplit=5)[5].strip() for line in maps if ".so" in line}
import __future__, collections, importlib, typing
before, modules = mapped(), set(sys.modules)
"""


def _run(code: str, **environment: str) -> str:
    return printed(_PRELUDE + code, environment=environment)


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="reads /proc/self/maps")
def test_importing_the_package_opens_no_shared_library() -> None:
    assert _run("import cujit; print(*(mapped() - before))").split() == []


def test_importing_the_package_imports_only_its_version() -> None:
    assert _run("import cujit; print(*sorted(set(sys.modules) - modules))").split() == ["cujit", "cujit.version"]


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="reads /proc/self/maps")
def test_importing_every_name_opens_no_nvidia_or_llvm_library() -> None:
    opened = _run("from cujit import *; print(*(mapped() - before))").split()
    names = [os.path.basename(path) for path in opened]
    foreign = ("libnvrtc", "libnvvm", "libnvJitLink", "libnvfatbin", "libcuda", "libcudart", "libllvmlite")
    assert [name for name in names if name.startswith(foreign)] == []


def test_importing_every_name_does_not_read_the_environment() -> None:
    """Broken settings do no harm before something is compiled."""
    _run("from cujit import *", CUDA_HOME="/no/where", CUDA_PATH="\n", CUDA_VISIBLE_DEVICES="nonsense")


@pytest.mark.parametrize(
    "first",
    [
        "import cujit",
        "import cujit.program",
        "import cujit.kernel",
        "import cujit.compiler.options.values as options; assert options.Options",
        "import cujit.devices.device as base; assert base.Device",
        "from cujit.compiler.options import values as options; assert options.Options",
        "from cujit import compile",
        "from cujit import registry; import cujit.devices.cpu; cujit.default_registry, cujit.occupancy.of",
    ],
)
def test_no_function_has_the_name_of_a_package(first: str) -> None:
    rooms = "cujit.arch, cujit.cache, cujit.compiler, cujit.devices, cujit.errors, cujit.occupancy, cujit.registry"
    check = f"import {rooms}, types; assert {{type(room) for room in ({rooms})}} == {{types.ModuleType}}"
    _run(f"{first}\n{check}; assert cujit.compile is cujit.program.compile")

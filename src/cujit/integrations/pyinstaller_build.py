"""Requirements of a PyInstaller application besides named imports: modules, data, and NVIDIA's wheels.

Source: PyInstaller manual, "Providing PyInstaller Hooks with your Package" and "Hook Global Variables".
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Iterator
from importlib.machinery import all_suffixes
from pathlib import Path

_WHEELS = (
    "cuda-cccl", "cuda-crt", "cuda-nvcc", "cuda-nvdisasm", "cuda-nvrtc", "cuda-runtime", "nvfatbin", "nvjitlink",
    "nvvm",
)  # fmt: skip
"""NVIDIA's wheels that compile, link, bundle and disassemble, without ``nvidia-`` and ``-cu12``."""

_DISTRIBUTIONS = ("cujit", "cuda-bindings", "cuda-pathfinder", "llvmlite", "numpy")
"""Whose versions cujit asks for at run time."""

_OF_FRAMEWORKS = ("cujit.integrations", "cujit.jax", "cujit.torch")
"""Packages that import what most programs have not; a program that uses one imports it by name."""


def hook_directories() -> list[str]:
    """Return the directory of the hook; PyInstaller calls this.

    Example::

        $ pyinstaller app.py
    """
    return [str(Path(__file__).with_name("pyinstaller_hooks"))]


def modules(package: str) -> list[str]:
    """Return the modules of a package, including subpackages, without importing them.

    Args:
        package: its full name. For cujit itself, modules for torch, JAX, and build tools are omitted.
    """
    spec = importlib.util.find_spec(package)
    places = spec.submodule_search_locations if spec else None
    return sorted({name for place in places or () for name in _modules_in(Path(place), package)})


def _modules_in(place: Path, package: str) -> Iterator[str]:
    for entry in place.iterdir():
        name = f"{package}.{entry.name.partition('.')[0]}"
        if name in _OF_FRAMEWORKS or not name.replace(".", "").isidentifier():
            continue
        if entry.is_dir() and (entry / "__init__.py").exists():
            yield name
            yield from _modules_in(entry, name)
        elif entry.is_file() and entry.name.endswith(tuple(all_suffixes())) and not name.endswith(".__init__"):
            yield name


def data_files() -> list[tuple[str, str]]:
    """List the files that are no modules, each with its directory in the program: cujit's, NVIDIA's, and metadata."""
    package = Path(__file__).parents[1]
    found = [(file, Path("cujit", file.relative_to(package))) for file in package.rglob("*") if _is_data(file)]
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"].lower().replace("_", "-")
        is_toolkit = name.startswith("nvidia-") and name[7:].removesuffix("-cu12") in _WHEELS
        if is_toolkit or name in _DISTRIBUTIONS:
            found += (
                (Path(str(distribution.locate_file(file))), Path(str(file)))
                for file in distribution.files or ()
                if file.parts[0].endswith(".dist-info") or (is_toolkit and file.parts[0] == "nvidia")
            )
    return [(str(file), os.fspath(place.parent)) for file, place in found if file.is_file() and _is_data(file)]


def _is_data(file: Path) -> bool:
    return file.is_file() and file.suffix not in (".py", ".pyc", ".pyi")

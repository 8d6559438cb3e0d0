"""Conversion of modules from and to CuPy, so that a program can migrate kernel by kernel."""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cujit.artifact import Artifact, ImageKind
from cujit.artifact.opening import open_image
from cujit.artifact.writing import make_temporary_directory, write_file
from cujit.cache.cache import Cache
from cujit.devices.streams import DeviceLike
from cujit.errors import ArgumentError, FormatError, MissingError, UnsupportedError, spell
from cujit.forks import once
from cujit.loading import Module, jit, load
from cujit.program import Source

_LOADED = (ImageKind.CUBIN, ImageKind.PTX, ImageKind.FATBIN)
"""What the driver loads. Source: CUDA Driver API manual, ``cuModuleLoadData``."""


def module_of(raw: Any, device: DeviceLike | str | None = None, *, cache: Cache | bool | None = None) -> Module:
    """Make a module of a ``cupy.RawModule`` or ``cupy.RawKernel``: of its file, or of its source, options and names.

    CuPy keeps no image, so a source is compiled by cujit, as it stands and through its cache. Where the options say no
    ``-std``, it is the compiler's own, C++17.

    Args:
        raw: a ``RawModule``; of a ``RawKernel`` the kernel is ``module_of(raw)[raw.name]``.
        device: a Device or its name. Default: the first GPU, or the CPU device if there is no GPU.
        cache: as for ``cujit.compile``.

    Raises:
        ArgumentError: ``raw`` is neither.
        UnsupportedError: CuPy has it compiled by NVCC, whose options are others.
        CujitError: see ``cujit.jit`` and ``cujit.load``.

    Source: CuPy manual, ``cupy.RawModule`` and ``cupy.RawKernel``; attributes of CuPy 14.

    Example::

        raw = cupy.RawModule(code=SOURCE, options=("-std=c++17",), name_expressions=["axpy<float>"])
        axpy = module_of(raw)["axpy<float>"]
    """
    if type(raw).__name__ not in ("RawModule", "RawKernel") or not type(raw).__module__.startswith("cupy"):
        raise ArgumentError(f"expected a CuPy RawModule or RawKernel, not {spell(raw)}", help="cujit.jit(source)")
    if raw.file_path is not None:
        return load(raw.file_path, device)
    if raw.backend != "nvrtc":
        raise UnsupportedError(
            f"{type(raw).__name__} uses the {raw.backend} compiler", help="cujit.jit(source, options=…)"
        )
    # A kernel says its names only to pickle, a module only as an attribute.
    names = raw.name_expressions if hasattr(raw, "name_expressions") else raw.__getstate__()["name_expressions"]
    folders, others = _include(raw.options)
    return jit(
        Source.cuda(raw.code, include=folders), names=names or (), device=device, options={"extra": others}, cache=cache
    )


def _include(options: Sequence[str]) -> tuple[list[str], list[str]]:
    """Part the directories of headers, which are an input of the cache's key, from all other arguments."""
    folders, others = [], []
    rest = iter(options)
    for option in rest:
        for spelling in ("--include-path", "-I"):
            if option == spelling:
                folders.append(next(rest, ""))
                break
            if option.startswith(spelling):
                folders.append(option.removeprefix(spelling).removeprefix("="))
                break
        else:
            others.append(option)
    return folders, others


def raw_module(image: Artifact | bytes | str | os.PathLike[str]) -> Any:
    """Return an image as a ``cupy.RawModule``, which CuPy loads at the first use on each GPU.

    It finds kernels by their lowered names: ``raw.get_function(artifact.names["axpy<float>"])``. CuPy wants a file, so
    the image is written to one of this process, which goes when it ends.

    Args:
        image: a cubin, PTX or fatbin: an Artifact, the bytes, or the path of a file.

    Raises:
        MissingError: CuPy is not installed.
        FormatError: it is an image of another kind, or none.

    Example::

        raw = raw_module(cujit.compile(SOURCE, arch="sm_90"))
        raw.get_function("scale")((4,), (256,), (x, numpy.float32(2), numpy.int32(1000)))
    """
    try:
        import cupy  # optional: CuPy
    except ImportError as e:
        raise MissingError(f"CuPy can't be imported: {e}", help="run pip install cupy-cuda13x") from e
    artifact = open_image(image, "raw_module")
    if artifact.kind not in _LOADED:
        raise FormatError(f"CuPy can't load {artifact.kind.value}", help="link it to a cubin: cujit.link([…], arch=…)")
    path = _folder() / f"{hashlib.sha256(artifact.data).hexdigest()}.{artifact.kind.value}"
    if not path.exists():
        write_file(path, artifact.data)
    return cupy.RawModule(path=str(path))


@once
def _folder() -> Path:
    """Create the directory for CuPy's files. The process that created it removes it, and forked processes don't."""
    made, owner = make_temporary_directory(), os.getpid()

    def take_away() -> None:
        if os.getpid() == owner:
            shutil.rmtree(made, ignore_errors=True)

    atexit.register(take_away)
    return made

"""The driver's own linker (``cuLink*``), for where nvJitLink is not installed."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cujit.arch import Arch
from cujit.arch.support import install
from cujit.artifact import Artifact, ImageKind
from cujit.devices.cuda.context import GpuContext
from cujit.devices.cuda.driver_options import JitLogs, driver_options
from cujit.devices.jit_options import JitOptions
from cujit.errors import ClosedError, LinkError
from cujit.errors.hints import Hint
from cujit.formats.cubin import read_cubin

_INPUT_TYPE = {
    ImageKind.PTX: "PTX",
    ImageKind.CUBIN: "CUBIN",
    ImageKind.FATBIN: "FATBINARY",
    ImageKind.OBJECT: "OBJECT",
    ImageKind.LIBRARY: "LIBRARY",
}


class DriverLinker:
    """A link by the driver, for the GPU of a context. Add images, and complete the link once. Use a ``with`` statement.

    The driver links PTX and relocatable cubins, also in fatbins, objects, and archives. It doesn't support LTO, or
    input that is newer than the driver.

    Source: CUDA Driver API manual, ``cuLinkCreate`` and ``cuLinkComplete``.

    Raises:
        DriverError: the driver reported an error.
    """

    def __init__(self, context: GpuContext, options: JitOptions) -> None:
        self._context = context
        self._logs = JitLogs()
        self._options = driver_options(context.driver, options, self._logs)
        names, values = list(self._options), list(self._options.values())
        self._state: Any = context.call("cuLinkCreate", len(names), names, values)
        self._finalizer = weakref.finalize(self, _destroy, context, self._state, self._logs)
        self._finalizer.atexit = False

    @property
    def log(self) -> str:
        """The output of the driver's linker and compiler so far, with errors last."""
        return self._logs.text

    def add(self, kind: ImageKind, data: bytes, name: str) -> None:
        """Add one image. ``name`` identifies the image in the log.

        Raises:
            LinkError: the driver doesn't link this kind of image, or rejected it. ``log`` contains the driver's output.
            ClosedError: the link is closed.
        """
        ended = data.rstrip(b"\0") + b"\0" if kind is ImageKind.PTX else data
        which = _input_type(self._context, kind, name)
        self._call("cuLinkAddData", name, self._open, which, ended, len(ended), name.encode(), 0, [], [])

    def add_file(self, kind: ImageKind, path: str | os.PathLike[str]) -> None:
        """Add one file, which the driver reads directly.

        Raises:
            LinkError: the driver doesn't link this kind of image, or rejected it. ``log`` contains the driver's output.
            ClosedError: the link is closed.
        """
        name = os.fspath(path)
        which = _input_type(self._context, kind, name)
        self._call("cuLinkAddFile", name, self._open, which, name.encode(), 0, [], [])

    def complete(self) -> bytes:
        """Link the images, and return the cubin.

        Raises:
            LinkError: the images can't be linked. ``log`` contains the reason.
            ClosedError: the link is closed.
        """
        address, size = self._call("cuLinkComplete", "the images", self._open)
        cubin = ctypes.string_at(int(address), int(size))
        missing = read_cubin(cubin).undefined
        if missing:  # seen with links that came out of the driver's own cache
            raise LinkError(
                f"symbols are still undefined after the driver linked the images: {', '.join(missing)}",
                call="cuLinkComplete",
                log=self.log,
                help="add the images that define them",
                code="undefined-symbol",
            )
        return cubin

    def close(self) -> None:
        """End the link; again is harmless."""
        self._finalizer()

    def __enter__(self) -> DriverLinker:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @property
    def _open(self) -> Any:
        if not self._finalizer.alive:
            raise ClosedError("this link is closed")
        return self._state

    def _call(self, function: str, what: str, *arguments: Any) -> Any:
        driver = self._context.driver
        with self._context:
            status, *values = driver.attempt(function, *arguments)
        if status != driver.bindings.CUresult.CUDA_SUCCESS:
            first = next((line for line in self.log.splitlines() if line.strip()), driver.describe(status))
            raise LinkError(
                f"the driver can't link {what}: {first}",
                tool=driver.name,
                call=function,
                result=getattr(status, "name", str(status)),
                log=self.log,
                help=f"nvJitLink also links LTO-IR and newer PTX: {install('cu13')}",
            )
        return tuple(values)


def link_with_driver(
    context: GpuContext, arch: Arch, artifacts: Iterable[Artifact], options: JitOptions | None = None
) -> Artifact:
    """Link images with the driver into a cubin for the GPU of ``context``, which has architecture ``arch``.

    Raises:
        LinkError: the images can't be linked. ``log`` contains the reason.
        DriverError: the driver reported an error.
    """
    with DriverLinker(context, options or JitOptions()) as linker:
        names = []
        for number, artifact in enumerate(artifacts, 1):
            names.append(f"{number}:{Path(artifact.name).name or artifact.kind.value}")
            linker.add(artifact.kind, artifact.data, names[-1])
        cubin = linker.complete()
        made = Artifact(ImageKind.CUBIN, cubin, arch, log=linker.log, name=" + ".join(names), tool=context.driver.name)
    if read_cubin(cubin).is_empty:
        raise LinkError(
            f"{made.name} produced an empty cubin",
            log=made.log,
            help=Hint("compile the inputs with rdc=True, or to PTX", shell="compile the inputs with -O rdc, or as PTX"),
            code="link-empty",
        )
    return made


def _input_type(context: GpuContext, kind: ImageKind, name: str) -> Any:
    if kind not in _INPUT_TYPE:
        raise LinkError(
            f"the driver can't link {kind.value} ({name})",
            help=f"to link LTO-IR, install nvJitLink: {install('cu13')}; compile LLVM IR first",
        )
    return getattr(context.driver.bindings.CUjitInputType, f"CU_JIT_INPUT_{_INPUT_TYPE[kind]}")


def _destroy(context: GpuContext, state: Any, logs: JitLogs) -> None:
    """End the link while its logs are still where the driver writes them."""
    context.release("cuLinkDestroy", state)
    del logs

"""As much of OpenCL as the benchmark of the CPU device needs, through ctypes.

Source: OpenCL API Specification 1.2, and its header ``CL/cl.h`` for the numbers.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
from collections.abc import Iterable
from typing import Any

import numpy as np
from cpu_cases import Array, Step

__all__ = ["OpenCl", "OpenClError", "Program"]

_SUCCESS, _DEVICE_CPU, _DEVICE_NAME, _PLATFORM_NAME, _BUILD_LOG = 0, 2, 0x102B, 0x0902, 0x1183
_READ_WRITE, _USE_HOST_MEMORY = 1, 8
_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_size_t
_MAKERS = "CreateContext CreateCommandQueue CreateBuffer CreateProgramWithSource CreateKernel"


class OpenClError(Exception):
    """OpenCL is not here, or refused something."""


def _checked(status: int, what: str) -> None:
    if status != _SUCCESS:
        raise OpenClError(f"{what} gave {status}")


class OpenCl:
    """The first CPU of an OpenCL platform: PoCL's, where it is installed."""

    def __init__(self, cache: str) -> None:
        """Open it; ``cache`` is a directory where PoCL may keep what it compiles."""
        found = ctypes.util.find_library("OpenCL")
        if found is None:
            raise OpenClError("libOpenCL is not installed")
        os.environ["POCL_CACHE_DIR"] = cache
        self.api: Any = ctypes.CDLL(found)
        for name in _MAKERS.split():
            getattr(self.api, f"cl{name}").restype = _POINTER
        platform, self.device = self._find()
        self.name = f"{self._text('PlatformInfo', platform, _PLATFORM_NAME)}, " + self._text(
            "DeviceInfo", self.device, _DEVICE_NAME
        )
        self.context = self.made("CreateContext", None, 1, ctypes.byref(self.device), None, None)
        self.queue = self.made("CreateCommandQueue", self.context, self.device, ctypes.c_uint64(0))

    def _find(self) -> tuple[ctypes.c_void_p, ctypes.c_void_p]:
        """Find the first platform with a CPU, and that."""
        platforms, count = (_POINTER * 8)(), ctypes.c_uint()
        if self.api.clGetPlatformIDs(8, platforms, ctypes.byref(count)) == _SUCCESS:
            for platform in platforms[: count.value]:
                device = _POINTER()
                handle = _POINTER(platform)
                if not self.api.clGetDeviceIDs(handle, ctypes.c_uint64(_DEVICE_CPU), 1, ctypes.byref(device), None):
                    return handle, device
        raise OpenClError("no OpenCL platform has a CPU")

    def _text(self, call: str, thing: ctypes.c_void_p, what: int) -> str:
        text = ctypes.create_string_buffer(256)
        _checked(getattr(self.api, f"clGet{call}")(thing, what, _SIZE(len(text)), text, None), f"clGet{call}")
        return text.value.decode()

    def made(self, name: str, *arguments: object) -> ctypes.c_void_p:
        """Call a ``clCreate…`` function, whose last argument is where the status goes."""
        status = ctypes.c_int()
        thing = getattr(self.api, f"cl{name}")(*arguments, ctypes.byref(status))
        _checked(status.value, f"cl{name}")
        return _POINTER(thing)

    def finish(self) -> None:
        """Wait for all launches."""
        _checked(self.api.clFinish(self.queue), "clFinish")


class Program:
    """A program with its arrays: ``set``, ``run``, ``get``."""

    def __init__(self, cl: OpenCl, source: str, arrays: Iterable[Array], steps: Iterable[Step]) -> None:
        self._cl, self._arrays = cl, tuple(arrays)
        self._buffers = tuple(self._buffer(array) for array in self._arrays)
        program = self._build(source)
        self._launches = [self._launch(program, step) for step in steps]

    def _buffer(self, array: Array) -> ctypes.c_void_p:
        """Make a buffer of an array's own memory, so that it lies in pages like everybody else's."""
        flags = ctypes.c_uint64(_READ_WRITE | _USE_HOST_MEMORY)
        memory = _POINTER(array.ctypes.data)
        return self._cl.made("CreateBuffer", self._cl.context, flags, _SIZE(array.nbytes), memory)

    def _build(self, source: str) -> ctypes.c_void_p:
        cl, text = self._cl, ctypes.c_char_p(source.encode())
        program = cl.made("CreateProgramWithSource", cl.context, 1, ctypes.byref(text), None)
        status = cl.api.clBuildProgram(program, 1, ctypes.byref(cl.device), None, None, None)
        if status != _SUCCESS:
            log = ctypes.create_string_buffer(1 << 14)
            cl.api.clGetProgramBuildInfo(program, cl.device, _BUILD_LOG, _SIZE(len(log)), log, None)
            raise OpenClError(f"clBuildProgram gave {status}: {log.value.decode()}")
        return program

    def _launch(self, program: ctypes.c_void_p, step: Step) -> tuple[object, ...]:
        """Prepare the arguments of one ``clEnqueueNDRangeKernel``: a kernel of its own holds its scalars."""
        cl = self._cl
        kernel = cl.made("CreateKernel", program, step.kernel.encode())
        scalars = [ctypes.c_float(s) if isinstance(s, float) else ctypes.c_int(s) for s in step.scalars]
        for index, value in enumerate((*self._buffers, *scalars)):
            size = _SIZE(ctypes.sizeof(value))
            _checked(cl.api.clSetKernelArg(kernel, index, size, ctypes.byref(value)), f"clSetKernelArg {index}")
        dimensions = len(step.grid)
        whole = (_SIZE * dimensions)(*(g * b for g, b in zip(step.grid, step.block, strict=True)))
        return cl.queue, kernel, dimensions, None, whole, (_SIZE * dimensions)(*step.block), 0, None, None

    def set(self, arrays: Iterable[Array]) -> None:
        """Copy data into the buffers."""
        self._copy("Write", tuple(arrays))

    def run(self) -> None:
        """Launch every step, and wait."""
        enqueue = self._cl.api.clEnqueueNDRangeKernel
        for arguments in self._launches:
            _checked(enqueue(*arguments), "clEnqueueNDRangeKernel")
        self._cl.finish()

    def get(self) -> tuple[Array, ...]:
        """Copy the buffers out."""
        arrays = tuple(np.empty_like(array) for array in self._arrays)
        self._copy("Read", arrays)
        return arrays

    def _copy(self, way: str, arrays: tuple[Array, ...]) -> None:
        copy = getattr(self._cl.api, f"clEnqueue{way}Buffer")
        for buffer, array in zip(self._buffers, arrays, strict=True):
            memory = _POINTER(array.ctypes.data)
            whole = _SIZE(array.nbytes)
            _checked(copy(self._cl.queue, buffer, 1, _SIZE(0), whole, memory, 0, None, None), f"clEnqueue{way}Buffer")

"""The compilers that PTX comes from and goes to: NVRTC makes it, nvJitLink assembles it."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable

import pytest
from cuda import pathfinder
from cuda.bindings import nvjitlink, nvrtc
from elftools.elf.elffile import ELFFile

Compile = Callable[..., str]
Assemble = Callable[[str, str], dict[str, bytes]]


@functools.cache
def _compile(source: str, arch: str, *options: str) -> str:
    include = pathfinder.find_nvidia_header_directory("cudart")
    assert include, "the CUDA headers are not installed"
    words = [f"-arch={arch}", f"-I{include}", f"-I{include}/cccl", "-w", "--device-int128", *options]
    result, program = nvrtc.nvrtcCreateProgram(source.encode(), b"/nowhere/kernel.cu", 0, [], [])
    assert result == nvrtc.nvrtcResult.NVRTC_SUCCESS
    (compiled,) = nvrtc.nvrtcCompileProgram(program, len(words), [word.encode() for word in words])
    if compiled != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = bytes(size)
        nvrtc.nvrtcGetProgramLog(program, log)
        pytest.fail(log.decode())
    _, size = nvrtc.nvrtcGetPTXSize(program)
    ptx: bytes = bytes(size)
    nvrtc.nvrtcGetPTX(program, ptx)
    nvrtc.nvrtcDestroyProgram(program)
    return ptx.decode()


def _assemble(ptx: str, arch: str) -> dict[str, bytes]:
    data = ptx.rstrip("\0").encode()
    handle = nvjitlink.create(1, [f"-arch={arch}"])
    try:
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, data, len(data), "test.ptx")
        nvjitlink.complete(handle)
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
    except nvjitlink.nvJitLinkError:
        log = bytearray(nvjitlink.get_error_log_size(handle))
        nvjitlink.get_error_log(handle, log)
        pytest.fail(log.decode())
    finally:
        nvjitlink.destroy(handle)
    wanted = (".text", ".nv.constant", ".nv.global", ".nv.shared")
    sections = ELFFile(io.BytesIO(bytes(cubin))).iter_sections()
    return {section.name: section.data() for section in sections if section.name.startswith(wanted)}


@pytest.fixture(scope="session")
def compile_ptx() -> Compile:
    """``compile_ptx(source, arch, *options)``: the PTX that NVRTC makes of CUDA C++."""
    return _compile


@pytest.fixture(scope="session")
def assemble() -> Assemble:
    """``assemble(ptx, arch)``: the sections with code and data of the cubin, by name."""
    return _assemble

"""Images: what is at an address, how long it is, and the PTX of it that runs; all else is refused by its kind."""

from __future__ import annotations

import ctypes
import mmap
import struct

import pytest

from cujit import build, compile
from cujit.artifact import ImageKind
from cujit.emulator.images import bytes_at, contained, ptx_of
from cujit.emulator.results import RefusedCall, Result
from cujit.formats.elf import read_elf

PTX = b".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n"
CODE = 'extern "C" __global__ void k(int *p) { *p = 7; }'


def at(data: bytes) -> int:
    """Put bytes somewhere, with others behind them; they stay for the test."""
    KEPT.append(ctypes.create_string_buffer(data + b"\xff" * 64, len(data) + 64))
    return ctypes.addressof(KEPT[-1])


KEPT: list[ctypes.Array[ctypes.c_char]] = []


def test_container_is_a_cuda_elf_file_with_ptx() -> None:
    data = contained(PTX)
    elf = read_elf(data)
    assert (elf.machine, elf.type, elf.length) == (190, 2, len(data))
    assert elf.content(elf.sections[1]) == PTX
    assert [section.name for section in elf.sections] == ["", ".cujit.ptx", ".cujit.arch", ".cujit.cubin", ".shstrtab"]


def test_images_have_their_declared_length() -> None:
    fatbin = build(CODE, ["sm_80", "compute_80", "compute_90"]).data
    container = contained(PTX)
    wrapper = struct.pack("<IIQQ", 0x466243B1, 1, at(fatbin), 0)
    for image, length in ((PTX + b"\0", PTX), (fatbin, fatbin), (container, container), (wrapper, fatbin)):
        assert bytes_at(at(image)) == length
    long_text = PTX + b"// " + b"x" * 300_000
    assert bytes_at(at(long_text + b"\0")) == long_text
    assert b"compute_90" not in ptx_of(fatbin).data
    assert b".target sm_90" in ptx_of(fatbin).data
    assert ptx_of(container).data == PTX


def refusal(data: bytes) -> tuple[Result, str]:
    with pytest.raises(RefusedCall) as caught:
        ptx_of(bytes_at(at(data)))
    return caught.value.result, caught.value.words


def test_foreign_image_is_refused_by_its_kind() -> None:
    cubin = compile(CODE, to="cubin", arch="sm_90").data
    newer = compile(CODE, to="cubin", arch="sm_100", lineinfo=True).data
    ltoir = compile(CODE, to="ltoir", arch="sm_90").data
    host = b"\x7fELF\x02\x01\x01".ljust(18, b"\0") + struct.pack("<H", 62) + b"\0" * 44
    assert refusal(cubin)[0] == Result.NO_BINARY_FOR_GPU
    assert "pass PTX" in refusal(cubin)[1]
    assert refusal(newer) == (
        Result.NO_BINARY_FOR_GPU,
        "the image is a cubin for sm_100, which doesn't run on sm_90a: emulate another compute capability",
    )
    assert refusal(cubin[:16] + b"\xff" * 2 + cubin[18:])[0] == Result.INVALID_IMAGE
    assert refusal(cubin[:40] + b"\xff" * 8 + cubin[48:])[0] == Result.INVALID_IMAGE
    assert refusal(build(CODE, ["sm_90"]).data)[0] == Result.NO_BINARY_FOR_GPU
    assert refusal(build(CODE, ["compute_120"]).data)[0] == Result.NO_BINARY_FOR_GPU
    assert refusal(ltoir)[0] == Result.NOT_SUPPORTED
    assert refusal(host)[0] == Result.INVALID_IMAGE
    for garbage in (
        b"garbage\0",
        b"\0",
        b"\x01\x02\x03",
        bytes(range(1, 255)),
        struct.pack("<IIQQ", 0x466243B1, 1, 16, 0),
    ):
        assert refusal(garbage)[0] == Result.INVALID_IMAGE
    assert refusal(PTX.replace(b"8.0", b"77.0") + b"\0")[0] == Result.UNSUPPORTED_PTX_VERSION
    assert refusal(PTX.replace(b"sm_80", b"sm_100") + b"\0")[0] == Result.INVALID_PTX
    assert ptx_of(PTX.replace(b"sm_80", b"sm_90a")).kind is ImageKind.PTX


def test_cubin_with_line_information_contains_its_ptx() -> None:
    for arch in ("sm_90", "sm_90a"):
        cubin = compile(CODE, to="cubin", arch=arch, lineinfo=True).data
        assert bytes_at(at(cubin)) == cubin
        assert ptx_of(bytes_at(at(cubin))).text.startswith("// recovered by cujit")
    fatbin = build(CODE, ["sm_80", "sm_90", "sm_120"], options={"lineinfo": True}).data
    assert ".target sm_90" in ptx_of(fatbin).text


def test_images_that_end_at_unmapped_memory_are_refused() -> None:
    """The page behind them is gone, so that one byte too many would end the process."""
    page = mmap.PAGESIZE
    library = ctypes.CDLL(None)
    library.mmap.restype = ctypes.c_void_p
    area = library.mmap(None, ctypes.c_size_t(2 * page), 3, 0x22, -1, ctypes.c_long(0))
    images = (build(CODE, ["compute_90"]).data, contained(PTX), PTX)
    assert library.munmap(ctypes.c_void_p(area + page), ctypes.c_size_t(page)) == 0
    for whole in images:
        start = area + page - 40
        ctypes.memmove(start, whole, 40)
        with pytest.raises(RefusedCall) as caught:
            bytes_at(start)
        assert caught.value.result == Result.INVALID_IMAGE
    ctypes.memmove(area + page - len(PTX) - 1, PTX + b"\0", len(PTX) + 1)
    assert bytes_at(area + page - len(PTX) - 1) == PTX
    for nowhere in (8, area + page, 1 << 63):
        with pytest.raises(RefusedCall):
            bytes_at(nowhere)


def test_ltoir_of_a_fatbin_is_linked_at_load() -> None:
    fatbin = build(CODE, ["lto_90"]).data
    assert b".entry k" in ptx_of(fatbin).data

"""Containers of PTX: what readers of cubins and of ELF see in them, and what damage of them is."""

from __future__ import annotations

import pytest

from cujit import inspect
from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.errors import FormatError, MissingError, NameNotFoundError
from cujit.formats.container import Container, container_bytes, is_container, read_container, write_container
from cujit.formats.cubin import read_cubin
from cujit.formats.elf import read_elf
from cujit.formats.fatbin import read_fatbin, select
from cujit.inspection.sass import disassemble, find_nvdisasm
from cujit.program import bundle, compile
from formats import damage
from raising import raises

CODE = '__device__ int seen; extern "C" __global__ void __launch_bounds__(64) k(int *p) { *p = seen; }'
SM_90 = Arch.parse("sm_90")


def container(target: str = "sm_90", *, with_cubin: bool = True, rdc: bool = False) -> bytes:
    """A container of a real compile."""
    ptx = compile(CODE, arch=Arch.parse(target).virtual, rdc=rdc).data
    cubin = compile(CODE, arch=target, rdc=rdc).data if with_cubin else b""
    return write_container(Container(ptx, Arch.parse(target), rdc, cubin))


@pytest.mark.parametrize("target", ["sm_75", "sm_90a", "sm_100f", "sm_121"])
def test_container_is_read_back_with_its_architecture(target: str) -> None:
    held = Container(b".version 8.0\n", Arch.parse(target), target == "sm_75", b"code")
    data = write_container(held)
    assert read_container(data + b"more") == held
    assert container_bytes(data[:64]) == len(data)
    elf = read_elf(data)
    assert (elf.machine, elf.type, elf.length) == (190, 1 if held.is_relocatable else 2, len(data))
    number = Arch.parse(target).number
    assert (elf.abi_version, elf.flags) == (8, number << 8 | 8 * target.endswith("a"))
    table_at, row_bytes = int.from_bytes(data[40:48], "little"), int.from_bytes(data[58:60], "little")
    assert data[table_at : table_at + row_bytes] == bytes(row_bytes), "the first section of an ELF file is none"
    assert Artifact.of(data).kind is ImageKind.CUBIN
    assert read_container(b".version 8.0") is None


def test_cubin_reader_returns_the_sass_and_ptx_of_a_container() -> None:
    for rdc in (False, True):
        whole, real = read_cubin(container(rdc=rdc)), read_cubin(compile(CODE, arch="sm_90", rdc=rdc).data)
        assert whole.ptx
        assert not real.ptx
        assert (whole.arch, whole.kernels, whole.variables, whole.toolkit) == (
            real.arch,
            real.kernels,
            real.variables,
            real.toolkit,
        )
        assert whole.is_relocatable == rdc


def test_container_without_sass_is_inspected_by_its_ptx() -> None:
    data = container("sm_90a", with_cubin=False)
    cubin = read_cubin(data)
    assert (cubin.arch, cubin.kernels, cubin.is_empty) == (Arch.parse("sm_90a"), (), False)
    with raises(NameNotFoundError, "name-not-found", "PTX", "machine"):
        cubin.kernel("k")
    (image,) = inspect(data).images
    (kernel,) = image.kernels
    assert (kernel.name, kernel.max_block, kernel.registers, kernel.arch) == ("k", (64, 1, 1), None, cubin.arch)
    assert [variable.name for variable in image.variables] == ["seen"]
    assert "cujit emulate" in image.note
    (whole,) = inspect(container()).images
    assert whole.kernels[0].registers
    assert "cujit emulate" in whole.note


def test_sass_of_a_container_is_disassembled_if_there_is_any() -> None:
    try:
        find_nvdisasm()
    except MissingError:
        pytest.skip("nvdisasm is not installed")
    assert disassemble(container(), ["k"]) == disassemble(compile(CODE, arch="sm_90").data, ["k"])
    with raises(FormatError, "format", "machine"):
        disassemble(container(with_cubin=False))


def test_gpus_skip_containers_and_emulated_gpus_skip_sass() -> None:
    images = [Artifact(ImageKind.CUBIN, container(), SM_90), compile(CODE, arch="compute_80")]
    made, real = read_fatbin(bundle(images).data), read_fatbin(bundle([compile(CODE, arch="sm_90"), images[1]]).data)
    for fatbin, emulated in ((made, True), (real, False)):
        taken, other = select(fatbin, SM_90, emulated=emulated), select(fatbin, SM_90, emulated=not emulated)
        assert taken is not None
        assert (taken.kind.name, is_container(taken.payload())) == ("CUBIN", emulated)
        assert other is not None
        assert other.kind.name == "PTX"


def test_damage_is_a_format_error_or_other_content() -> None:
    data = container()
    assert all(damage.refuses(read_container, cut) for cut in (data[:40], data[:-1], data[: len(data) // 2]))
    for damaged in (*damage.cuts(data, 100), *damage.flips(data, 300), *damage.flips(data, 300, only=64)):
        damage.survives(read_container, damaged)
        damage.survives(read_cubin, damaged)
    nested = write_container(Container(b"", SM_90, False, write_container(Container(b"", SM_90))))
    with raises(FormatError, "format", "another"):
        read_cubin(nested)

"""Cubins: what ptxas itself says of the kernels, every architecture, and what damage does."""

from __future__ import annotations

import pickle
import re

import pytest

from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.errors import FormatError, NameNotFoundError
from cujit.formats.cubin import Cubin, CubinVariable, MemorySpace, read_cubin
from cujit.formats.cubin_info import Attribute, InfoRecord, parameter_of
from cujit.formats.elf import read_elf
from cujit.signature import ParameterClass
from formats import abi7, damage, images
from raising import raises

_PROPERTIES = re.compile(
    r"Compiling entry function '(?P<name>\w+)'.*?Used (?P<registers>\d+) registers, used (?P<barriers>\d+) barriers"
    r"(?:, (?P<stack>\d+) bytes cumulative stack size)?(?:, (?P<shared>\d+) bytes smem)?"
    r"(?:, (?P<parameters>\d+) bytes cmem\[0\])?",
    re.DOTALL,
)
BLACKWELL = ("sm_100", "sm_120", "sm_121")


def zoo(arch: str, *options: str) -> Cubin:
    return read_cubin(images.cubin(images.ZOO, arch, *options))


@pytest.mark.parametrize("arch", images.ARCHES)
def test_resources_match_ptxas(arch: str) -> None:
    built = images.compiled(images.ZOO, arch, "--ptxas-options=-v")
    cubin = read_cubin(built.image)
    printed = {m["name"]: m for m in _PROPERTIES.finditer(built.log)}
    assert set(printed) == {k.name for k in cubin.kernels} == {"nothing", "mixed", "tile", "bounded", "stack"}
    for kernel in cubin.kernels:
        said = printed[kernel.name]
        assert kernel.registers == int(said["registers"])
        assert kernel.barriers == int(said["barriers"])
        assert kernel.stack_bytes == int(said["stack"] or 0)
        assert kernel.shared_bytes == int(said["shared"] or 0)
        if said["parameters"]:
            assert kernel.constant_bytes[0] == int(said["parameters"])


@pytest.mark.parametrize("arch", images.ARCHES)
def test_architecture_has_its_suffix(arch: str) -> None:
    assert zoo(arch).arch == Arch.parse(arch)
    assert zoo(arch, "-rdc=true").arch == Arch.parse(arch)


def test_toolkit_and_command_are_reported() -> None:
    cubin = zoo("sm_90")
    assert cubin.toolkit is not None
    assert cubin.toolkit >= (12, 0)
    assert "-arch sm_90" in cubin.commands[0]


def test_toolkit_is_reported_without_its_own_note() -> None:
    image = images.cubin(images.SAXPY)
    assert read_cubin(image.replace(b".note.nv.cuinfo", b".note.nv.nowhere"[:15])).toolkit == read_cubin(image).toolkit


def test_cubin_of_the_older_abi_has_equal_facts() -> None:
    cubin = read_cubin(abi7.cubin())
    assert (cubin.abi, cubin.arch, cubin.toolkit) == (7, Arch.parse("sm_90a"), (12, 9))
    kernel = cubin.kernel("tile")
    assert (kernel.barriers, kernel.shared_bytes, kernel.reserved_shared_bytes) == (1, 1200, 1024)
    assert [p.size for p in kernel.signature] == [16, 8, 8]
    assert damage.refuses(read_cubin, abi7.cubin()[:-1])


def test_reserved_shared_memory_is_separate_since_sm_90() -> None:
    assert [(zoo(a).kernel("tile").shared_bytes, zoo(a).kernel("tile").reserved_shared_bytes) for a in
            ("sm_75", "sm_89", "sm_90", "sm_120")] == [(1200, 0), (1200, 0), (1200, 1024), (1200, 1024)]  # fmt: skip


def test_launch_bounds_and_clusters_are_reported() -> None:
    source = """
    extern "C" __global__ void __launch_bounds__(96, 4) bounded(int* p) { *p = 1; }
    extern "C" __global__ void __cluster_dims__(2, 1, 1) clustered(int* p) { *p = 1; }
    extern "C" __global__ void __maxnreg__(40) lean(int* p) { *p = 1; }
    """
    cubin = read_cubin(images.cubin(source, "sm_90"))
    bounded, clustered, lean = (cubin.kernel(n) for n in ("bounded", "clustered", "lean"))
    assert (bounded.max_block, bounded.max_threads) == ((96, 1, 1), 96)
    assert clustered.cluster == (2, 1, 1)
    assert (clustered.max_block, clustered.max_threads, clustered.max_registers) == (None, None, None)
    assert lean.max_registers == 40


def test_maximum_cluster_size_is_reported() -> None:
    source = """
    extern "C" __global__ void __launch_bounds__(96, 1, 4) bounded(int* p) { *p = 1; }
    extern "C" __global__ void boundless(int* p) { *p = 1; }
    """
    cubin = read_cubin(images.cubin(source, "sm_90"))
    assert [cubin.kernel(n).max_cluster_blocks for n in ("bounded", "boundless")] == [4, None]


def test_unknown_stack_is_distinguished_from_a_known_one() -> None:
    source = """
    __device__ __noinline__ int deep(int* p, int n) { return n < 2 ? p[n] : deep(p, n - 1) + deep(p, n - 2); }
    extern "C" __global__ void recursive(int* p, int n) { *p = deep(p, n); }
    extern "C" __global__ void plain(int* p, int n) { *p = n; }
    """
    image = images.cubin(source, "sm_80")
    cubin = read_cubin(image)
    plain = cubin.kernel("plain")
    assert (plain.stack_bytes, plain.has_unbounded_stack) == (0, False)
    if cubin.toolkit and cubin.toolkit >= (13, 4):  # older ones say 0
        recursive = cubin.kernel("recursive")
        assert (recursive.stack_bytes, recursive.has_unbounded_stack) == (None, True)
    silent = read_cubin(image.replace(bytes((4, Attribute.MIN_STACK_SIZE, 8, 0)), bytes((4, 0xFE, 8, 0)))
                             .replace(bytes((4, Attribute.FRAME_SIZE, 8, 0)), bytes((4, 0xFE, 8, 0))))  # fmt: skip
    assert (silent.kernel("plain").stack_bytes, silent.kernel("plain").has_unbounded_stack) == (None, False)


def test_barrier_objects_in_shared_memory_are_counted() -> None:
    source = """
    extern "C" __global__ void waiting(unsigned long long* p) {
        __shared__ unsigned long long m[2];
        unsigned a = (unsigned)__cvta_generic_to_shared(m);
        asm volatile("mbarrier.init.shared.b64 [%0], 1; mbarrier.init.shared.b64 [%0+8], 1;" :: "r"(a) : "memory");
        *p = m[1];
    }
    """
    (kernel,) = read_cubin(images.cubin(source, "sm_90")).kernels
    assert (kernel.mbarriers, kernel.barriers) == (2, 0)


def test_tensor_memory_resources_are_reported() -> None:
    source = """
    extern "C" __global__ void tensor(unsigned* p) {
        __shared__ unsigned at;
        unsigned a = (unsigned)__cvta_generic_to_shared(&at);
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;" :: "r"(a) : "memory");
        *p = at;
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 32;" :: "r"(at));
    }
    """
    (kernel,) = read_cubin(images.cubin(source, "sm_100a")).kernels
    assert kernel.virtual_resources == 128
    assert {k.virtual_resources for k in zoo("sm_100").kernels} == {0}


def test_parameter_bytes_are_reported() -> None:
    kernels = zoo("sm_80").kernels
    assert {k.name: k.parameter_bytes for k in kernels} == {k.name: k.signature.size for k in kernels}


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_100", "sm_120"])
def test_parameters_have_their_sizes_and_offsets(arch: str) -> None:
    kernel = zoo(arch).kernel("mixed")
    assert [p.size for p in kernel.signature] == [1, 2, 8, 16, 16, 8, 32, 8]
    assert kernel.signature.offsets[:6] == (0, 2, 8, 16, 32, 48)
    assert zoo(arch).kernel("nothing").signature.parameters == ()


def test_wide_parameter_is_aligned_in_the_constant_bank() -> None:
    """The parameters begin at 0x210 on sm_90, which no alignment of 32 divides."""
    assert zoo("sm_75").kernel("mixed").signature.offsets == (0, 2, 8, 16, 32, 48, 64, 96)
    assert zoo("sm_90").kernel("mixed").signature.offsets == (0, 2, 8, 16, 32, 48, 80, 112)


@pytest.mark.parametrize("arch", images.ARCHES)
def test_pointers_are_reported_only_if_the_image_says_so(arch: str) -> None:
    kinds = [p.kind for p in zoo(arch).kernel("mixed").signature]
    pointer, unknown = ParameterClass.POINTER, ParameterClass.UNKNOWN
    if Arch.parse(arch).number >= 100:
        assert kinds == [unknown, unknown, pointer, unknown, unknown, unknown, unknown, pointer]
    else:
        assert kinds == [unknown] * 8


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
def test_large_parameters_are_read_from_version_2_records(arch: str) -> None:
    source = """
    struct Large { char b[28000]; };
    extern "C" __global__ void k(int n, Large v, int* p) { *p = v.b[n]; }
    """
    image = images.cubin(source, arch)
    kernel = read_cubin(image).kernel("k")
    assert [p.size for p in kernel.signature] == [4, 28000, 8]
    assert kernel.signature.offsets == (0, 4, 28008)
    kinds = [p.kind is ParameterClass.POINTER for p in kernel.signature]
    assert kinds == [False, False, arch == "sm_120"]


def test_version_2_record_has_wide_sizes() -> None:
    content = b"\0\0\0\0" + (3).to_bytes(2, "little") + (8).to_bytes(2, "little")
    content += (28000).to_bytes(2, "little") + (0x500).to_bytes(2, "little")
    parameter = parameter_of(InfoRecord(Attribute.KPARAM_INFO_V2, 0, content, 0))
    assert (parameter.ordinal, parameter.offset, parameter.size, parameter.is_pointer) == (3, 8, 28000, True)


@pytest.mark.parametrize("options", [(), ("-rdc=true",)])
@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
def test_variables_have_their_space(arch: str, options: tuple[str, ...]) -> None:
    assert set(zoo(arch, *options).variables) == {
        CubinVariable("table", 32, MemorySpace.CONSTANT),
        CubinVariable("counter", 4, MemorySpace.GLOBAL),
        CubinVariable("shared_with_host", 4, MemorySpace.MANAGED),
    }


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
def test_relocatable_image_lists_defined_and_missing_symbols(arch: str) -> None:
    caller, callee = (images.cubin(s, arch, "-rdc=true") for s in images.TWO_FILES)
    first, second = read_cubin(caller), read_cubin(callee)
    assert (first.is_relocatable, second.is_relocatable) == (True, True)
    assert ([k.name for k in first.kernels], first.functions, first.undefined) == (["k"], (), ("_Z5twicef",))
    assert (second.kernels, second.functions, second.undefined) == ((), ("_Z5twicef",), ())
    whole = read_cubin(images.linked((caller, callee), arch))
    assert (whole.is_relocatable, whole.undefined) == (False, ())
    assert [k.name for k in whole.kernels] == ["k"]
    assert whole.arch == Arch.parse(arch)


def test_dynamic_shared_memory_is_not_a_missing_symbol() -> None:
    assert zoo("sm_75", "-rdc=true").undefined == ()


def test_stack_of_a_relocatable_image_is_the_kernels_frame() -> None:
    assert zoo("sm_75", "-rdc=true").kernel("stack").stack_bytes == 256


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
def test_empty_cubin_of_nvjitlink_is_empty(arch: str) -> None:
    executable = images.cubin(images.SAXPY, arch)
    assert not read_cubin(executable).is_empty
    assert read_cubin(images.linked((executable,), arch)).is_empty


def test_module_of_only_variables_is_not_empty() -> None:
    assert not read_cubin(images.cubin("__device__ int counter;", "sm_80")).is_empty


def test_unknown_kernel_is_refused_with_known_names() -> None:
    with raises(NameNotFoundError, "name-not-found", "stack", "bounded", "tile", "mixed", "nothing"):
        zoo("sm_90").kernel("nowhere")


def test_values_are_pickled_and_hashed() -> None:
    cubin = zoo("sm_90")
    assert pickle.loads(pickle.dumps(cubin)) == cubin
    assert len({cubin, pickle.loads(pickle.dumps(cubin))}) == 1


# -- bad input ----------------------------------------------------------------------------------------------


def patched(image: bytes, at: int, value: bytes) -> bytes:
    return image[:at] + value + image[at + len(value) :]


def test_elf_file_for_another_machine_is_refused() -> None:
    with raises(FormatError, "format", "62", "at byte 18"):
        read_cubin(patched(images.cubin(images.SAXPY), 18, b"\x3e\0"))


def test_cubin_of_another_elf_type_is_refused() -> None:
    with raises(FormatError, "format", "3", "at byte 16"):
        read_cubin(patched(images.cubin(images.SAXPY), 16, b"\x03\0"))


def test_cubin_without_an_architecture_is_refused() -> None:
    with raises(FormatError, "format", "at byte 48"):
        read_cubin(patched(images.cubin(images.SAXPY), 48, bytes(4)))


def info(image: bytes, attribute: int) -> int:
    """The offset of the first record of an attribute in the records of saxpy."""
    section = read_elf(image).section(".nv.info.saxpy")
    assert section is not None
    at = image.index(bytes((4, attribute)), section.offset)
    assert at < section.offset + section.size
    return at


def test_record_of_an_unknown_format_is_refused_with_its_place() -> None:
    image = images.cubin(images.SAXPY)
    at = info(image, Attribute.KPARAM_INFO)
    with raises(FormatError, "format", "9", "format") as error:
        read_cubin(patched(image, at, b"\x09"))
    assert error.value.offset == at


def test_overlapping_parameters_are_refused() -> None:
    image = images.cubin(images.SAXPY)
    at = info(image, Attribute.KPARAM_INFO)  # of the last parameter: the records are in falling order
    with raises(FormatError, "format", "before it"):
        read_cubin(patched(image, at + 10, b"\x01\0"))


def test_missing_parameters_are_refused() -> None:
    image = images.cubin(images.SAXPY)
    at = info(image, Attribute.KPARAM_INFO)
    with raises(FormatError, "format", "missing"):
        read_cubin(patched(image, at + 8, b"\x07\0"))


@pytest.mark.parametrize("arch", ["sm_75", "sm_100f"])
def test_every_cut_is_refused(arch: str) -> None:
    image = images.cubin(images.ZOO, arch)
    assert all(damage.refuses(read_cubin, cut) for cut in damage.cuts(image, 150))


@pytest.mark.parametrize("arch", ["sm_75", "sm_100f"])
def test_damage_gives_a_value_or_a_format_error(arch: str) -> None:
    image = images.cubin(images.SAXPY, arch)
    for damaged in damage.flips(image, 400):
        damage.survives(read_cubin, damaged)
    for damaged in damage.flips(image, 300, seed=1, only=64):
        damage.survives(read_cubin, damaged)


def test_nonbytes_are_refused_with_a_hint() -> None:
    for bad, why in ((None, "NoneType"), (Artifact(ImageKind.PTX, b"x"), "artifact.data")):
        with raises(FormatError, "format", why):
            read_cubin(bad)  # type: ignore[arg-type]

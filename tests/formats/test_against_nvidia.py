"""Our readers beside NVIDIA's cuobjdump and nvdisasm, over files that nvcc, NVRTC and nvFatbin 12.0 to 13.5 made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cujit.formats.cubin import Cubin, CubinKernel, MemorySpace, read_cubin
from cujit.formats.fatbin import Compression, EntryKind, FatbinEntry, FatbinFlag, find_fatbins
from cujit.formats.ltoir import read_ltoir
from cujit.signature import ParameterClass
from formats import images, nvidia_tools

GOLDENS = Path(__file__).resolve().parents[1] / "goldens"
FILES = sorted(
    path for folder in ("fatbins", "device") for path in (GOLDENS / folder).iterdir()
    if path.suffix in (".fatbin", ".o", ".so", ".a") and "nvrtc-12.0" not in path.name
)  # fmt: skip
MODES = (
    (),
    ("-compress=false",),
    ("-compress-all",),
    ("-compress-mode=size",),
    ("-compress-all", "-compress-mode=speed"),
    ("-compress-mode=balance",),
    ("-compress-mode=none",),
    ("-concat",),
    ("-concat", "-compress-mode=speed"),
    ("-g", "-cuda"),
)
KINDS = {"elf": EntryKind.CUBIN, "ptx": EntryKind.PTX, "nvvm": EntryKind.LTOIR}
ARCHES = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_90a", "sm_100", "sm_120")


def made(mode: tuple[str, ...]) -> bytes:
    """A fatbin of the toolkit that is installed."""
    cubins = tuple(("cubin", a[3:], images.cubin(images.ZOO, a)) for a in ("sm_75", "sm_90a", "sm_100f"))
    return images.bundled(
        (*cubins, ("ptx", "75", images.ptx(images.ZOO)), ("ltoir", "90", images.ltoir(images.ZOO))), *mode
    )


@pytest.fixture(params=[*FILES, *MODES], ids=lambda p: p.name if isinstance(p, Path) else " ".join(("made", *p)))
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Each file of the goldens, and a fatbin in each packing that nvFatbin of today has."""
    if isinstance(request.param, Path):
        return request.param
    path = tmp_path / "made.fatbin"
    path.write_bytes(made(request.param))
    return path


def ours(file: Path) -> list[FatbinEntry]:
    return [entry for fatbin in find_fatbins(file.read_bytes()) for entry in fatbin]


def cubins(file: Path) -> list[Cubin]:
    return [read_cubin(e.payload()) for e in ours(file) if e.kind is EntryKind.CUBIN]


# -- fatbins ------------------------------------------------------------------------------------------------


def test_entries_match_cuobjdump(file: Path) -> None:
    theirs = nvidia_tools.entries(file)
    assert [described(entry) for entry in ours(file)] == [
        (
            KINDS[entry.kind],
            entry.fields["arch"],
            entry.fields["code version"],
            entry.fields.get("host"),
            entry.fields["compile_size"],
            entry.is_compressed,
            entry.is_debug,
            entry.fields.get("identifier", ""),
            (entry.fields.get("ptxasOptions") or entry.fields.get("nvvmOptions") or "").rstrip(),
        )
        for entry in theirs
    ]


def described(entry: FatbinEntry) -> tuple[object, ...]:
    """An entry in the words of cuobjdump."""
    host = "linux" if entry.flags & FatbinFlag.HOST_LINUX else None
    assert entry.arch is not None
    return (
        entry.kind,
        str(entry.arch.real),
        "[{},{}]".format(*entry.version),
        host,
        "64bit" if entry.flags & FatbinFlag.BITS_64 else "32bit",
        entry.is_compressed,
        entry.is_debug,
        entry.identifier,
        entry.options,
    )


def test_payloads_match_cuobjdump_byte_for_byte(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "extracted"
    folder.mkdir()
    extracted, texts, counts = nvidia_tools.payloads(file, folder)
    mine = {kind: [e.payload() for e in ours(file) if e.kind is kind] for kind in (EntryKind.CUBIN, EntryKind.PTX)}
    assert counts == (len(mine[EntryKind.CUBIN]), len(mine[EntryKind.PTX]))
    assert set(extracted) <= set(mine[EntryKind.CUBIN])
    assert set(texts) <= set(mine[EntryKind.PTX])
    # Entries of one name and architecture are written over each other.
    names = {(e.kind, e.identifier or e.offset, e.arch.number, e.arch.suffix == "a") for e in ours(file) if e.arch}
    assert len(extracted) == len([n for n in names if n[0] is EntryKind.CUBIN])
    assert len(texts) == len([n for n in names if n[0] is EntryKind.PTX])


def test_lto_ir_begins_with_the_version_of_its_entry(file: Path) -> None:
    for entry in ours(file):
        if entry.kind is EntryKind.LTOIR and not entry.flags & FatbinFlag.SCRAMBLED:
            header = read_ltoir(entry.payload())
            assert header.container_version == entry.version
            assert header.arch == entry.arch


# -- cubins -------------------------------------------------------------------------------------------------


def test_resources_match_cuobjdump(file: Path) -> None:
    theirs = [entry for entry in nvidia_tools.entries(file) if entry.kind == "elf"]
    for cubin, entry in zip(cubins(file), theirs, strict=True):
        assert {k.name: used(k) for k in cubin.kernels} == {
            name: numbers for name, numbers in entry.resources.items() if ("FUNC", "ENTRY", name) in entry.symbols
        }


def used(kernel: CubinKernel) -> dict[str, int]:
    """What a kernel uses in the words of cuobjdump; banks of the module are listed once, in common."""
    banks = {f"CONSTANT[{bank}]": size for bank, size in kernel.constant_bytes.items() if bank not in (3, 4) and size}
    assert kernel.registers is not None
    return {
        "REG": kernel.registers,
        "STACK": -1 if kernel.stack_bytes is None else kernel.stack_bytes,
        "SHARED": kernel.shared_bytes + kernel.reserved_shared_bytes,
        "LOCAL": 0,
        "TEXTURE": 0,
        "SURFACE": 0,
        "SAMPLER": 0,
    } | banks


def test_symbols_match_cuobjdump(file: Path) -> None:
    theirs = [entry.symbols for entry in nvidia_tools.entries(file) if entry.kind == "elf"]
    for cubin, symbols in zip(cubins(file), theirs, strict=True):
        functions = {(name, flag) for kind, flag, name in symbols if kind == "FUNC"}
        assert {k.name for k in cubin.kernels} == {name for name, flag in functions if flag == "ENTRY"}
        assert set(cubin.functions) >= {name for name, flag in functions if flag != "ENTRY"}
        if not cubin.is_relocatable:  # there, cuobjdump lists no variables
            assert {v.name: v.space is MemorySpace.MANAGED for v in cubin.variables} == {
                name: flag == "MANAGED" for kind, flag, name in symbols if kind == "OBJECT" and name != IN_SHARED
            }


IN_SHARED = "_ZZ5scaleE1s"
"""The shared memory of a kernel, which has a symbol in code for a debugger; it is no variable of the module."""


_PARAMETER = re.compile(r"Ordinal : (\S+)\s+Offset  : (\S+)\s+Size    : (\S+)\s.*?Space : (\S+)", re.DOTALL)


def test_parameters_and_launch_facts_match_cuobjdump(file: Path) -> None:
    theirs = nvidia_tools.kernel_records(file)
    for cubin, image in zip(cubins(file), theirs, strict=True):
        assert {k.name for k in cubin.kernels} <= set(image)
        for kernel in cubin.kernels:
            records = image[kernel.name]
            assert parameters_of(kernel) == sorted(printed_parameters(records)), kernel.name
            facts = [v for name, v in launch_facts(kernel) if cubin.abi >= 8 or name != "EIATTR_NUM_BARRIERS"]
            wanted = [v for name, v in printed_facts(records) if cubin.abi >= 8 or name != "EIATTR_NUM_BARRIERS"]
            assert facts == wanted, kernel.name


def parameters_of(kernel: CubinKernel) -> list[tuple[int, int, int, bool]]:
    return [
        (i, p.offset or 0, p.size, p.kind is ParameterClass.POINTER) for i, p in enumerate(kernel.signature.parameters)
    ]


def printed_parameters(records: list[tuple[str, str]]) -> Iterator[tuple[int, int, int, bool]]:
    for name, text in records:
        if name.startswith("EIATTR_KPARAM_INFO"):
            match = _PARAMETER.search(text)
            assert match is not None, text
            ordinal, offset, size, space = (int(word, 16) for word in match.groups())
            yield ordinal, offset, size, space == 5


FACTS = (
    "EIATTR_MAX_THREADS",
    "EIATTR_REQNTID",
    "EIATTR_CTA_PER_CLUSTER",
    "EIATTR_MAX_CLUSTER_RANK",
    "EIATTR_MAXREG_COUNT",
    "EIATTR_NUM_BARRIERS",
    "EIATTR_NUM_MBARRIERS",
    "EIATTR_VRC_CTA_INIT_COUNT",
    "EIATTR_CBANK_PARAM_SIZE",
)


def launch_facts(kernel: CubinKernel) -> list[tuple[str, tuple[int, ...]]]:
    values: tuple[tuple[int, ...] | int | None, ...] = (
        kernel.max_block,
        kernel.required_block,
        kernel.cluster,
        kernel.max_cluster_blocks,
        kernel.max_registers,
        kernel.barriers,
        kernel.mbarriers,
        kernel.virtual_resources,
        kernel.parameter_bytes,
    )
    return [(name, v if isinstance(v, tuple) else (v or 0,)) for name, v in zip(FACTS, values, strict=True)]


def printed_facts(records: list[tuple[str, str]]) -> list[tuple[str, tuple[int, ...]]]:
    printed = {
        name: tuple(int(w, 16) for w in text.removeprefix("Value:").split()) for name, text in records if name in FACTS
    }
    if printed.get("EIATTR_MAXREG_COUNT") == (255,):
        del printed["EIATTR_MAXREG_COUNT"]
    return [(name, printed.get(name, (0,))) for name in FACTS]


@pytest.mark.parametrize(
    ("name", "arches"),
    [
        ("nvrtc-12.4-nvfatbin-13.0-kernels", "sm_86"),
        ("nvrtc-12.9-nvfatbin-13.0-kernels", "sm_90a sm_100"),
        ("nvcc-13.0-all", "sm_75 sm_100f"),
        ("nvcc-13.5-kernels", "sm_80 sm_120"),
    ],
)
def test_code_and_producers_match_nvdisasm(name: str, arches: str, tmp_path: Path) -> None:
    chosen = [e for e in ours(GOLDENS / "fatbins" / f"{name}.fatbin") if str(e.arch) in arches.split()]
    assert len(chosen) == len(arches.split())
    for entry in chosen:
        path = tmp_path / "one.cubin"
        path.write_bytes(entry.payload())
        header, ends = nvidia_tools.disassembled(path)
        cubin = read_cubin(entry.payload())
        assert {k.name: k.code_bytes for k in cubin.kernels} == {k.name: ends[k.name] for k in cubin.kernels}
        version = header["SM"]["version"]
        assert cubin.arch.capability == (version["major"], version["minor"])
        assert cubin.abi == header["ELF"]["ei_abiversion"]
        note = header.get(".note.nv.tkinfo")
        if note is not None:
            assert cubin.commands[0] == note["tki_toolOptions"].strip()
            assert cubin.toolkit is not None
            assert "release {}.{}".format(*cubin.toolkit) in note["tki_toolVersion"]


# -- how much that is ---------------------------------------------------------------------------------------


def test_files_cover_toolkits_and_architectures() -> None:
    assert len([f for f in FILES if f.suffix == ".fatbin"]) + len(MODES) >= 30
    seen = {
        (k.name, str(cubin.arch), cubin.toolkit)
        for file in FILES for cubin in cubins(file) for k in cubin.kernels
    }  # fmt: skip
    assert len(seen) >= 400
    assert {arch for _, arch, _ in seen} >= set(ARCHES)
    assert {toolkit for _, _, toolkit in seen} == {(12, 4), (12, 9), (13, 0), (13, 5)}
    modes = {entry.compression for file in FILES for entry in ours(file)}
    assert modes == set(Compression)


def test_cubin_that_todays_cuobjdump_refuses_is_read() -> None:
    """cuobjdump 13.5 calls the ELF of CUDA 12.0 invalid; its kernels are those of the same source of 12.4."""
    first, later = (
        {c.arch: c for c in cubins(GOLDENS / "fatbins" / f"nvrtc-{v}-nvfatbin-12.4-default.fatbin")}
        for v in ("12.0", "12.4")
    )
    assert first.keys() == later.keys()
    for arch, cubin in first.items():
        assert (cubin.toolkit, cubin.abi) == ((12, 0), 7)
        assert [(k.name, k.signature, k.barriers, k.shared_bytes) for k in cubin.kernels] == [
            (k.name, k.signature, k.barriers, k.shared_bytes) for k in later[arch].kernels
        ]

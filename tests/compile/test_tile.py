"""CUDA Tile IR: made of CUDA Tile C++, assembled, bundled, inspected, kept, and run on the CPU device."""

from __future__ import annotations

import io
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from elftools.elf.elffile import ELFFile

import cujit
import cujit.worklist
from cujit import program
from cujit.artifact import Artifact, ImageKind
from cujit.artifact.artifact import kind_of
from cujit.cache.cache import Cache
from cujit.cache.pack import write_pack
from cujit.cache.provenance import Provenance
from cujit.cli.app import main as cli
from cujit.compiler.keys.recipe import read_recipe, write_recipe
from cujit.devices.device import Device
from cujit.emulator import images
from cujit.errors import (
    ArchError,
    BundleError,
    CompileError,
    FormatError,
    LinkError,
    LoadError,
    NotCompiledError,
    OptionError,
    ToolchainNotFoundError,
    ToolCrashError,
    ToolTimeoutError,
)
from cujit.formats.cubin import read_cubin
from cujit.formats.ptx.recovered import ptx_of_cubin
from cujit.occupancy.cubins import cubins_for
from cujit.program import Source
from cujit.toolchain.libraries import find_program
from cujit.toolchain.tileiras import Tileiras
from cujit.toolchain.toolset import Toolchain
from raising import raises
from tile_code import TWICE

CODE = """
#include <cuda_tile.h>
namespace ct = cuda::tiles;
template <typename T> __tile_global__ void scale(T* a, T* b, int n) {
    ct::tensor_span all{a, ct::extents<int, ct::dynamic_extent>{n}}, out{b, ct::extents<int, ct::dynamic_extent>{n}};
    ct::partition_view tiles{all, ct::shape<256>{}}, made{out, ct::shape<256>{}};
    made.store_masked(tiles.load_masked(ct::bid().x) * T(2), ct::bid().x);
}
namespace ours {
__tile_global__ void twice(float* a) {
    ct::tensor_span all{a, ct::extents<int, 1024>{}};
    ct::partition_view tiles{all, ct::shape<256>{}};
    tiles.store(tiles.load(ct::bid().x) * 2.0f, ct::bid().x);
}
}
__global__ void plain(float* a) { *a = 1; }
"""
SCALED = "_Z5scaleIfEvPT_S1_i"
GOLDEN = Path(__file__).parent.parent / "goldens" / "tileir" / "scale-13.5.tileir"

needs_tileiras = pytest.mark.skipif(find_program("tileiras", ()) is None, reason="tileiras is not installed")
needs_tile_code = pytest.mark.skipif(
    program.toolchain().nvrtc.version < (13, 3), reason="tile code came with CUDA 13.3"
)

needs_fatbins_of_tiles = pytest.mark.skipif(
    program.toolchain().nvfatbin.version < (13, 1), reason="nvFatbin 13.1 is the first that takes Tile IR"
)


@pytest.fixture(scope="module")
def tile(shared_toolchain: Toolchain) -> Artifact:
    if shared_toolchain.nvrtc.version < (13, 3):
        pytest.skip("tile code came with CUDA 13.3")
    return program.compile(Source.cuda(CODE, name="scale.cu"), to="tileir", names=["scale<float>"])


# -- making it ----------------------------------------------------------------------------------------------


def test_tile_kernels_are_compiled_with_names_and_types(tile: Artifact, tmp_path: Path) -> None:
    assert (tile.kind, tile.arch, kind_of(tile.data)) == (ImageKind.TILEIR, None, ImageKind.TILEIR)
    assert dict(tile.names) == {"scale<float>": SCALED, "ours::twice": "_ZN4ours5twiceEPf"}
    assert str(tile.signatures[SCALED]) == "(float*, float*, int)"
    again = program.compile(Source.cuda(CODE, name="scale.cu"), to="tileir", names=["scale<float>"])
    assert isinstance(again.provenance, Provenance)
    assert again.provenance.is_hit
    assert Artifact.open(tile.save(tmp_path / "scale.tileir")).kind is ImageKind.TILEIR


def test_requested_dialect_is_kept() -> None:
    request = cujit.request(CODE, to="tileir", std="c++23", enable_tile=True)
    assert [a for a in request.arguments() if "std" in a or "tile" in a] == ["--std=c++23", "--enable-tile"]


@needs_tile_code
def test_tile_ir_contains_no_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(tmp_path).encode() not in program.compile(CODE, to="tileir", cache=False).data


@needs_tile_code
def test_source_without_tile_kernels_is_refused() -> None:
    with raises(CompileError, "compile", "requires a tile kernel"):
        program.compile("__global__ void k() {}", to="tileir")


def test_damaged_tile_ir_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "cut.tileir"
    path.write_bytes(GOLDEN.read_bytes()[:8])
    with raises(FormatError, "format", "cut.tileir:", "truncated"):
        program.compile(path, arch="sm_90")


ONE_STEP = CODE.replace("__global__ void plain(float* a) { *a = 1; }", "// __global__")


@needs_tileiras
@needs_tile_code
def test_tile_code_is_built_in_one_step(tmp_path: Path) -> None:
    source = Source.cuda(ONE_STEP, name="scale.cu")
    fatbin = cujit.build(source, ["sm_80", "sm_120", "compute_80"], names=["scale<float>"], opt_level=2)
    assert [(str(image.arch), image.kind) for image in cujit.inspect(fatbin)] == [
        ("sm_80", ImageKind.CUBIN), ("sm_120a", ImageKind.CUBIN), ("compute_80", ImageKind.PTX),
    ]  # fmt: skip
    assert dict(fatbin.names) == {"scale<float>": SCALED, "ours::twice": "_ZN4ours5twiceEPf"}
    cubin = cujit.compile(source, arch="sm_80", names=["scale<float>"], opt_level=2)
    assert isinstance(cubin.provenance, Provenance)
    assert cubin.provenance.is_hit
    (tmp_path / "scale.cu").write_text(ONE_STEP)
    done = CliRunner().invoke(
        cli, ["build", str(tmp_path / "scale.cu"), "--target", "sm_90", "-o", str(tmp_path / "scale.fatbin")]
    )
    assert done.exit_code == 0, done.output
    assert [str(image.arch) for image in cujit.inspect(tmp_path / "scale.fatbin")] == ["sm_90a"]


@needs_tileiras
@needs_tile_code
def test_tile_code_is_compiled_and_run_in_one_step(cpu: Device) -> None:
    module = cujit.jit(Source.cuda(ONE_STEP, name="scale.cu"), device=cpu, names=["scale<float>"])
    x, y = cpu.array(np.arange(1000, dtype=np.float32)), cpu.zeros(1000, np.float32)
    block = cujit.inspect(module).kernel(SCALED).required_block
    assert block is not None
    module["scale<float>"].prepare(4, block)(x, y, 1000)
    assert (y.numpy() == 2 * np.arange(1000)).all()


@needs_tile_code
def test_mixed_kernels_and_unknown_options_are_refused() -> None:
    def jitted(code: str) -> object:
        return cujit.jit(code, device="cpu")

    for make in (cujit.compile, lambda code: cujit.build(code, "sm_80"), jitted):
        with raises(OptionError, "option-rejected", "__global__"):
            make(CODE)
    with raises(OptionError, "option-rejected", "relocatable"):
        cujit.compile(ONE_STEP, arch="sm_80", relocatable=True)


@needs_tileiras
@needs_tile_code
def test_kernels_of_headers_are_compiled_or_refused_by_name(cpu: Device) -> None:
    def jitted(source: Source) -> object:
        return cujit.jit(source, device=cpu)

    others = "__global__ void other(float* a) { *a = 1; }\ntemplate <typename T> __global__ void unused(T* a) {}\n"
    headers = {"tiles.cuh": TWICE, "others.cuh": others, "template.cuh": others.partition("\n")[2]}
    own = '#include "tiles.cuh"\n__tile_global__ void own(float* a) {}\n'
    for make in (lambda source: cujit.compile(source, arch="sm_80"), lambda s: cujit.build(s, ["sm_80"]), jitted):
        with raises(OptionError, "option-rejected", "kernels other"):
            make(Source.cuda('#include "others.cuh"\n' + own, name="mixed.cu", headers=headers))
        for first in ("", "#include <cuda_tile.h>\n"):
            lone = Source.cuda(f'{first}#include "tiles.cuh"\n', name="lone.cu", headers=headers)
            with raises(CompileError, "compile", "to='tileir'", "cujit.Source.tile(image)"):
                make(lone)
    module = cujit.jit(Source.cuda('#include "template.cuh"\n' + own, name="own.cu", headers=headers), device=cpu)
    assert sorted(module) == ["_Z5twicePfi", "own"]
    image = cujit.compile(lone, to="tileir")
    assert list(cujit.jit(Source.tile(image), device=cpu)) == ["_Z5twicePfi"]
    assert image.log == ""
    with raises(CompileError, "compile", "to='tileir'"):
        cujit.compile(lone, arch="sm_80", std="c++20")


@needs_tileiras
def test_host_object_of_a_cubin_is_neither_run_nor_decoded(tile: Artifact, cpu: Device) -> None:
    """A GPU's driver runs it to write tensor maps; here its bytes may be anything."""
    cubin = cujit.compile(Source.tile(tile), arch="sm_90").data
    sections = [*ELFFile(io.BytesIO(cubin)).iter_sections()]
    host = next(section for section in sections if section.name == ".nv.host")
    assert host.data()[:4] == b"\x7fELF"
    start, size = host["sh_offset"], host["sh_size"]
    for other in (b"\xcc" * size, bytes(size)):
        changed = cubin[:start] + other + cubin[start + size :]
        assert ptx_of_cubin(changed) == ptx_of_cubin(cubin)
        assert images.ptx_of(changed) == images.ptx_of(cubin)
        assert cujit.inspect(changed).kernels == cujit.inspect(cubin).kernels
        module = cujit.load(changed, cpu)
        x, y = cpu.array(np.ones(256, np.float32)), cpu.zeros(256, np.float32)
        block = cujit.inspect(changed).kernel(SCALED).required_block
        assert block is not None
        module[SCALED].prepare(1, block)(x, y, 256)
        assert (y.numpy() == 2).all()


# -- what takes it ------------------------------------------------------------------------------------------


def test_tile_ir_is_described_with_its_consumer() -> None:
    tile = Artifact.open(GOLDEN)
    [image] = cujit.inspect(tile)
    assert (image.kind, image.toolkit, sorted(k.name for k in image.kernels)) == (
        ImageKind.TILEIR, (13, 5), [SCALED, "_Z5twicePfS_"],
    )  # fmt: skip
    with raises(LoadError, "load", "cujit.compile"):
        cujit.load(tile, "cpu")
    with raises(LinkError, "link-input", "Tile IR"):
        cujit.link([tile], arch="sm_90")
    with raises(LinkError, "link-input", "Tile IR"):
        cujit.link([Source.tile(tile), Source.cuda("__global__ void k() {}")], arch="sm_90")
    with raises(FormatError, "format", "tileir"):
        cubins_for(tile, None)


@pytest.mark.parametrize(
    "form", [Artifact.open, pytest.param(lambda path: cujit.bundle([path]), id="fatbin", marks=needs_fatbins_of_tiles)]
)
@pytest.mark.parametrize(
    ("driver", "device", "loads", "why"),
    [
        ("13.5", "sm_90", True, "13.5"),
        (580, "sm_90", False, "this is one of CUDA 13.0"),
        ("13.5", "sm_75", False, "sm_75"),
        (None, None, True, "13.5 or later"),
    ],
)
def test_drivers_of_its_release_load_it(
    form: Callable[[object], Artifact], driver: str | int | None, device: str | None, loads: bool, why: str
) -> None:
    [verdict] = cujit.compat(form(GOLDEN), driver=driver, device=device)
    assert (verdict.loads, why in verdict.why) == (loads, True), verdict


def test_older_nvfatbin_is_reported_before_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cujit.compiler.backends.bundle.TILEIR_SINCE", (99, 0))
    with raises(BundleError, "bundle", "Tile IR", "pip install 'nvidia-nvfatbin>=99.0'"):
        cujit.bundle([GOLDEN], cache=False)


def test_older_bytecode_needs_the_driver_that_supports_the_gpu() -> None:
    older = GOLDEN.with_name("add-13.3.tileir")
    assert [cujit.compat(older, driver="13.3", device=d)[0].loads for d in ("sm_90", "sm_107")] == [True, False]


@needs_fatbins_of_tiles
def test_fatbin_contains_tile_ir_once_next_to_sass(tmp_path: Path) -> None:
    cubin = program.compile("__global__ void k() {}", arch="sm_90")
    fatbin = cujit.bundle([cubin, cujit.Entry(Artifact.open(GOLDEN), options="-O1", identifier="scale")])
    assert [(image.kind, image.arch and str(image.arch)) for image in cujit.inspect(fatbin)] == [
        (ImageKind.CUBIN, "sm_90"),
        (ImageKind.TILEIR, None),
    ]
    image = cujit.inspect(fatbin).images[1]
    assert (image.payload(), image.identifier) == (GOLDEN.read_bytes(), "scale")
    more = cujit.bundle([fatbin, program.compile("__global__ void k() {}", arch="sm_100")])
    assert len(cujit.inspect(more).images) == 3
    with raises(BundleError, "bundle-conflict", "tileir"):
        cujit.bundle([GOLDEN, GOLDEN.with_name("add-13.4.tileir")])
    with raises(FormatError, "format"):
        cujit.bundle([GOLDEN.read_bytes()[:1000]])
    found = CliRunner().invoke(cli, ["inspect", str(fatbin.save(tmp_path / "k.fatbin")), "--extract", str(tmp_path)])
    assert (tmp_path / "k.1.tileir").read_bytes() == GOLDEN.read_bytes(), found.output


def test_source_is_tile_ir_and_nothing_else() -> None:
    source = Source.of(str(GOLDEN))
    assert (source.language, source.name) == ("tile", str(GOLDEN))
    assert Source.of(Artifact.of(GOLDEN.read_bytes())).name == "source.tileir"
    assert "Tile IR" in repr(source)
    with raises(FormatError, "format", "not Tile IR"):
        Source.tile(b".version 9.0\n.target sm_80\n")
    with raises(FormatError, "format"):
        Source.tile(GOLDEN.read_bytes()[:1000])
    with raises(FormatError, "format"):
        Source.tile(3)
    with raises(OptionError, "option"):
        Source.tile(GOLDEN, name="a\nb")


def test_recipe_brings_source_and_names_back(tile: Artifact) -> None:
    for source in (Source.tile(tile), Source.tile(GOLDEN, name="k")):
        request = cujit.request(source, arch="sm_90", opt_level=1)
        assert read_recipe(write_recipe(request)) == request


# -- tileiras -----------------------------------------------------------------------------------------------


@needs_tileiras
@pytest.mark.parametrize(("arch", "made"), [("sm_80", "sm_80"), ("sm_90", "sm_90a"), ("sm_120", "sm_120a")])
def test_cubin_contains_names_types_and_its_ptx(arch: str, made: str, tile: Artifact) -> None:
    cubin = cujit.compile(tile, arch=arch)
    assert (cubin.kind, str(cubin.arch), dict(cubin.names)) == (ImageKind.CUBIN, made, dict(tile.names))
    assert str(cubin.signatures[SCALED]).startswith("(float*, float*,")
    assert cubin.tool.startswith("tileiras 13.")
    assert str(read_cubin(cubin.data).arch) == made
    assert SCALED in ptx_of_cubin(cubin.data)
    plain = cujit.compile(tile, arch=arch, lineinfo=False)
    assert not read_cubin(plain.data).carries_ptx


@needs_tileiras
def test_ptx_runs_on_the_cpu_device(tile: Artifact) -> None:
    device = cujit.cpu(check="all")
    module = cujit.jit(Source.tile(tile), device=device)
    x, y = device.array(np.arange(1000, dtype=np.float32)), device.zeros(1000, np.float32)
    module["scale<float>"].prepare(4, 128)(x, y, 1000)
    assert (y.numpy() == 2 * x.numpy()).all()
    ptx = cujit.compile(tile, arch="compute_86")
    assert (ptx.kind, str(ptx.arch)) == (ImageKind.PTX, "compute_86")
    assert "recovered" in ptx.text.split("\n")[0]
    assert cujit.link([ptx], arch="sm_86").data  # it assembles again


@needs_tileiras
def test_one_image_becomes_a_fatbin_for_many(tile: Artifact) -> None:
    fatbin = cujit.build(tile, targets=["sm_80", "sm_90", "compute_80"])
    assert [str(image.arch) for image in cujit.inspect(fatbin)] == ["sm_80", "sm_90a", "compute_80"]


@needs_tileiras
def test_second_compile_comes_from_a_pack_too(tile: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path / "cache")
    made = cujit.compile(tile, arch="sm_86", cache=cache)
    write_pack(tmp_path / "k.pack", cache.stores)
    shipped = Cache(None, read_only=[tmp_path / "k.pack"])
    other = cujit.compile(tile, arch="sm_86", cache=cache, opt_level=1)
    assert not (other.provenance and other.provenance.is_hit)
    monkeypatch.setenv("CUJIT_COMPILE", "never")
    found = cujit.compile(tile, arch="sm_86", cache=shipped)
    assert (found, bool(found.provenance and found.provenance.is_hit)) == (made, True)
    with raises(NotCompiledError, "not-compiled"):
        cujit.compile(tile, arch="sm_89", cache=shipped)


@needs_tileiras
def test_farms_and_worklists_build_tile_ir(tile: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = cujit.farm.build([cujit.request(tile, arch="sm_80")], ["sm_80", "sm_90"], sink=tmp_path / "farm")
    assert (report.made, report.failed) == (2, ())
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "first"))
    monkeypatch.setenv("CUJIT_RECORD", str(tmp_path / "recorded"))
    cujit.compile(tile, arch="sm_80")
    monkeypatch.delenv("CUJIT_RECORD")
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "second"))
    built = cujit.worklist.build(cujit.worklist.read(tmp_path / "recorded"))
    assert (built.made, built.failed) == (1, ())


@needs_tileiras
def test_remarks_of_tileiras_are_in_the_log(tile: Artifact, toolchain: Toolchain) -> None:
    plain, remarked = (cujit.compile(Source.tile(tile), arch="sm_90", extra=extra) for extra in ([], ["--remarks=all"]))
    assert "remark[" not in plain.log
    place = r".*/scale\.cu\":\d" if toolchain.tileiras.version >= (13, 4) else ""
    assert re.search(rf"remark\[\w+\]: .*\n{place}", remarked.log)


@needs_tileiras
def test_errors_of_tileiras_are_values(tile: Artifact) -> None:
    data = bytearray(tile.data)
    data[700:720] = b"\xff" * 20
    with raises(CompileError, "compile", "at offset") as refused:
        cujit.compile(Source.tile(bytes(data), name="cut.tileir"), arch="sm_80")
    assert {d.severity for d in refused.value.diagnostics} == {"error"}
    assert {d.file for d in refused.value.diagnostics} == {"cut.tileir"}
    if program.toolchain().tileiras.version >= (13, 4):  # before, it gives a status alone
        with raises(OptionError, "option-rejected", "--nonsense"):
            cujit.compile(tile, arch="sm_80", extra=["--nonsense"])
    with raises(OptionError, "option-rejected", "fmad"):
        cujit.compile(tile, arch="sm_80", fmad=True)
    with raises(OptionError, "option-rejected", "ltoir"):
        cujit.compile(tile, to="ltoir", arch="sm_80")
    with raises(ArchError, "arch-unsupported", "sm_75"):
        cujit.compile(tile, arch="sm_75")
    with raises(CompileError, "compile", "it contains"):
        cujit.compile(tile, arch="sm_80", names=["nothing"])
    with raises(CompileError, "compile", "optimized debugging"):
        cujit.compile(tile, arch="sm_80", debug=True)
    assert cujit.compile(tile, arch="sm_80", debug=True, opt_level=0).data


def _stand_in(directory: Path, does: str) -> Tileiras:
    """Return a tileiras that does something else with an image."""
    path = directory / "bin" / "tileiras"
    path.parent.mkdir()
    answers = 'case "$1" in --version) echo "release 13.5,"; exit;; --help) echo "  =sm_80 -"; exit;; esac'
    path.write_text(f"#!/bin/sh\n{answers}\n{does}\n")
    path.chmod(0o755)
    made = object.__new__(Tileiras)
    made.path = str(path)
    return made


def _assemble(directory: Path, does: str, **limits: float) -> Artifact:
    tools = program.toolchain()
    known = tools.__dict__.get("tileiras")
    tools.__dict__["tileiras"] = _stand_in(directory, does)
    try:
        return cujit.compile(Source.tile(GOLDEN, name="k.tileir"), arch="sm_80", cache=False, **limits)  # type: ignore[arg-type]
    finally:
        tools.__dict__.pop("tileiras")
        if known is not None:
            tools.__dict__["tileiras"] = known


@pytest.mark.parametrize(
    ("line", "place", "message"),
    [
        ("k.py:3:7: error: no such type", ("k.py", 3, 7), "no such type"),
        ('#x.di_loc<loc("/a b/k.py":3:0) in #x<file = <"k.py">>>: error: bad: f8', ("/a b/k.py", 3, 0), "bad: f8"),
        ("error: error at offset 3: cut", ("k.tileir", 0, 0), "error at offset 3: cut"),
    ],
)
def test_location_from_tileiras_is_kept(line: str, place: tuple[str, int, int], message: str, tmp_path: Path) -> None:
    (tmp_path / "said").write_text(line)
    with raises(CompileError, "compile", message) as refused:
        _assemble(tmp_path, f"cat '{tmp_path}/said' >&2; exit 1")
    [said] = refused.value.diagnostics
    assert (said.file, said.line, said.column, said.message) == (*place, message)


def test_tileiras_crash_is_reported(tmp_path: Path) -> None:
    with raises(ToolCrashError, "tool-crash", "SIGSEGV", "k.tileir for sm_80", "last words"):
        _assemble(tmp_path, "echo last words >&2; kill -SEGV $$")


def test_tileiras_ends_with_its_children_at_the_time_limit(tmp_path: Path) -> None:
    with raises(ToolTimeoutError, "tool-timeout"):
        _assemble(tmp_path, f"sleep 60 & echo $! > '{tmp_path}/child'; wait", timeout_s=2)
    child = int((tmp_path / "child").read_text())
    until = time.monotonic() + 20
    while _is_running(child) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _is_running(child)
    assert not [thread for thread in threading.enumerate() if thread.name == "cujit-tool"]


def _is_running(process: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def test_missing_tileiras_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("cujit.toolchain.tileiras", "cujit.machine.health"):
        monkeypatch.setattr(f"{module}.find_program", lambda *_: None)
    monkeypatch.setattr("cujit.machine.health.toolchain", Toolchain)
    with raises(ToolchainNotFoundError, "toolchain-not-found", "cujit[tile]"):
        Toolchain().compiler("tile")
    parts = {part.name: part for part in cujit.doctor().parts}
    assert (parts["tileiras"].state, parts["tileirdisasm"].state) == ("absent", "absent")
    assert "cujit[tile]" in parts["tileirdisasm"].fix


@needs_tileiras
def test_doctor_knows_the_programs() -> None:
    parts = {part.name: part for part in cujit.doctor().parts}
    has_both = find_program("tileirdisasm", ()) is not None  # the wheels before 13.4 have the assembler alone
    assert (parts["tileiras"].state, parts["tileirdisasm"].state) == ("ok", "ok" if has_both else "absent")
    assert parts["tileiras"].version == "{}.{}".format(*program.toolchain().tileiras.version)


@needs_tileiras
@needs_tile_code
def test_command_line_compiles_and_prints_tile_ir(tmp_path: Path) -> None:
    source = tmp_path / "scale.cu"
    source.write_text(CODE)
    run, made = CliRunner(), str(tmp_path / "scale.tileir")
    done = run.invoke(cli, ["compile", str(source), "-o", made, "-n", "scale<float>"])
    assert done.exit_code == 0, done.output
    if find_program("tileirdisasm", ()):
        text = run.invoke(cli, ["inspect", made, "--tile"])
        assert f"entry @{SCALED}(" in text.output
    done = run.invoke(cli, ["compile", made, "--arch", "sm_90", "-o", str(tmp_path / "k.cubin")])
    assert "cubin for sm_90a" in done.output
    refused = run.invoke(cli, ["inspect", str(tmp_path / "k.cubin"), "--tile"])
    assert (refused.exit_code, "no Tile IR" in str(refused.output) + str(refused.exception)) == (1, True)
    assert os.path.getsize(made) > 500

"""Which entries would load where, and why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cujit.arch.support import Version
from cujit.artifact import Artifact
from cujit.devices.cuda.compat import Verdict, compat, driver_version
from cujit.errors import ArchError, ArgumentError, FileError, FormatError, OptionError
from cujit.program import build, bundle, compile, toolchain
from inspection.files import archive, host_elf
from raising import raises

CODE = 'extern "C" __global__ void k(int* p) { *p = 1; }'
NEW = "ld.volatile.local.u32 %r1, [%r2];"  # came with 9.1


def ptx(version: str = "9.4", target: str = "sm_80", body: str = "") -> str:
    return (
        f".version {version}\n.target {target}\n.address_size 64\n"
        f".visible .entry k()\n{{\n.reg .b32 %r<4>;\n{body}\nret;\n}}\n"
    )


def only(image: Any, **where: Any) -> Verdict:
    (verdict,) = compat(image, **where)
    return verdict


def test_sass_loads_on_its_capability_from_its_minor_version() -> None:
    cubin = compile(CODE, arch="sm_80")
    assert only(cubin) == Verdict("cubin sm_80", True, "machine code, on sm_80 and later ones of capability 8.x")
    assert only(cubin, device="sm_86") == Verdict("cubin sm_80", True, "machine code")
    assert only(cubin, device="sm_90").why == "is for sm_80, but the device is sm_90"
    assert "compute_90" in only(cubin, device="sm_90").help
    assert only(compile(CODE, arch="sm_90a"), device="sm_90a").loads
    assert not only(compile(CODE, arch="sm_90a"), device="sm_100").loads


def test_sass_loads_with_every_driver_of_its_major_version() -> None:
    major, minor = toolchain().nvrtc.version
    cubin = compile(CODE, arch="sm_80")
    assert only(cubin, driver=(major, 0)).loads
    assert only(cubin, driver=(major + 1, 0)).loads
    verdict = only(cubin, driver=(major - 1, 9))
    assert not verdict.loads
    assert f"was made by CUDA {major}.{minor}; drivers of CUDA {major - 1}.9" in verdict.why
    assert "update the driver to r" in verdict.help


def test_sass_for_a_gpu_unknown_to_the_driver_does_not_load() -> None:
    if toolchain().nvrtc.version < (13, 4):
        pytest.skip("sm_107 came with CUDA 13.4")
    verdict = only(compile(CODE, arch="sm_107"), driver=(13, 0))
    assert "is for sm_107, which came with CUDA 13.4; the driver is of CUDA 13.0" in verdict.why
    assert "r615" in verdict.help


def test_image_that_needs_linking_does_not_load() -> None:
    assert "relocatable" in only(compile(CODE, arch="sm_80", rdc=True)).why
    ltoir = only(compile(CODE, to="ltoir", arch="sm_80"))
    assert (ltoir.entry, ltoir.loads, ltoir.why) == ("ltoir lto_80", False, "it must be linked first")
    assert "cujit.link" in ltoir.help


@pytest.mark.parametrize(
    ("target", "device", "loads"),
    [
        ("sm_80", "sm_75", False),
        ("sm_80", "sm_120", True),
        ("sm_90a", "sm_100", False),
        ("sm_100f", "sm_103", True),
        ("sm_100f", "sm_120", False),
    ],
)
def test_ptx_loads_on_later_architectures_but_variants_do_not(target: str, device: str, loads: bool) -> None:
    assert only(ptx("9.0", target), driver=(13, 0), device=device).loads is loads


def test_ptx_as_old_as_the_driver_is_compiled_by_its_jit() -> None:
    assert only(ptx("9.0"), driver=580).why == "PTX 9.0, through the driver's JIT, on sm_80 and later"
    assert only(ptx("9.4"), driver=(13, 9)).loads


def test_newer_ptx_loads_if_it_can_be_lowered() -> None:
    verdict = only(ptx(), driver=(13, 0), device="sm_90")
    assert verdict.loads
    assert verdict.why == (
        "lowered from PTX 9.4 to 9.0, through the driver's JIT, or assembled by an nvJitLink of CUDA 13.4 or later"
    )
    older = only(ptx(), driver=(12, 9), device="sm_90")
    assert older.why == "lowered from PTX 9.4 to 8.8, through the driver's JIT"


def test_newer_ptx_with_new_constructs_names_the_alternatives() -> None:
    verdict = only(ptx(body=NEW), driver=(13, 0), device="sm_90")
    assert not verdict.loads
    assert "line 7: ld.volatile.local.u32 came with PTX 9.1" in verdict.why
    assert verdict.help == (
        "an nvJitLink of CUDA 13.4 or later, which assembles it; or a driver of r590 or later; or machine code "
        "(target sm_…)"
    )
    assert "nvJitLink" not in only(ptx(body=NEW), driver=(12, 9)).help


def test_ptx_without_a_driver_names_the_smallest_that_loads_it() -> None:
    assert only(ptx()).why == "PTX 9.4, through the JIT of drivers of r445 (CUDA 11.0) and later, on sm_80 and later"
    assert "r590 (CUDA 13.1)" in only(ptx(body=NEW)).why


def test_unreadable_ptx_is_judged_by_its_first_lines() -> None:
    assert "r615" in only(ptx(body="a newer + syntax")).why
    assert "its text is not readable" in only(ptx(body="a newer + syntax"), driver=(13, 0)).why
    assert only(".version 9.0\n").why == "it has no .target sm_… line"


def test_fatbin_lists_every_entry_and_the_selected_one() -> None:
    fatbin = build(CODE, ["sm_80", "sm_90", "compute_75", "lto_80"])
    verdicts = {v.entry: v for v in compat(fatbin, driver=(13, 9), device="sm_86")}
    assert {entry: v.loads for entry, v in verdicts.items()} == {
        "cubin sm_80": True,
        "cubin sm_90": False,
        "ptx compute_75": True,
        "ltoir lto_80": False,
    }
    assert [entry for entry, v in verdicts.items() if v.picked] == ["cubin sm_80"]
    assert [v.entry for v in compat(fatbin, device="sm_120") if v.picked] == ["ptx compute_75"]
    assert not any(v.picked for v in compat(fatbin))


def test_image_may_be_bytes_text_or_a_path(tmp_path: Path) -> None:
    path = compile(CODE, arch="sm_80").save(tmp_path / "k.cubin")
    assert only(path) == only(str(path)) == only(path.read_bytes()) == only(Artifact.open(path))
    assert only(bundle([path])).entry == "cubin sm_80"
    with raises(FileError, "file", "No such file or directory"):
        compat(tmp_path / "none")
    with pytest.raises(FormatError):
        compat(path.read_bytes()[:500])
    with pytest.raises(ArgumentError):
        compat(3)  # type: ignore[arg-type]
    with pytest.raises(ArchError):
        compat(path, device="sm_81")


def test_llvm_ir_is_compiled_first() -> None:
    assert "must be compiled" in only('target triple = "nvptx64-nvidia-cuda"\n').why


@pytest.mark.parametrize(
    ("given", "version"),
    [
        ((13, 0), (13, 0)),
        ("13.0", (13, 0)),
        (580, (13, 0)),
        ("580", (13, 0)),
        ("r580", (13, 0)),
        ("580.65.06", (13, 0)),
        (589, (13, 0)),
        (590, (13, 1)),
        (None, None),
    ],
)
def test_driver_is_a_cuda_version_or_a_branch(given: Any, version: Version | None) -> None:
    assert driver_version(given) == version


@pytest.mark.parametrize("given", ["", "new", "13.0.x", (13,), 13.0, 12, "12", True, (8, 0), "r", "1.2.3.4"])
def test_malformed_driver_is_refused(given: Any) -> None:
    with raises(OptionError, "option-unknown", "driver"):
        driver_version(given)


def test_each_fatbin_of_a_linked_host_file_is_judged_alone() -> None:
    first, second = build(CODE, ["sm_80", "compute_75"]).data, build(CODE, ["sm_90"]).data
    for kind in (2, 3):  # executable, shared library
        verdicts = compat(host_elf(first + second, kind), driver=(13, 9), device="sm_86")
        assert [(v.entry, v.loads, v.picked) for v in verdicts] == [
            ("cubin sm_80 of fatbin 0", True, True),
            ("ptx compute_75 of fatbin 0", True, False),
            ("cubin sm_90 of fatbin 1", False, False),
        ]
        assert "build for sm_86" in verdicts[2].help


def test_objects_and_archives_are_linked_first() -> None:
    device_code = build(CODE, ["sm_80"]).data
    for image in (host_elf(device_code, 1), archive([host_elf(device_code, 3)])):
        assert only(image, device="sm_80").why == "it must be linked first"
    assert only(host_elf(b"", 3, b".data")).why == "it contains no device code"


def test_shared_library_of_nvcc_lists_what_the_runtime_loads() -> None:
    library = Path(__file__).parents[2] / "goldens/fatbins/nvcc-13.5-library.so"
    verdicts = compat(library, driver=(13, 9), device="sm_121")
    assert {v.entry.rpartition(" of ")[2] for v in verdicts} == {"fatbin 0"}
    assert [v.entry for v in verdicts if v.picked] == ["cubin sm_120 of fatbin 0"]
    assert [v.entry for v in verdicts if v.loads] == ["ptx compute_120 of fatbin 0", "cubin sm_120 of fatbin 0"]

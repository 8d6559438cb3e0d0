"""What is seen of a scene: the same values as verbs print, and what went wrong at its line."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

import cujit
import cujit.profile
import cujit.report
from cujit.errors import FormatError, LaunchError, OptionError
from cujit.explore import Scene, analyze
from cujit.explore.scene import MOST_ARGUMENT_BYTES
from cujit.explore.starters import STARTERS
from cujit.reproducer import fork_server
from cujit.values import replace
from explore.conftest import CODE, LAUNCHED
from raising import raises
from reproducer.serving import WITHOUT_FILTERS
from tile_code import TWICE, needs_tiles

SHARED = replace(LAUNCHED, source=CODE, name="shared.cu")


def test_scene_matches_a_profile_and_its_report() -> None:
    stages: list[str] = []
    began = time.perf_counter()
    seen = analyze(SHARED, say=stages.append)
    assert 0 < seen.seconds <= time.perf_counter() - began
    assert (seen.is_compiled, seen.is_counted, seen.kernels) == (True, True, ("transpose",))
    assert stages == ["compiling", "launching", "assembling"]
    profile = cujit.profile.Profile()
    device = cujit.cpu(profile=profile)
    module = cujit.jit(CODE, device=device, name="shared.cu", arch="sm_90", lineinfo=True)
    x, y = device.array(np.ones(4096, np.float32)), device.zeros(4096, np.float32)
    module["transpose"][(2, 2), (32, 32)](x, y, 64)
    report = cujit.report.of(module, profile=profile.kernels[0], on="H200", arch="sm_90", title=seen.report.title)
    assert json.dumps(seen.report.record(), sort_keys=True) == json.dumps(report.record(), sort_keys=True)


def test_compile_errors_are_shown_at_their_lines() -> None:
    began = time.perf_counter()
    seen = analyze(replace(SHARED, source=CODE.replace("* n + column]", "* m + column]")))
    assert 0 < seen.seconds <= time.perf_counter() - began
    assert not seen.is_compiled
    record = seen.record()
    (error,) = record["errors"]
    assert (error["rule"], error["source"]) == ("error", "shared.cu:4")
    assert error["column"] == CODE.splitlines()[3].index("* n") + 3
    assert [(each["kind"], len(each["lines"])) for each in record["listings"]] == [("source", 7)]


def test_warnings_are_shown_at_their_lines_with_the_rest() -> None:
    seen = analyze(replace(SHARED, source=CODE.replace("int column", "int unused, column", 1)))
    assert seen.is_counted
    (warned,) = seen.record()["errors"]
    assert (warned["rule"], warned["source"]) == ("warning", "shared.cu:3")


def test_check_finding_is_shown_at_its_source_line() -> None:
    seen = analyze(replace(SHARED, arguments="ones:f32:4090 zeros:f32:4096 64"))
    assert (seen.is_compiled, seen.is_counted) == (True, False)
    (error,) = seen.record()["errors"]
    assert (error["rule"], error["source"]) == ("memory", "shared.cu:4")
    assert error["ptx_line"] > 0
    kinds = [each.kind for each in seen.report.listings]
    assert kinds == ["source", "ptx", "sass"]


def test_race_is_found_unless_checks_are_off() -> None:
    racing = replace(SHARED, source=CODE.replace("    __syncthreads();\n", "    ;\n"))
    (error,) = analyze(replace(racing, check="race")).record()["errors"]
    assert error["rule"] == "race"
    assert error["source"] in ("shared.cu:4", "shared.cu:6")  # whoever comes second
    assert analyze(replace(racing, check="")).is_counted


def test_architecture_options_and_block_change_the_scene() -> None:
    first = analyze(SHARED).record()["kernels"][0]["occupancy"]
    other = analyze(replace(SHARED, arch="sm_80", on="")).record()
    assert [each["name"] for each in other["listings"]] == ["shared.cu", "PTX sm_80", "SASS sm_80"]
    assert other["kernels"][0]["occupancy"]["arch"] == "sm_80"
    assert first["arch"] == "sm_90"
    code = CODE.replace("__shared__", '#if N != 4\n#error "N"\n#endif\n__shared__')
    assert analyze(replace(SHARED, source=code, options="define=N=4")).is_compiled
    assert not analyze(replace(SHARED, source=code)).is_compiled
    small = analyze(replace(SHARED, block="32x16", check="memory")).record()["kernels"][0]
    assert small["occupancy"]["block"] == 512
    assert small["profile"]["threads"] == 4 * 512


def test_generic_code_is_assembled_for_the_named_gpu() -> None:
    for arch, assembled in (("sm_80", "SASS sm_80"), ("compute_80", "SASS sm_90")):
        listings = analyze(Scene(CODE, "shared.cu", arch=arch, on="H200")).report.listings
        assert [each.name for each in listings] == ["shared.cu", "PTX sm_80", assembled]


def test_option_word_may_stand_alone() -> None:
    together, apart = (Scene("", options=said).compiler_options() for said in ("-DN=4 -DM=5", "-D N=4 -D M=5"))
    assert together == apart


def test_options_reach_the_assembler_too() -> None:
    loop = "for (int i = 0; i < 40; i++)"
    body = f"float a[40]; {loop} a[i] = x[i]; __syncthreads(); {loop} x[i] = a[39 - i];"
    scene = Scene(f"__global__ void k(float *x) {{ {body} }}\n", "k.cu")
    free, few = (analyze(replace(scene, options=said)).record()["kernels"][0] for said in ("", "maxrregcount=24 -DN=1"))
    assert free["occupancy"]["registers"] > few["occupancy"]["registers"] <= 24


def test_without_a_launch_image_and_occupancy_are_seen() -> None:
    seen = analyze(Scene(CODE, "shared.cu", block="256", on="H200"))
    record = seen.record()
    (kernel,) = record["kernels"]
    assert (kernel["profile"], kernel["occupancy"]["block"], record["notes"]) == (None, 256, [])
    assert [each["kind"] for each in record["listings"]] == ["source", "ptx", "sass"]
    assert record["listings"][2]["ptx_lines"].count(0) < len(record["listings"][2]["ptx_lines"]) / 2


LAYOUT = (
    "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64-v16:16:16-v32:32:32-"
    "v64:64:64-v128:128:128-n16:32:64"
)
TEMPLATES = """template <class T> __global__ void axpy(T a, const T *x, T *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
__global__ void other(int *p) { *p = 1; }
__global__ void third(int *p) { *p = 2; }
"""


def test_gpu_without_known_bandwidths_has_only_occupancy() -> None:
    seen = analyze(replace(SHARED, arch="sm_80", on="A30"))
    (kernel,) = seen.record()["kernels"]
    assert seen.is_counted
    assert (kernel["occupancy"]["gpu"], kernel["profile"].get("bounds")) == ("A30", None)
    assert [note for note in seen.report.notes if note.startswith("no bounds: the table doesn't contain the clock")]


@pytest.mark.parametrize("starter", STARTERS, ids=lambda starter: starter.name)
def test_example_to_start_from_runs_and_has_nothing_wrong(starter: Scene) -> None:
    seen = analyze(starter)
    assert (seen.report.errors, seen.is_counted, seen.kernels) == ((), True, (starter.name,))


def test_one_of_several_kernels_is_named_with_its_types() -> None:
    scene = Scene(TEMPLATES, "axpy.cu", over="1000", arguments="2.0 ones:f64:1000 zeros:f64:1000 1000")
    seen = analyze(scene)
    (error,) = seen.record()["errors"]
    assert "axpy.cu contains 2 kernels" in error["text"]
    assert seen.kernels == ("other(int*)", "third(int*)") or set(seen.kernels) == {"other", "third"}
    seen = analyze(replace(scene, kernel="axpy<double>"))
    assert seen.is_counted
    assert seen.report.title == "axpy<double> of axpy.cu"
    assert [kernel.name for kernel in analyze(replace(scene, kernel="third", over="", grid="")).report.kernels] == [
        "third"
    ]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"arguments": "ones:f32:4096 64"}, "requires 3 arguments"),
        ({"arguments": "ones:f32:4096 zeros:f32:4096 'x"}, "No closing quotation"),
        ({"arguments": "nothing.npy 1 2"}, "nothing.npy"),
        ({"grid": "2x2", "block": ""}, "a grid requires a block"),
        ({"over": "5"}, "over chooses the grid"),
        ({"over": " ", "grid": "", "block": ""}, "there are no elements to process"),
        ({"block": "32x64"}, "supports at most 1024"),
        ({"block": "many"}, "block is 'many'"),
        ({"shared_bytes": "1x2"}, "one size"),
        ({"kernel": "absent"}, "absent"),
        ({"options": "nosuch=1"}, "nosuch"),
        ({"arch": "sm_1"}, "sm_1"),
        ({"on": "Voodoo 2"}, "Voodoo 2"),
        ({"check": "everything"}, "everything"),
        ({"grid": "9" * 5000}, "grid is"),
        ({"arguments": "zeros:f32:" + "9" * 5000}, "takes zeros:TYPE:SIZE"),
    ],
)
def test_invalid_input_is_an_error_in_the_report(said: dict[str, str], words: str) -> None:
    seen = analyze(Scene.of({**SHARED.to_json(), **said}))
    assert any(words in error["text"] for error in seen.record()["errors"]), seen.record()["errors"]
    assert not seen.is_counted or "on" in said


def test_array_sizes_are_checked_before_allocation() -> None:
    with raises(OptionError, "option"):
        Scene("", arguments=f"zeros:u8:{MOST_ARGUMENT_BYTES // 2} zeros:u8:{MOST_ARGUMENT_BYTES // 2 + 1}").values()
    assert len(Scene("", arguments="zeros:u8:7 2.0 null").values()) == 3
    numbers = f"2.0 {2 * MOST_ARGUMENT_BYTES}"
    assert len(Scene("", arguments=f"zeros:u8:{MOST_ARGUMENT_BYTES} {numbers}").values()) == 3, (
        "a number is not an array"
    )


def test_scene_is_read_strictly() -> None:
    assert Scene.of(SHARED.to_json()) == SHARED
    for wrong in ({"source": 1}, {"source": "", "timeout_s": 5}, {"source": "", "cooperative": "no"}, {}):
        with pytest.raises(FormatError):
            Scene.of(wrong)
    with pytest.raises(LaunchError):
        replace(SHARED, over="4").launch_of(None)  # type: ignore[arg-type]


def test_headers_next_to_the_file_are_found_and_quoted(tmp_path: Path) -> None:
    (tmp_path / "scale.h").write_text("__device__ float scale(float x) {\n    return 2 * x;\n}\n")
    code = '#include "scale.h"\n' + CODE.replace("1.5f * x[row * n + column]", "scale(x[row * n + column])")
    (tmp_path / "shared.cu").write_text("not this text")
    seen = analyze(replace(SHARED, source=code), path=str(tmp_path / "shared.cu"))
    assert seen.is_counted
    sources = [each for each in seen.report.listings if each.kind == "source"]
    assert [Path(each.name).name for each in sources] == ["shared.cu", "scale.h"]
    assert sources[0].lines[0] == '#include "scale.h"'


def test_llvm_ir_is_explored_too() -> None:
    text = """target triple = "nvptx64-nvidia-cuda"
target datalayout = "LAYOUT"
define void @one(float addrspace(1)* %p) {
  store float 1.0, float addrspace(1)* %p
  ret void
}
!nvvm.annotations = !{!0}
!0 = !{void (float addrspace(1)*)* @one, !"kernel", i32 1}
!nvvmir.version = !{!1}
!1 = !{i32 2, i32 0}
""".replace("LAYOUT", LAYOUT)
    seen = analyze(Scene(text, "one.ll", grid="1", block="1", arguments="zeros:f32:1"))
    assert seen.is_counted, seen.record()["errors"]
    assert [each.kind for each in seen.report.listings][:2] == ["source", "ptx"]
    assert [(each.form, each.word) for each in seen.fields["one"]] == [("array", "zeros:f32:1024")]


def test_printed_output_is_kept() -> None:
    code = 'extern "C" __device__ int printf(const char *, ...);\n__global__ void k() { printf("%d\\n", 6 * 7); }\n'
    assert analyze(Scene(code, grid="1", block="2")).printed == "42\n42\n"


def test_without_seccomp_nothing_is_launched_unless_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "_BEGIN", WITHOUT_FILTERS)
    seen = analyze(SHARED)
    (error,) = seen.record()["errors"]
    assert (seen.is_compiled, seen.is_counted) == (True, False)
    assert "no system-call filter for riscv64" in error["text"]
    trusted = analyze(SHARED, trusted=True)
    assert trusted.is_counted
    assert any("the launch could make any system call" in note for note in trusted.report.notes)


@needs_tiles
def test_tile_code_is_launched_and_shown_with_its_tile_ir() -> None:
    seen = analyze(Scene(TWICE, "twice.cu", grid="4", block="128", arguments="ones:f32:1000 1000"))
    assert (seen.is_compiled, seen.is_counted, seen.kernels) == (True, True, ("twice",))
    assert [each.kind for each in seen.report.listings if each.kind != "sass"] == ["source", "ptx", "tileir"]
    tile = seen.report.listings[-1]
    places = {place.line for place in tile.sources if place is not None and place.file == "twice.cu"}
    assert places >= {6, 7}

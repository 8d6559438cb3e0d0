from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from click.testing import Result

from cujit.cli.console import Rows
from cujit.cli.profile import render_costs
from cujit.loading import jit
from cujit.machine import cpu
from cujit.profile import Profile, ProfiledKernel
from cujit.program import Source, compile

Cujit: TypeAlias = Callable[..., Result]

CODE = """extern "C" __global__ void copy(const float *x, float *y, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i * stride];
}
"""
LAUNCH = ("--grid", "4", "--block", "64", "--arg", "ones:f32:4096", "--arg", "zeros:f32:256")


@pytest.fixture
def copy() -> Path:
    path = Path("copy.cu")
    path.write_text(CODE)
    return path


def test_line_is_printed_with_its_sectors(cujit: Cujit, copy: Path) -> None:
    result = cujit("profile", str(copy), *LAUNCH, "--arg", "8")
    assert result.exit_code == 0, result.stderr
    line = next(line for line in result.stdout.splitlines() if line.startswith("copy.cu:3"))
    assert "y[i] = x[i * stride];" in line
    assert line.split()[-2:] == ["288", "18.0"]
    assert "16 requests, 288 sectors (288 distinct), 9,216 bytes moved for 2,048 requested bytes" in result.stdout


def test_line_of_a_header_names_the_line_of_the_kernel(cujit: Cujit, copy: Path) -> None:
    Path("inner.cuh").write_text("__device__ inline float inner(const float *x, int i) { return x[i * 8]; }\n")
    middle = "__device__ inline float outer(const float *x, int i) {\n    return inner(x, i);\n}\n"
    copy.write_text(f'#include "inner.cuh"\n{middle}' + CODE.replace("x[i * stride]", "outer(x, i)"))
    result = cujit("profile", str(copy), *LAUNCH, "--arg", "8")
    assert result.exit_code == 0, result.stderr
    *table, advice, _ = result.stdout.splitlines()
    assert any(line.startswith("inner.cuh:1, inlined at copy.cu:7  ") for line in table)
    assert "each warp's load at inner.cuh:1, inlined at copy.cu:7 moves 32 sectors" in advice
    (kernel,) = json.loads(cujit("profile", str(copy), *LAUNCH, "--arg", "8", "--json").stdout)["kernels"]
    (load,) = (row for row in kernel["instructions"] if row["access"] == "ld" and row.get("requests"))
    assert [Path(call).name for call in load["inlined_at"]] == ["copy.cu:3", "copy.cu:7"]
    again = ProfiledKernel.from_json(kernel)
    assert load in again.to_json()["instructions"]


def test_line_with_repeated_sectors_shows_the_count(cujit: Cujit, copy: Path) -> None:
    heads = []
    for by in ("i", "i % 8"):
        copy.write_text(CODE.replace("[i", f"[{by}"))
        result = cujit("profile", str(copy), *LAUNCH, "--arg", "2")
        heads.append(next(line for line in result.stdout.splitlines() if "sectors" in line and "source" in line))
    assert [head.split()[-1] for head in heads] == ["each", "reuse"]
    line = next(line for line in result.stdout.splitlines() if line.startswith("copy.cu:3"))
    assert line.split()[-3:] == ["24", "1.5", "8.0"]


def test_profile_output_ends_with_advice_if_any(cujit: Cujit, copy: Path) -> None:
    said = "each warp's load at copy.cu:3 moves 32 sectors for 128 bytes: "
    said += "adjacent threads access addresses 32 bytes apart; "
    slow = cujit("profile", str(copy), *LAUNCH, "--arg", "8")
    advice, estimate = slow.stdout.splitlines()[-2:]
    assert advice.startswith(f"uncoalesced: {said}")
    assert re.fullmatch(r"estimate for H200: saves about \d+% of the run time", estimate)
    on = cujit("profile", str(copy), *LAUNCH, "--arg", "8", "--on", "T4")
    assert "estimate for T4: saves about" in on.stdout
    good = cujit("profile", str(copy), *LAUNCH, "--arg", "1")
    assert good.stdout.splitlines()[-1].startswith("copy.cu:4")
    slow, good = (cujit("profile", str(copy), *LAUNCH, "--arg", stride, "--json") for stride in ("8", "1"))
    (advice,) = json.loads(slow.stdout)["kernels"][0]["advice"]
    assert (advice["rule"], Path(advice["line"]).name) == ("uncoalesced", "copy.cu:3")
    assert f"{advice['finding']}: {advice['cause']}; {advice['cure']}".startswith(said)
    assert json.loads(good.stdout)["kernels"][0]["advice"] == []


@pytest.mark.parametrize("kind", ["source", "image"])
def test_json_has_the_names_of_counters(cujit: Cujit, copy: Path, kind: str) -> None:
    file = str(copy)
    if kind == "image":
        compile(Source.cuda(copy), arch="compute_80", lineinfo=True).save("copy.ptx")
        file = "copy.ptx"
    result = cujit("profile", file, "--kernel", "copy", *LAUNCH, "--arg", "1", "--json")
    assert result.exit_code == 0, result.stderr
    (kernel,) = json.loads(result.stdout)["kernels"]
    assert kernel["metrics"]["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == 32
    assert {Path(line["source"]).name for line in kernel["lines"] if line.get("sectors")} == {"copy.cu:3"}


def test_two_launches_are_compared(cujit: Cujit, copy: Path) -> None:
    Path("other.cu").write_text(CODE.replace("* stride", "* 8"))
    result = cujit("profile", str(copy), *LAUNCH, "--arg", "1", "--against", "other.cu")
    assert result.exit_code == 0, result.stderr
    row = next(line.split() for line in result.stdout.splitlines() if line.startswith("sectors"))
    assert row == ["sectors", "288", "64", "-224"]
    before = cujit("profile", "other.cu", *LAUNCH, "--arg", "1", "--json")
    Path("before.json").write_text(before.stdout)
    again = cujit("profile", str(copy), *LAUNCH, "--arg", "1", "--against", "before.json", "--json")
    told = json.loads(again.stdout)
    assert (told["before"], told["after"]) == ("copy", "copy")
    assert told["measures"]["sectors"] == {"before": 288, "after": 64, "difference": -224}
    assert told["measures"]["distinct_sectors"]["difference"] == -224
    assert told["measures"]["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"]["before"] == 256


def test_incomparable_or_unlaunchable_kernel_is_reported(cujit: Cujit, copy: Path) -> None:
    Path("odd.json").write_text("{}")
    result = cujit("profile", str(copy), *LAUNCH, "--arg", "1", "--against", "odd.json")
    assert result.exit_code == 1
    assert "'odd.json' was not written by cujit profile --json" in result.stderr
    Path("odd.json").write_text('{"schema": 1, "kernels": []}')
    assert "contains 0 kernels" in cujit("profile", str(copy), *LAUNCH, "--arg", "1", "--against", "odd.json").stderr
    empty = cujit("profile", str(copy), "--over", "0", *LAUNCH[4:], "--arg", "1")
    assert empty.exit_code == 2
    assert "--over must be at least 1" in empty.stderr


def test_gpu_bounds_are_printed_with_the_tightest_and_its_line(cujit: Cujit, copy: Path) -> None:
    result = cujit("profile", str(copy), *LAUNCH, "--arg", "8", "--on", "h200")
    assert result.exit_code == 0, result.stderr
    tightest = next(line for line in result.stdout.splitlines() if line.startswith("copy on H200 (sm_90), 1,980 MHz"))
    assert "L1 cache, a lower bound of 0.00227 µs, 100% of it at copy.cu:3, 18 sectors a request" in tightest
    row = next(line for line in result.stdout.splitlines() if line.startswith("memory"))
    assert row.split()[1:] == ["9,216", "bytes", "0.00192", "µs", "84%"]
    assert "not predicted run times; not modeled: latency and occupancy" in result.stdout


def test_json_and_comparisons_have_bounds(cujit: Cujit, copy: Path) -> None:
    result = cujit("profile", str(copy), *LAUNCH, "--arg", "8", "--on", "H200", "--json")
    found = json.loads(result.stdout)["kernels"][0]["bounds"]
    assert (found["gpu"], found["bounds"][0]["unit"]) == ("H200", "L1 cache")
    Path("before.json").write_text(result.stdout)
    again = cujit("profile", str(copy), *LAUNCH, "--arg", "1", "--on", "H200", "--against", "before.json", "--json")
    told = json.loads(again.stdout)["measures"]["bound in ns: L1 cache"]
    assert told == {"before": 2, "after": 1, "difference": -1}


def test_roofline_is_drawn_for_a_named_gpu(cujit: Cujit, copy: Path) -> None:
    pytest.importorskip("matplotlib")
    result = cujit("profile", str(copy), *LAUNCH, "--arg", "8", "--on", "H200", "--plot", "k.svg", "--dark")
    assert result.exit_code == 0, result.stderr
    assert "copy on H200" in Path("k.svg").read_text()
    unsaid = cujit("profile", str(copy), *LAUNCH, "--arg", "8", "--plot", "k.svg")
    assert unsaid.exit_code == 2
    assert "specify --on GPU" in unsaid.stderr
    unknown = cujit("profile", str(copy), *LAUNCH, "--arg", "8", "--on", "V100")
    assert unknown.exit_code == 1
    assert "known are T4, A100" in unknown.stderr


def test_unknown_lines_are_replaced_by_ptx_lines(cujit: Cujit, copy: Path) -> None:
    compile(Source.cuda(copy), arch="compute_80").save("copy.ptx")
    lines = cujit("profile", "copy.ptx", *LAUNCH, "--arg", "8").stdout.splitlines()
    assert any(line.startswith("no source lines are known (compile with -O lineinfo") for line in lines)
    told = [line for line in lines if line.startswith("PTX:")]
    (load,) = (line for line in told if "ld.global.f32" in line)
    assert load.split()[-2:] == ["256", "32.0"]
    assert not any("ld.param" in line or "mov" in line for line in told)


def test_empty_kernel_has_no_bounds_and_no_empty_table(cujit: Cujit) -> None:
    Path("none.cu").write_text('extern "C" __global__ void none() {}')
    result = cujit("profile", "none.cu", "--grid", "1", "--block", "32", "-O", "lineinfo=false", "--on", "H200")
    assert result.exit_code == 0, result.stderr
    assert "no lower bound, because the launch used no unit that cujit models" in result.stdout
    assert "share of the highest" not in result.stdout
    assert "no source lines are known" not in result.stdout


@pytest.mark.parametrize("gpu", ["GTX 1080", "sm_90", "H9000", ""])
def test_gpu_without_bounds_is_refused_with_known_gpus(cujit: Cujit, copy: Path, gpu: str) -> None:
    result = cujit("profile", str(copy), *LAUNCH, "--arg", "8", "--on", gpu)
    assert result.exit_code == 1
    assert "hint: known are T4, A100, A100 40GB, L4, L40S," in result.stderr
    assert "--processors" not in result.stderr


def test_textures_are_printed_if_there_are_any() -> None:
    profile = Profile()
    device = cpu(profile=profile)
    code = """extern "C" __global__ void read(cudaTextureObject_t t, float *y) {
        y[threadIdx.x] = tex1Dfetch<float>(t, threadIdx.x);
    }"""
    texture = device.texture(device.zeros(64, np.float32))
    jit(code, device=device, name="t.cu")["read"][1, 64](texture.handle, device.zeros(64, np.float32))
    (table,) = (part for part in render_costs(profile.kernels[0]) if isinstance(part, Rows))
    assert [cell for row in table.rows if (cell := row[table.columns.index("textures")])] == ["2"]


@pytest.mark.parametrize("name", ["tr\u00e4ns \u65e5.cu", 'a "b" \\ c.cu', "\u03c0.cu"])
def test_file_names_are_printed_unchanged(cujit: Cujit, name: str) -> None:
    Path(name).write_text(CODE)
    result = cujit("profile", name, *LAUNCH, "--arg", "8", "--html", "report.html")
    assert result.exit_code == 0, result.stderr
    line = next(line for line in result.stdout.splitlines() if line.startswith(f"{name}:3"))
    assert "y[i] = x[i * stride];" in line
    assert f"each warp's load at {name}:3 moves 32 sectors" in result.stdout
    assert "not quoted" not in Path("report.html").read_text()

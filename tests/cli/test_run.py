from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np
import pytest
from click.testing import Result

from costs import spent_by
from cujit.arch import Arch
from cujit.cli.arches import arch_for
from cujit.devices.device import Device
from cujit.program import Source, build, compile
from groups import GROUPS
from llvm_ir import SCALE

Cujit: TypeAlias = Callable[..., Result]

_AXPY = ("--kernel", "axpy<float>", "--device", "cpu")
_ARGS = ("--arg", "2.0", "--arg", "arange:f32:8", "--arg", "ones:f32:8", "--arg", "8")
_EXPECTED = [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0]


def test_source_is_compiled_and_run(cujit: Cujit, axpy: Path) -> None:
    result = cujit("run", str(axpy), *_AXPY, "--over", "8", *_ARGS, "--print", "3")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "[ 1.  3.  5.  7.  9. 11. 13. 15.]\n"
    assert "axpy<float> on cpu: grid 1, block 32" in result.stderr


@pytest.mark.parametrize("kind", ["ptx", "fatbin"])
def test_image_kind_is_detected_by_content_and_run(cujit: Cujit, axpy: Path, kind: str) -> None:
    source = Source.cuda(axpy)
    artifact = (
        compile(source, arch="compute_80", names="axpy<float>")
        if kind == "ptx"
        else build(source, ["sm_90", "compute_80"], names="axpy<float>")
    )
    artifact.save("image.bin")
    result = cujit("run", "image.bin", *_AXPY, "--grid", "2", "--block", "4", *_ARGS, "--json", "--print", "3")
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert told["arrays"] == {"3": _EXPECTED}
    assert (told["kernel"], told["device"], told["grid"], told["block"]) == ("axpy<float>", "cpu", [2, 1, 1], [4, 1, 1])
    assert told["lowered_name"].startswith("_Z4axpyIf")
    assert told["load_s"] > 0
    assert len(told["launch_s"]) == 1


def test_arrays_are_read_from_and_written_to_files(cujit: Cujit, axpy: Path) -> None:
    np.save("x.npy", np.arange(8, dtype=np.float32))
    np.save("y.npy", np.ones(8, np.float32))
    arguments = ("--arg", "2.0", "--arg", "x.npy", "--arg", "y.npy", "--arg", "8")
    result = cujit("run", str(axpy), *_AXPY, "--over", "8", *arguments, "--out", "3=done", "--out", "2=x2.npy")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    assert np.load("done").tolist() == _EXPECTED
    assert np.load("x2.npy").tolist() == list(range(8))
    assert np.load("y.npy").tolist() == [1.0] * 8


def test_options_reach_the_compiler(cujit: Cujit, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("__global__ void k(int* x) { *x = N; }")
    result = cujit(
        *("run", "k.cu", "-k", "k", "-D", "N=42", "--grid", "1", "--block", "1", "--arg", "zeros:i32:1"),
        *("--print", "1", "--device", "cpu"),
    )
    assert result.stdout == "[42]\n", result.stderr


def test_launch_has_three_axes_and_shared_memory(cujit: Cujit, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("""
        __global__ void k(int* x) {
            extern __shared__ int s[];
            s[threadIdx.y] = threadIdx.y;
            x[(blockIdx.z * gridDim.y + blockIdx.y) * blockDim.y + threadIdx.y] = s[threadIdx.y] + 10 * blockIdx.z;
        }""")
    result = cujit(
        *("run", "k.cu", "-k", "k", "--grid", "1x1x2", "--block", "1,2", "--shared-bytes", "8"),
        *("--arg", "zeros:i32:4", "--print", "1", "--device", "cpu", "--json"),
    )
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert told["arrays"] == {"1": [0, 1, 10, 11]}
    assert (told["grid"], told["block"], told["shared_bytes"]) == ([1, 1, 2], [1, 2, 1], 8)


def test_repeat_launches_several_times_and_time_prints(cujit: Cujit, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("__global__ void k(int* x) { *x += 1; }")
    result = cujit(
        *("run", "k.cu", "-k", "k", "--grid", "1", "--block", "1", "--arg", "zeros:i32:1", "--repeat", "3", "--time"),
        *("--print", "1", "--device", "cpu"),
    )
    assert result.stdout == "[3]\n", result.stderr
    assert "the best of 3" in result.stderr


def test_coverage_without_lines_launches_nothing(cujit: Cujit, axpy: Path) -> None:
    result = cujit("run", str(axpy), *_AXPY, "--over", "0", *_ARGS, "--print", "3", "--json")
    told = json.loads(result.stdout)
    assert told["arrays"]["3"] == [1.0] * 8
    assert told["grid"] is None


def test_several_arrays_are_labeled(cujit: Cujit, axpy: Path) -> None:
    result = cujit("run", str(axpy), *_AXPY, "--over", "8", *_ARGS, "--print", "2", "--print", "3")
    assert [line[:3] for line in result.stdout.splitlines()] == ["2: ", "3: "]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "specify --grid and --block, or --over"),
        (("--grid", "1"), "specify --grid and --block, or --over"),
        (("--over", "8", "--grid", "1", "--block", "8"), "not both"),
        (("--over", "1x2x3x4"), "one to three sizes"),
        (("--over", "8", "--arg", "what"), "'what': neither a number"),
        (("--over", "8", "--print", "5"), "there is no argument 5"),
        (("--over", "8", "--out", "1=x.npy"), "argument 1 is not an array"),
        (("--over", "8", "--out", "x.npy"), "N=FILE"),
        (("--over", "8", "--out", "0=x.npy"), "N=FILE"),
        (("--over", "8", "--print", "0"), "0 is not in the range x>=1"),
        (("--over", "8", "--repeat", "0"), "--repeat"),
    ],
)
def test_malformed_command_line_is_usage(cujit: Cujit, axpy: Path, arguments: tuple[str, ...], message: str) -> None:
    result = cujit("run", str(axpy), *_AXPY, *_ARGS, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_compiler_options_for_an_image_are_usage(cujit: Cujit, axpy: Path) -> None:
    build(Source.cuda(axpy), ["compute_80"], names="axpy<float>").save("axpy.fatbin")
    result = cujit("run", "axpy.fatbin", *_AXPY, "--over", "8", *_ARGS, "-D", "N")
    assert result.exit_code == 2
    assert "axpy.fatbin is an image" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--over", "8", "--arg", "1"), "axpy<float>"),
        (("--over", "8", "--kernel", "axpy<double"), "axpy<double"),
        (("--grid", "1", "--block", "2048"), "2048"),
        (("--over", "8", "-O", "nonsense"), "unknown option 'nonsense'"),
        (("--over", "8", "--out", "3=no/where.npy"), "no/where.npy can't be written: No such file or directory"),
    ],
)
def test_wrong_input_ends_in_status_1(cujit: Cujit, axpy: Path, arguments: tuple[str, ...], message: str) -> None:
    result = cujit("run", str(axpy), *_AXPY, *_ARGS, *arguments)
    assert result.exit_code == 1
    assert message in result.stderr


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"hello", bytes(range(256))])
def test_file_that_is_not_an_image_is_refused(cujit: Cujit, content: bytes) -> None:
    Path("image").write_bytes(content)
    result = cujit("run", "image", "--kernel", "k", "--over", "1", "--device", "cpu")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: image: ")


@pytest.mark.parametrize("name", ["cuda:99", "cuda:123456789"])
def test_missing_device_ends_in_status_3(cujit: Cujit, axpy: Path, name: str) -> None:
    assert cujit("run", str(axpy), "--kernel", "axpy<float>", "--over", "8", "--device", name).exit_code == 3


@pytest.mark.parametrize("verb", ["run", "demo"])
@pytest.mark.parametrize("name", ["zzz", "gpu", "tpu:0", "cuda:x", ""])
def test_invalid_device_name_is_a_usage_error(cujit: Cujit, axpy: Path, verb: str, name: str) -> None:
    rest = (str(axpy), "--kernel", "axpy<float>", "--over", "8") if verb == "run" else ()
    result = cujit(verb, *rest, "--device", name)
    assert result.exit_code == 2
    assert "cpu, cuda:0" in result.stderr


# -- watching ---------------------------------------------------------------------------------------------

_SHAPE = ("--grid", "2", "--block", "4")


def test_trace_is_printed_before_the_arrays(cujit: Cujit, axpy: Path) -> None:
    result = cujit("run", str(axpy), *_AXPY, *_SHAPE, *_ARGS, "--trace", "1,3", "--print", "3")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].endswith("block 1:0:0, thread 3:0:0")
    assert f"{axpy}:3: if (i < n) y[i] = a * x[i] + y[i];" in lines
    assert sum("st.global.f32" in line and "= 15.0 (0x41700000)" in line for line in lines) == 1
    assert lines[-1].startswith("[ 1.  3.")


def test_trace_accepts_indices_and_a_limit(cujit: Cujit, axpy: Path) -> None:
    arguments = ("--trace", "1:0:0,2:0", "--trace-limit", "3")
    result = cujit("run", str(axpy), *_AXPY, *_SHAPE, *_ARGS, *arguments)
    assert result.exit_code == 0, result.stderr
    assert "block 1:0:0, thread 2:0:0" in result.stdout
    assert "beyond the trace's limit" in result.stdout


def test_trace_in_json_has_every_step(cujit: Cujit, axpy: Path) -> None:
    result = cujit("run", str(axpy), *_AXPY, *_SHAPE, *_ARGS, "--trace", "0,0", "--json")
    assert result.exit_code == 0, result.stderr
    (launch,) = json.loads(result.stdout)["trace"]
    assert (launch["block"], launch["thread"], launch["dropped"]) == ([0, 0, 0], [0, 0, 0], 0)
    store = launch["steps"][-2]
    assert store["source"] == f"{axpy}:3"
    assert store["reads"][-1]["value"] == 1.0
    assert store["reads"][-1]["bits"] == "0x3f800000"


def test_trace_of_a_failed_launch_ends_at_the_fault(cujit: Cujit, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("__global__ void k(int* x) {\n    *x = 1;\n    __trap();\n}\n")
    launch = ("run", "k.cu", "-k", "k", "--grid", "1", "--block", "1", "--arg", "zeros:i32:1", "--trace", "0,0")
    result = cujit(*launch, "--coverage", "c.info", "--device", "cpu")
    assert result.exit_code == 1
    assert "k.cu:3: __trap();" in result.stdout
    assert "executed trap" in result.stderr
    assert "\nDA:3,1\n" in (tmp_path / "c.info").read_text()
    failed = cujit(*launch, "--json")
    assert "k.cu:3: __trap();" in failed.stderr


def test_check_names_the_thread_of_a_wrong_access(cujit: Cujit, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("__global__ void k(int* x) { x[threadIdx.x] = 1; }")
    launch = ("run", "k.cu", "-k", "k", "--grid", "1", "--block", "8", "--arg", "zeros:i32:4")
    result = cujit(*launch, "--check", "memory", "--trace", "0,4")
    assert result.exit_code == 1
    assert "thread (4, 0, 0)" in result.stderr
    assert "st.global" in result.stdout.splitlines()[-2] + result.stdout


def test_memory_is_checked_unless_check_is_none(cujit: Cujit, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("__global__ void k(int* x) { x[threadIdx.x] = 1; }")
    launch = ("run", "k.cu", "-k", "k", "--grid", "1", "--block", "8", "--arg", "zeros:i32:4", "--device", "cpu")
    result = cujit(*launch)
    assert result.exit_code == 1
    assert "thread (4, 0, 0): Invalid write of 4 bytes" in result.stderr
    unchecked = cujit(*launch, "--check", "none", "--print", "1")
    assert (unchecked.exit_code, unchecked.stdout) == (0, "[1 1 1 1]\n"), unchecked.stderr


def test_coverage_is_written_for_lcov(cujit: Cujit, axpy: Path, tmp_path: Path) -> None:
    result = cujit("run", str(axpy), *_AXPY, *_SHAPE, *_ARGS, "--coverage", "c.info")
    assert result.exit_code == 0, result.stderr
    written = (tmp_path / "c.info").read_text()
    assert f"SF:{axpy}\n" in written
    assert "\nDA:3,8\n" in written


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--trace", "0,5"), "there is no thread 5: there are 4"),
        (("--trace", "2,0"), "there is no block 2: there are 2"),
        (("--trace", "5"), "'5' is not BLOCK,THREAD"),
        (("--trace", "0,a"), "'0,a' is not BLOCK,THREAD"),
        (("--trace", "0,1:2:3:4"), "is not BLOCK,THREAD"),
        (("--trace", "0,0", "--device", "cuda:0"), "--trace requires the CPU device"),
        (("--coverage", "c.info", "--device", "cuda:0"), "--coverage requires the CPU device"),
        (("--coverage", "."), "is a directory"),
        (("--check", "memory", "--device", "cuda:0"), "--check requires the CPU device"),
        (("--check", "memroy"), "unknown check 'memroy'"),
    ],
    ids=[
        "thread",
        "block",
        "one",
        "letter",
        "four",
        "trace on a GPU",
        "coverage on a GPU",
        "directory",
        "check on a GPU",
        "check",
    ],
)
def test_slips_in_watching_are_usage_errors(cujit: Cujit, axpy: Path, arguments: tuple[str, ...], words: str) -> None:
    result = cujit("run", str(axpy), "--kernel", "axpy<float>", *_SHAPE, *_ARGS, *arguments)
    assert result.exit_code == 2
    assert words in result.stderr


SPIN = 'extern "C" __global__ void spin(volatile int *x) { while (*x == 0) {} }\n'
_SPIN = ("--kernel", "spin", "--grid", "2", "--block", "32", "--arg", "zeros:i32:1")


def test_launch_past_its_time_limit_reports_its_position(cujit: Cujit, tmp_path: Path) -> None:
    file = tmp_path / "spin.cu"
    file.write_text(SPIN)
    result = cujit("run", str(file), *_SPIN, "--timeout", "0.1", "--check", "memory")
    assert result.exit_code == 1
    assert "it ran longer than timeout_s=0.1" in result.stderr
    assert "at PTX line" in result.stderr
    for wrong in ("0", "-1", "nan", "soon"):
        assert cujit("run", str(file), *_SPIN, "--timeout", wrong).exit_code == 2
    result = cujit("run", str(file), *_SPIN, "--timeout", "1", "--device", "cuda:0")
    assert result.exit_code == 2
    assert "--timeout requires the CPU device" in result.stderr


def test_ctrl_c_ends_a_run(tmp_path: Path) -> None:
    file = tmp_path / "spin.cu"
    file.write_text(SPIN)
    command = [sys.executable, "-m", "cujit", "run", str(file), *_SPIN, "--device", "cpu"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        until = time.perf_counter() + 60
        while spent_by(process.pid) < 1.5 and time.perf_counter() < until:
            time.sleep(0.05)  # it imports and compiles for half a second, and then it spins
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert (process.returncode, "Aborted!" in said) == (1, True)


_TWO_KERNELS = """
extern "C" __global__ void one(int* x) { *x = 1; }
extern "C" __global__ void two(int* x) { *x = 2; }
"""
_ONCE = ("--grid", "1", "--block", "1", "--arg", "zeros:i32:1", "--print", "1", "--device", "cpu")


def test_only_kernel_needs_no_name(cujit: Cujit, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("namespace deep { __global__ void k(int* x) { *x = 5; } }")
    assert cujit("run", "k.cu", *_ONCE).stdout == "[5]\n"
    assert cujit("compile", "k.cu", "-o", "k.ptx").exit_code == 0
    assert cujit("run", "k.ptx", *_ONCE).stdout == "[5]\n"


def test_several_kernels_without_a_name_are_usage_and_listed(cujit: Cujit, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(_TWO_KERNELS)
    result = cujit("run", "k.cu", *_ONCE)
    assert (result.exit_code, "k.cu contains 2 kernels: specify --kernel with one of one, two" in result.stderr) == (
        2,
        True,
    )
    assert cujit("run", "k.cu", "-k", "two", *_ONCE).stdout == "[2]\n"


def test_llvm_ir_is_compiled_and_run(cujit: Cujit, tmp_path: Path) -> None:
    (tmp_path / "k.ll").write_text(SCALE)
    said = ("--grid", "1", "--block", "1", "--arg", "ones:f32:1", "--print", "1", "--device", "cpu")
    assert cujit("run", "k.ll", *said).stdout == "[2.]\n"


_GRID_SYNC = f"""
{GROUPS}extern "C" __global__ void k(int* x, int* y) {{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    x[i] = i;
    cooperative_groups::this_grid().sync();
    y[i] = x[n - 1 - i];
}}"""


def test_cooperative_launch_synchronizes_its_blocks(cujit: Cujit, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(_GRID_SYNC)
    said = (
        "run",
        "k.cu",
        "--cooperative",
        "--arg",
        "zeros:i32:8",
        "--arg",
        "zeros:i32:8",
        "--print",
        "2",
        "--device",
        "cpu",
    )
    shapes = (("--grid", "2", "--block", "4"), ("--over", "8", "--block", "4"))
    for shape in shapes:
        assert cujit(*said, *shape).stdout == "[7 6 5 4 3 2 1 0]\n"
    (tmp_path / "count.cu").write_text('extern "C" __global__ void k(int* x) { atomicAdd(x, 1); }')
    whole = cujit("run", "count.cu", "--cooperative", "--block", "8", *_ONCE[4:], "--json")
    told = json.loads(whole.stdout)
    assert told["arrays"] == {"1": [8 * told["grid"][0]]}


def test_cluster_option_sets_the_cluster(cujit: Cujit, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("""
        extern "C" __global__ void k(unsigned* x) {
            unsigned size; asm("mov.u32 %0, %cluster_nctaid.x;" : "=r"(size));
            x[blockIdx.x] = size;
        }""")
    said = (
        "run",
        "k.cu",
        "--arg",
        "zeros:u32:4",
        "--print",
        "1",
        "--device",
        "cpu",
        "--block",
        "1",
        "--cluster",
        "2,1,1",
    )
    assert cujit(*said, "--grid", "4").stdout == "[2 2 2 2]\n"
    assert "--over doesn't support clusters" in cujit(*said, "--over", "4").stderr
    assert cujit(*said, "--grid", "3").exit_code == 1


def test_number_types_that_numpy_lacks_are_accepted(cujit: Cujit, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("""
        #include <cuda_bf16.h>
        #include <cuda_fp8.h>
        #include <cuComplex.h>
        using Complex = cuFloatComplex;
        extern "C" __global__ void k(__nv_bfloat16* a, __nv_bfloat16 s, __nv_fp8_e4m3* b, Complex* c, Complex d) {
            int i = threadIdx.x;
            a[i] = a[i] * s;
            b[i] = __nv_fp8_e4m3(float(b[i]) + 0.5f);
            c[i] = cuCmulf(c[i], d);
        }""")
    given = ("arange:bf16:3", "bf16:1.5", "arange:e4m3:3", "ones:c64:3", "1+2j")
    said = [word for value in given for word in ("--arg", value)]
    shown = ("--print", "1", "--print", "3", "--print", "4")
    result = cujit("run", "k.cu", "--grid", "1", "--block", "3", *said, *shown, "--device", "cpu")
    assert result.stdout == "1: [0.  1.5 3. ]\n3: [0.5 1.5 2.5]\n4: [1.+2.j 1.+2.j 1.+2.j]\n", result.stderr


RACES = """extern "C" __global__ void races(int *o) { if (threadIdx.x % 32 == 0) o[0] = threadIdx.x; }
extern "C" __global__ void fills(int *o) { o[threadIdx.x] = threadIdx.x; }"""
_LAUNCH = ("--device", "cpu", "--grid", "1", "--block", "128", "--arg", "zeros:i32:128")


def test_schedules_are_compared(cujit: Cujit, tmp_path: Path) -> None:
    file = tmp_path / "races.cu"
    file.write_text(RACES)
    same = cujit("run", str(file), "--kernel", "fills", *_LAUNCH, "--schedules", "5")
    assert (same.exit_code, same.stdout) == (0, "fills: 5 schedules produce the same results\n")
    differ = cujit("run", str(file), "--kernel", "races", *_LAUNCH, "--schedules", "50")
    assert differ.exit_code == 1
    assert "element [0] of argument 0" in differ.stdout
    assert "st.global.u32" in differ.stdout
    told = json.loads(cujit("run", str(file), "--kernel", "races", *_LAUNCH, "--schedules", "50", "--json").stdout)
    assert told["equal"] is False
    first, second = told["difference"]["runs"]
    assert first["value"] != second["value"]
    seed = str(second["seed"])
    again = cujit("run", str(file), "--kernel", "races", *_LAUNCH, "--schedule", seed, "--print", "1", "--json")
    assert str(json.loads(again.stdout)["arrays"]["1"][0]) == second["value"]


def test_run_compiles_for_the_best_of_several_architectures(cujit: Cujit, tmp_path: Path) -> None:
    source = tmp_path / "arch.cu"
    source.write_text('extern "C" __global__ void arch(int* x) { *x = __CUDA_ARCH__; }')
    shape = ("run", str(source), "--over", "1", "--arg", "zeros:i32:1", "--print", "1", "--device", "cpu")
    several = cujit(*shape, "--arch", "sm_90", "--arch", "sm_80")
    assert (several.exit_code, several.stdout) == (0, "[900]\n")
    assert "compiling for sm_90: a launch runs code for one architecture" in several.stderr
    one = cujit(*shape, "--arch", "sm_80")
    assert (one.stdout, "compiling for" in one.stderr) == ("[800]\n", False)
    nvcc = ["-gencode", "arch=compute_80,code=sm_80", "-gencode", "arch=compute_86,code=sm_86"]
    assert cujit(*shape, *nvcc).stdout == "[860]\n"


@pytest.mark.parametrize(("here", "best"), [("sm_86", "sm_80"), ("sm_90", "compute_80"), ("sm_75", "sm_100")])
def test_arch_selects_the_code_for_a_gpu(here: str, best: str) -> None:
    class Gpu:
        arch = Arch.parse(here)
        is_gpu = True

    assert arch_for(["sm_80", "compute_80", "sm_100"], cast("Device", Gpu())) == best
    assert arch_for([], None) is None

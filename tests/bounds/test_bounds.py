"""Bounds are what was counted, by what the table says of a GPU; each is computed here by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import cujit
from cujit.cli.console import Rows
from cujit.cli.profile import render_bounds, render_cost_changes, render_costs
from cujit.devices.cpu.run.source_map import SourceLine
from cujit.errors import ArchError
from cujit.profile import Bound, Measures, Profile, ProfiledInstruction, ProfiledKernel, bounds, compare, peaks
from cujit.profile.bounding import NOT_MODELLED, micros
from cujit.profile.peaks import REQUESTS, SECTORS, SLOTS, SPECIAL, WAVEFRONTS
from cujit.values import replace
from raising import raises

CLOCKS_PER_S = 132 * 1.98e9
"""Of all multiprocessors of an H200."""


def row(text: str, *, line: int = 1, pipe: str = "fma", type: str = "f32", **counted: int) -> ProfiledInstruction:
    measures = Measures(**({"warps": 100, "active": 3200, "threads": 3200} | counted))
    return ProfiledInstruction(1, text, SourceLine("k.cu", line), pipe, type, "", "", 0, None, measures)


def kernel(*rows: ProfiledInstruction, blocks: int = 1000, distinct: int = 0, block: int = 0) -> ProfiledKernel:
    return ProfiledKernel("k", 1, rows, distinct, block, blocks=blocks, warps=100, threads=3200)


def bound(of: ProfiledKernel, unit: str, on: str = "H200") -> Bound:
    (found,) = [each for each in bounds(of, on).bounds if each.unit == unit]
    return found


def clocks(of: ProfiledKernel, unit: str) -> float:
    """Clock cycles of one multiprocessor that a bound takes, if it had all to do."""
    return bound(of, unit).seconds * CLOCKS_PER_S


# -- memory and caches ------------------------------------------------------------------------------------------


def test_memory_moves_distinct_sectors_once() -> None:
    found = bound(
        kernel(row("ld.global.f32 %f1, [%rd1];", pipe="memory", requests=100, sectors=800), distinct=600), "memory"
    )
    assert (found.amount, found.per_second, found.what) == (600 * 32, 4800e9, "bytes")
    assert "60 MiB" in found.assumes
    assert (found.line, found.share) == (None, 0)


def test_first_cache_moves_sixteen_sectors_a_clock_cycle() -> None:
    of = kernel(
        row("ld.global.f32 %f1, [%rd1];", line=3, pipe="memory", requests=100, sectors=3200, asked_bytes=12800),
        row("st.global.f32 [%rd1], %f1;", line=4, pipe="memory", requests=100, sectors=400, asked_bytes=12800),
    )
    assert clocks(of, "L1 cache") == pytest.approx(3600 / 16)
    assert clocks(of, "load/store unit") == pytest.approx(200)
    found = bound(of, "L1 cache")
    assert (found.place, found.cause) == ("k.cu:3", "32 sectors a request")
    assert found.share == pytest.approx(32 / 36)


@pytest.mark.parametrize(("sectors", "cause"), [(800, ""), (801, "8.01 sectors a request")])
def test_scattered_access_moves_over_twice_its_requested_bytes(sectors: int, cause: str) -> None:
    load = row("ld.global.f32 %f1, [%rd1];", pipe="memory", requests=100, sectors=sectors, asked_bytes=12800)
    assert bound(kernel(load), "L1 cache").cause == cause


def test_l2_cache_has_a_bound_if_its_bandwidth_is_published() -> None:
    of = kernel(row("ld.global.f32 %f1, [%rd1];", pipe="memory", requests=1, sectors=4), distinct=4, block=40)
    assert bound(of, "L2 cache", "A100").per_second == 5120 * 1.41e9
    assert bound(of, "L2 cache", "A100").amount == 40 * 32
    assert "L2 cache" not in {each.unit for each in bounds(of, "L40S").bounds}


def test_shared_memory_bound_names_conflicts_and_their_line() -> None:
    of = kernel(
        row("st.shared.f32 [%r1], %f1;", line=5, pipe="memory", shared_requests=100, wavefronts=100),
        row(
            "ld.shared.f32 %f1, [%r1];", line=7, pipe="memory", shared_requests=100, wavefronts=800, bank_conflicts=700
        ),
    )
    found = bounds(of, "H200")
    assert clocks(of, "shared memory") == pytest.approx(900)
    assert found.tightest is not None
    assert found.tightest.unit == "shared memory"
    assert found.seconds == found.tightest.seconds > found.bounds[1].seconds
    assert str(found) == (
        "k on H200 (sm_90), 1,980 MHz: shared memory, a lower bound of 0.00344 µs, "
        "89% of it at k.cu:7, 8-way bank conflicts"
    )


def shared(text: str, width: int = 4, wavefronts: int = 400) -> ProfiledInstruction:
    each = row(text, pipe="memory", shared_requests=100, wavefronts=wavefronts, bank_conflicts=wavefronts - 100)
    return replace(each, width_bytes=width)


@pytest.mark.parametrize(
    ("rows", "requests", "wavefronts"),
    [
        ([shared(f"ld.shared.f32 %f{k}, [%r1+{4 * k}];", wavefronts=400 + k) for k in range(4)], 100, 403),
        ([shared(f"st.shared.f32 [%r1+{4 * k}], %f1;") for k in range(6)], 200, 800),
        ([shared(f"ld.shared.f64 %fd{k}, [%r1+{8 * k}];", width=8) for k in range(2)], 100, 200),
        ([shared(f"ld.shared.f32 %f1, [%r{k}];") for k in range(2)], 200, 800),
        ([shared(f"ld.volatile.shared.f32 %f1, [%r1+{4 * k}];") for k in range(2)], 200, 800),
        ([shared(f"ld.shared.u16 %rs1, [%r1+{2 * k}];", width=2) for k in range(2)], 200, 800),
        ([shared("ld.shared.f32 %f1, [%r1];"), shared("st.shared.f32 [%r1+4], %f1;")], 200, 800),
        ([shared("ld.shared.f32 %f1, [%r1+-4];"), shared("ld.shared.f32 %f1, [%r1+16];")], 200, 800),
        ([shared("ld.shared.f32 %f1, [%r1];"), shared("ld.shared.f32 %f1, [%r1+16];")], 200, 800),
    ],
)
def test_accesses_that_ptxas_can_merge_count_once(
    rows: list[ProfiledInstruction], requests: int, wavefronts: int
) -> None:
    assert clocks(kernel(*rows), "load/store unit") == pytest.approx(requests)
    assert clocks(kernel(*rows), "shared memory") == pytest.approx(wavefronts)
    assert bool(bound(kernel(*rows), "shared memory").cause) == (wavefronts == 400 * len(rows))


# -- arithmetic ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "type_", "unit", "wanted"),
    [
        ("fma.rn.f32 %f1, %f1, %f1, %f1;", "f32", "arithmetic of f32", 3200 / 128),
        ("fma.rn.f32x2 %rd1, %rd1, %rd1, %rd1;", "f32x2", "arithmetic of f32", 6400 / 128),
        ("add.rn.f64 %fd1, %fd1, %fd1;", "f64", "arithmetic of f64", 3200 / 64),
        ("fma.rn.f16x2 %r1, %r1, %r1, %r1;", "f16x2", "arithmetic of f16", 6400 / 256),
        ("mul.bf16 %rs1, %rs1, %rs1;", "bf16", "arithmetic of f16", 3200 / 256),
        ("shfl.sync.bfly.b32 %r1, %r1, 1, 31, -1;", "b32", "shuffles", 3200 / 32),
    ],
)
def test_arithmetic_bound_depends_on_the_result_type(text: str, type_: str, unit: str, wanted: float) -> None:
    of = kernel(row(text, type=type_))
    assert clocks(of, unit) == pytest.approx(wanted)
    assert clocks(of, "issue slots") == pytest.approx(100 / 4)


def test_half_empty_warp_counts_in_full_unless_predicated() -> None:
    half = kernel(row("add.rn.f32 %f1, %f1, %f1;", active=1600, threads=1600))
    assert clocks(half, "arithmetic of f32") == pytest.approx(25)
    guarded = kernel(row("@%p1 add.rn.f32 %f1, %f1, %f1;", threads=800))
    assert clocks(guarded, "arithmetic of f32") == pytest.approx(800 / 128)


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        ("mul.f32", "add.f32", 1),
        ("mul.rn.f32", "add.f32", 2),
        ("mul.ftz.f32", "sub.ftz.f32", 1),
        ("mul.f32", "mul.f32", 2),
    ],
)
def test_product_and_sum_that_ptxas_can_fuse_count_once(first: str, second: str, wanted: int) -> None:
    of = kernel(row(f"{first} %f1, %f1, %f1;"), row(f"{second} %f1, %f1, %f1;"))
    assert clocks(of, "arithmetic of f32") == pytest.approx(wanted * 25)
    assert clocks(of, "issue slots") == pytest.approx(wanted * 25)


@pytest.mark.parametrize(
    ("text", "type_", "wanted"),
    [
        ("ex2.approx.ftz.f32 %f1, %f1;", "f32", 200),
        ("div.rn.f32 %f1, %f2, %f3;", "f32", 200),
        ("div.rn.f32 %f1, %f2, 0f40000000;", "f32", 0),
        ("div.approx.ftz.f32 %f1, %f2, %f3;", "f32", 0),
        ("div.u32 %r1, %r2, %r3;", "u32", 0),
    ],
)
def test_special_functions_count_only_what_requires_their_unit(text: str, type_: str, wanted: int) -> None:
    found = bounds(kernel(row(text, pipe="special", type=type_)), "H200").bounds
    assert sum(each.seconds for each in found if each.unit == "special functions") * CLOCKS_PER_S == pytest.approx(
        wanted
    )


def test_integers_and_moves_have_no_bound() -> None:
    of = kernel(row("add.s32 %r1, %r1, %r1;", pipe="alu", type="s32"), row("mov.f32 %f1, %f2;", pipe="alu"))
    assert bounds(of, "H200").bounds == ()
    assert bounds(of, "H200").seconds == 0
    assert "no lower bound" in str(bounds(of, "H200"))
    assert "integer" in NOT_MODELLED


@pytest.mark.parametrize(
    ("text", "type_", "per_clock"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {};", "f16", 4096),
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {};", "tf32", 2048),
        ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {};", "s8", 8192),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {};", "f64", 256),
        ("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {};", "e4m3", 8192),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {};", "f16", 4096),
        ("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {};", "f16", 8192),
    ],
)
def test_tensor_core_bound_depends_on_the_operand_type(text: str, type_: str, per_clock: int) -> None:
    of = kernel(row(text, pipe="tensor", flops=409600, tensor_flops=409600))
    assert clocks(of, f"tensor cores, {type_}") == pytest.approx(409600 / per_clock)
    assert bounds(of, "H200").unknown == ()


def test_each_tensor_core_type_has_its_own_bound() -> None:
    halves = row("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {};", pipe="tensor", tensor_flops=409600)
    bytes_ = row("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {};", pipe="tensor", tensor_flops=819200)
    of = kernel(halves, bytes_, halves)
    assert bound(of, "tensor cores, f16").amount == bound(of, "tensor cores, s8").amount == 819200


def test_unknown_throughput_is_reported() -> None:
    text = "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc {};"
    of = kernel(row(text, pipe="tensor", flops=10, tensor_flops=10))
    assert bounds(of, "H200").unknown == ("products of matrices of b1",)
    assert bounds(of, "A100").unknown == ()


def test_fewer_blocks_than_sms_use_only_as_many_sms() -> None:
    add = row("add.rn.f32 %f1, %f1, %f1;")
    assert clocks(kernel(add, blocks=132, distinct=9), "arithmetic of f32") == pytest.approx(25)
    assert clocks(kernel(add, blocks=33, distinct=9), "arithmetic of f32") == pytest.approx(100)
    assert bound(kernel(add, blocks=1, distinct=9), "memory").per_second == 4.8e12


# -- together -----------------------------------------------------------------------------------------------------


def test_launch_has_its_bounds_and_intensities() -> None:
    profile = Profile()
    device = cujit.cpu(profile=profile)
    code = """extern "C" __global__ void scale(const float *x, float *y, int stride) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        y[i] = x[i * stride] * 2.0f;
    }"""
    scale = cujit.jit(code, device=device, name="scale.cu")["scale"]
    scale[4, 64](device.array(np.ones(2048, np.float32)), device.zeros(256, np.float32), 8)
    found = bounds(profile.kernels[0], "H200")
    assert found.flops == 256
    assert found.flops_per_byte == 256 / (32 * (256 + 32))
    assert found.flops_per_l1_byte == 256 / (32 * (256 + 32))
    assert [each.unit for each in found.bounds][:2] == ["L1 cache", "load/store unit"]
    said = found.to_json()
    assert said["gpu"] == "H200"
    assert [each["bound_s"] for each in said["bounds"]] == sorted(
        (each["bound_s"] for each in said["bounds"]), reverse=True
    )
    assert said["bounds"][0]["line"] == "scale.cu:3"


def test_every_product_has_the_figures_that_bounds_need() -> None:
    of = kernel(
        row("fma.rn.f64 %fd1, %fd1, %fd1, %fd1;", type="f64"),
        row("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {};", tensor_flops=1),
        distinct=1,
    )
    names = ("T4", "A100", "A100 40GB", "L4", "L40S", "RTX 4090", "H100 PCIe", "H100 SXM", "H200", "B200", "RTX 5090")
    for name in names:
        assert {each.unit for each in bounds(of, name).bounds} >= {"memory", "arithmetic of f64", "tensor cores, f16"}


def test_peaks_match_figures_that_nvidia_publishes() -> None:
    published = {
        "T4": (8.1, 65, 320), "A100": (19.5, 312, 2039), "A100 40GB": (19.5, 312, 1555), "L4": (30.3, 121, 300),
        "L40S": (91.6, 362.05, 864), "RTX 4090": (82.6, 330.3, 1008), "H100 PCIe": (51, 756 * 1755 / 1620, 2000),
        "H100 SXM": (67, 989.4 * 1980 / 1830, 3350), "H200": (67, 989.4 * 1980 / 1830, 4800),
        "B200": (75, 2250 * 1980 / 1860, 8000), "RTX 5090": (104.8, 419, 1792),
    }  # fmt: skip
    for name, (single, tensor, memory) in published.items():
        found = peaks(name)
        assert found.per_second(2 * found.fp32) == pytest.approx(single * 1e12, rel=0.01), name
        assert found.per_second(found.tensor["f16"]) == pytest.approx(tensor * 1e12, rel=0.025), name
        assert found.memory_bytes_per_s == memory * 1e9, name
    # Of the same sources: MHz, MiB of cache, TFLOPS of double and of half precision without tensor cores.
    clocks = {
        "T4": (1590, 4, 0.254, 16.3), "A100": (1410, 40, 9.7, 78), "A100 40GB": (1410, 40, 9.7, 78),
        "L4": (2040, 48, 0.473, 30.3), "L40S": (2520, 96, 1.43, 91.6), "RTX 4090": (2520, 72, 1.29, 82.6),
        "H100 PCIe": (1755, 50, 25.6, 102.4), "H100 SXM": (1980, 50, 33.5, 133.8), "H200": (1980, 60, 33.5, 133.8),
        "B200": (1980, None, 37.5, 150), "RTX 5090": (2407, 96, 1.64, 104.8),
    }  # fmt: skip
    for name, (mhz, mebibytes, double, half) in clocks.items():
        found = peaks(name)
        assert (found.clock_mhz, found.l2_mib) == (mhz, mebibytes), name
        assert found.per_second(2 * found.fp64) == pytest.approx(double * 1e12, rel=0.01), name
        assert found.per_second(2 * found.fp16) == pytest.approx(half * 1e12, rel=0.01), name
    assert {name for name in published if peaks(name).l2_bytes} == {"A100", "A100 40GB", "H200"}


def test_peaks_match_ncu_on_an_h200() -> None:
    golden = json.loads((Path(__file__).parents[1] / "goldens/peaks-h200.json").read_text())
    said, device, found = golden["peak_sustained"], golden["device"], peaks("H200")
    count = device["multiprocessor_count"]
    assert (found.processors, found.clock_mhz * 1000) == (count, device["max_gpu_frequency_khz"])
    assert (found.l2_mib, found.l2_bytes) == (device["l2_cache_size"] / (1 << 20), said["lts__t_bytes"])
    memory = said["dram__bytes"] * golden["dram__cycles_elapsed.avg.per_second"]
    assert found.memory_bytes_per_s == pytest.approx(memory, rel=0.01)
    each = {
        "l1tex__data_pipe_lsu_wavefronts": WAVEFRONTS,
        "l1tex__t_sectors": SECTORS,
        "sm__inst_executed_pipe_lsu": REQUESTS,
        "smsp__inst_executed": SLOTS,
        "sm__inst_executed_pipe_xu": SPECIAL / 32,
        "sm__inst_executed_pipe_fma": found.fp32 / 32,
        "sm__inst_executed_pipe_fp64": found.fp64 / 32,
    }
    assert {name: said[name] for name in each} == {name: count * number for name, number in each.items()}


def test_boards_are_found_by_the_names_that_drivers_report() -> None:
    assert peaks("NVIDIA A100-SXM4-40GB").memory_bytes_per_s == 1555e9
    assert peaks("NVIDIA A100-SXM4-80GB").memory_bytes_per_s == peaks("A100").memory_bytes_per_s == 2039e9
    assert peaks("NVIDIA H100 80GB HBM3").name == "H100 SXM"
    assert str(peaks("h200")) == "H200 (sm_90)"


@pytest.mark.parametrize("name", ["V100", "sm_90", "RTX 3060"])
def test_gpu_without_figures_is_refused_with_known_names(name: str) -> None:
    with raises(ArchError, "arch", name) as told:
        peaks(name)
    assert "H200" in str(told.value)


_TIME = re.compile(r"\d (?:s|ms|µs|ns)\b")


def test_output_never_has_a_time_without_the_word_bound() -> None:
    profile = Profile()
    device = cujit.cpu(profile=profile)
    code = 'extern "C" __global__ void twice(float *x) { x[blockIdx.x * 64 + threadIdx.x] *= 2; }'
    cujit.jit(code, device=device, name="twice.cu")["twice"][9, 64](device.zeros(576, np.float32))
    (counted,) = profile.kernels
    found = bounds(counted, "H200")
    said = [
        *render_costs(counted),
        *render_bounds(found),
        *render_cost_changes(compare(counted, counted, on="H200")),
    ]
    texts = [part for part in said if isinstance(part, str)] + [*map(str, found.bounds), str(found)]
    tables = [part for part in said if isinstance(part, Rows)]
    assert [text for text in texts if _TIME.search(text) and "bound" not in text] == []
    timed = {name for table in tables for row in table.rows for name, cell in zip(table.columns, row, strict=True)
             if _TIME.search(cell)}  # fmt: skip
    assert timed == {"lower bound"}
    of_times = [row[0] for table in tables for row in table.rows if "ns" in row[0].split(":")[0].split()]
    assert of_times
    assert all(name.startswith("bound in ns: ") for name in of_times)
    assert _TIME.search(str(found))


def test_times_have_three_digits_and_no_exponent() -> None:
    written = {
        0: "0 µs", 3.4443e-9: "0.00344 µs", 1.5e-6: "1.5 µs", 999.4e-6: "999 µs", 999.6e-6: "1,000 µs",
        0.0123456: "12,300 µs", 0.99949: "999,000 µs", 0.9999: "1,000,000 µs", 1: "1 s", 12345.6: "12,300 s",
    }  # fmt: skip
    assert {seconds: micros(seconds) for seconds in written} == written

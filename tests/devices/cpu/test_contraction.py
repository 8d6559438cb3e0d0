"""Products and sums are rounded once where ptxas does so, which the golden has from its machine code."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from cujit.cli.app import main
from cujit.devices.cpu.observe.scheduling import Schedule
from cujit.devices.cpu.observe.trace import Trace
from cujit.devices.device import Device
from cujit.errors import OptionError
from cujit.loading import load
from cujit.machine.devices import cpu
from cujit.program import compile
from devices.cpu.contractions import TYPES, body_of, forms_of, module_of, programs_of, random_body, results_of
from property.programs import BLOCK, COUNTERS, GRID, WORDS, Program, inputs
from raising import raises

_GOLDENS = Path(__file__).parents[2] / "goldens"
GOLDEN = json.loads((_GOLDENS / "contractions.json").read_text())


@pytest.mark.parametrize("type_", TYPES)
def test_ptxas_contracts_the_same_forms(type_: str) -> None:
    forms = forms_of(type_)
    programs = programs_of(module_of({f"f{k}": body for k, body in enumerate(forms.values())}))
    found = {name: sum(op.opcode == "fma" for op in programs[f"f{k}"].ops) for k, name in enumerate(forms)}
    assert found == GOLDEN[type_]


def test_ptxas_ends_blocks_at_the_same_statements() -> None:
    golden = GOLDEN["between"]
    bodies = {f"b{k}": body_of(f"mul.T y, a, b; {s}; add.T x, y, c;") for k, s in enumerate(golden)}
    programs = programs_of(module_of(bodies))
    found = {s: any(op.opcode == "fma" for op in programs[f"b{k}"].ops) for k, s in enumerate(golden)}
    assert found == golden


def test_ptxas_rounds_the_same_in_random_kernels() -> None:
    golden = GOLDEN["random"]
    programs = programs_of(module_of({f"r{seed}": random_body(seed) for seed in range(len(golden))}))
    assert [results_of(programs[f"r{seed}"].ops) for seed in range(len(golden))] == golden


ACROSS = {
    "mul.f32 y, a, 0f40780000; sqrt.rn.f32 d, c; add.f32 x, y, d;": 1,
    "mov.f32 d, 0f40780000; mul.f32 y, a, d; membar.gl; add.f32 x, y, c;": 1,
    "mul.f32 y, a, b; sqrt.rn.f32 d, c; add.f32 x, y, d;": 0,
    "mul.f32 y, a, 0f40780000; sqrt.rn.f32 d, c; add.f32 x, y, d; add.f32 x, x, c; mul.f32 x, x, y;": 0,
}
"""Sums behind the end of a block, and how many of them ptxas 13.0 and 13.5 contract."""


@pytest.mark.parametrize("statements", ACROSS)
def test_constant_product_is_contracted_across_a_block_end(statements: str) -> None:
    program = programs_of(module_of({"k": body_of(statements)}))["k"]
    assert sum(op.opcode == "fma" for op in program.ops) == ACROSS[statements]


# -- on the device ------------------------------------------------------------------------------------------------

CALLS = """
.version 8.0
.target sm_90
.address_size 64
.func (.reg .f32 r) product(.reg .f32 a, .reg .f32 b) { mul.f32 r, a, b; ret; }
.func (.reg .f32 r) both(.reg .f32 a, .reg .f32 b, .reg .f32 c) { .reg .f32 y; mul.f32 y, a, b; add.f32 r, y, c; ret; }
.func (.reg .f32 r) half(.reg .f32 a) { mul.rn.f32 r, a, 0f3F000000; ret; }
.visible .entry k(.param .u64 from, .param .u64 to)
{
    .reg .b64 p, q; .reg .f32 a, b, c, x, y;
    ld.param.u64 p, [from]; ld.param.u64 q, [to];
    ld.global.f32 a, [p]; ld.global.f32 b, [p+4]; ld.global.f32 c, [p+8];
    call (y), product, (a, b); add.f32 x, y, c; st.global.f32 [q], x;
    call (x), both, (a, b, c); st.global.f32 [q+4], x;
    mul.f32 y, a, b; call (x), half, (c); st.global.f32 [q+8], x; add.f32 x, y, c; st.global.f32 [q+12], x;
    mul.f32 y, a, b; mov.f32 a, c; sub.f32 x, a, y; st.global.f32 [q+16], x;
    mul.f32 y, a, b; neg.f32 y, y; add.sat.f32 x, y, b; st.global.f32 [q+20], x;
    ret;
}
"""
"""ptxas 13.5 calls all functions: of the six sums it contracts the second and the last two."""
NUMBERS = np.array([1.1, 1.3, -1.43], np.float32)


def _results(device: Device) -> list[float]:
    out = np.zeros(6, np.float32)
    load(CALLS.encode(), device)["k"][1, 1](NUMBERS, out)
    return out.tolist()


def test_device_contracts_on_request_but_not_across_calls() -> None:
    a, b, c = map(float, NUMBERS)
    once, twice = np.float32(a * b + c), np.float32(np.float32(a * b) + np.float32(c))
    assert once != twice
    minuend, clamped = np.float32(c - a * b), np.float32(b - c * b)
    contracted = [twice, once, np.float32(c / 2), twice, minuend, min(clamped, 1)]
    assert _results(cpu(contract="ptxas")) == contracted
    apart = _results(cpu())
    assert apart == _results(cpu(contract="off"))
    assert apart[:4] == [twice, twice, np.float32(c / 2), twice]


def test_half_precision_contracts_in_cuda_cpp() -> None:
    """__hmul and __hadd are ``mul.f16`` and ``add.f16``, which NVRTC leaves to the assembler; __hmul_rn is not."""
    code = """#include <cuda_fp16.h>
    extern "C" __global__ void k(const __half *x, __half *y) {
        y[0] = __hadd(__hmul(x[0], x[1]), x[2]);
        y[1] = __hadd(__hmul_rn(x[0], x[1]), x[2]);
    }"""
    image = compile(code, arch="compute_90", to="ptx")
    x, found = np.array([1.1, 1.3, -1.43], np.float16), {}
    for contract in ("off", "ptxas"):
        out = np.zeros(2, np.float16)
        load(image, cpu(contract=contract))["k"][1, 1](x, out)
        found[contract] = out.tolist()
    a, b, c = map(float, x)
    once, twice = np.float16(a * b + c), np.float16(np.float16(a * b) + x[2])
    assert once != twice
    assert found == {"off": [twice, twice], "ptxas": [once, twice]}


ONES = {
    "mul.f32 y, a, 0f3F800000; mul.f32 x, b, c; add.f32 x, y, x;": "mul.rn.f32 y, b, c; fma.rn.f32 x, b, c, a;",
    "mul.f32 y, a, 0fBF800000; mul.f32 x, b, c; add.f32 x, y, x;": "neg.f32 y, a; fma.rn.f32 x, b, c, y;",
    "mul.ftz.f32 y, a, 0fBF800000; mul.ftz.f32 x, b, c; add.ftz.f32 x, y, x;": "neg.f32 y, a; fma.rn.f32 x, b, c, y;",
    "mov.f32 d, 0f3F800000; mul.f32 y, d, a; mul.f32 x, b, c; add.f32 x, y, x;": "fma.rn.f32 x, b, c, a;",
    "mul.f32 y, b, c; mul.f32 y, y, 0f3F800000; add.f32 x, y, a;": "fma.rn.f32 x, b, c, a;",
    "mul.f32 y, a, 0f40000000; mul.f32 x, b, c; add.f32 x, y, x;":
        "mul.rn.f32 x, b, c; fma.rn.f32 x, a, 0f40000000, x;",
}  # fmt: skip
"""Sums with products by 1, which are none for ptxas, and what it makes of them."""


@pytest.mark.parametrize("statements", ONES)
def test_product_by_one_is_a_copy(statements: str) -> None:
    found = []
    for text, contract in ((statements, "ptxas"), (ONES[statements], "off")):
        out = np.zeros(32, np.uint32)
        module = load(module_of({"k": body_of(text)}).encode(), cpu(contract=contract))
        module["k"][1, 1](np.array([1 / 3, 1.1, 1.3, -1.43], np.float32), out, 0)
        found.append(int(out[0]))
    assert found[0] == found[1]


def test_product_by_one_keeps_the_bits_of_a_nan() -> None:
    body, nan = body_of("mul.f32 x, a, 0f3F800000;"), np.array([0xFFFF0000] * 4, np.uint32)
    found = {}
    for contract in ("off", "ptxas"):
        out = np.zeros(32, np.uint32)
        load(module_of({"k": body}).encode(), cpu(contract=contract))["k"][1, 1](nan, out, 0)
        found[contract] = hex(out[0])
    assert found == {"off": "0x7fffffff", "ptxas": "0xffff0000"}


@pytest.mark.parametrize("seed", [95])
def test_results_match_a_gpu(seed: int) -> None:
    """One of the recorded programs whose results depend on contraction by ptxas."""
    recorded = json.loads((_GOLDENS / "programs.json").read_text())["1"][str(seed)]
    image = compile(Program(seed).source, arch="compute_90", to="ptx", fmad=True)
    same = {}
    for contract in ("off", "ptxas"):
        out = np.zeros(GRID * BLOCK * WORDS + COUNTERS, np.uint32)
        load(image, cpu(contract=contract))["k"][GRID, BLOCK](inputs(), out)
        same[contract] = zlib.crc32(out.tobytes()) == recorded
    assert same == {"off": False, "ptxas": True}


def test_trace_shows_contracted_instructions() -> None:
    trace = Trace()
    _results(cpu(trace=trace, contract="ptxas"))
    assert [str(trace).count(name) for name in ("fma.rn.f32 ", "fma.rn.sat.f32 ", "add.f32 ")] == [2, 1, 2]


def test_command_line_contracts_on_request(tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(CALLS)
    np.save(tmp_path / "x.npy", NUMBERS)
    command = ["run", "--device", "cpu", str(tmp_path / "k.ptx"), "--grid", "1", "--block", "1"]
    arguments = ["--arg", str(tmp_path / "x.npy"), "--arg", "zeros:f32:6"]
    printed = [
        CliRunner().invoke(main, [*command, *arguments, "--print", "2", *more], catch_exceptions=False).stdout
        for more in ((), ("--contract", "off"), ("--contract", "ptxas"))
    ]
    assert printed[0] == printed[1] != printed[2]


def test_other_contraction_modes_are_refused() -> None:
    with raises(OptionError, "option", "ptxas", "off"):
        cpu(contract="on")


# -- under schedules ----------------------------------------------------------------------------------------------


def test_schedule_seed_selects_contraction_by_default() -> None:
    apart, contracted = _results(cpu(contract="off")), _results(cpu(contract="ptxas"))
    by_seed = {seed: _results(cpu(schedule=seed)) for seed in (0, 1)}
    assert [Schedule(seed).contracts for seed in (0, 1)] == [False, True]
    assert by_seed == {0: apart, 1: contracted}
    assert _results(cpu(schedule=1, contract="off")) == apart


def test_comparison_reports_results_that_depend_on_contraction() -> None:
    device = cpu()
    launch = load(CALLS.encode(), device)["k"][1, 1]
    report = launch.under_schedules(NUMBERS, np.zeros(6, np.float32), schedules=4)
    found = report.difference
    assert not report.equal
    assert found is not None
    assert found.by_contraction
    assert not found.by_atomics
    assert (found.index, found.first.seed, found.second.seed) == ((1,), 0, 0)
    assert (found.first.contract, found.second.contract) == ("off", "ptxas")
    assert 'schedule 0, contract="ptxas": ' in str(report)
    assert "hint: compile with fmad=False" in str(report)
    assert report.as_json()["difference"]["by_contraction"] is True
    for contract in ("off", "ptxas"):
        assert (
            launch.under_schedules(NUMBERS, np.zeros(6, np.float32), schedules=2, contract=contract).difference is None
        )

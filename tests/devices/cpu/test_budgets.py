"""Every stage of ``load`` and of a first launch is linear in the text, or refuses it: shapes that were not."""

from __future__ import annotations

import collections
import contextlib
import gc
import re
import runpy
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import cujit
from cujit.devices import jit
from cujit.devices.cpu import pipeline, preparation
from cujit.devices.cpu.analysis import dataflow, uniformity
from cujit.devices.cpu.analysis.body import Body
from cujit.devices.cpu.codegen import builder, nodes, ssa
from cujit.devices.cpu.frontend import flatten, inlining
from cujit.devices.cpu.frontend.layout import ModuleLayout
from cujit.devices.cpu.ir import cfg
from cujit.devices.cpu.ir.refusals import Refusals
from cujit.devices.cpu.pipeline import ir_of, prepare
from cujit.devices.shapes import Dim3
from cujit.errors import CujitError, UnsupportedError
from cujit.formats.ptx.parser import parse
from processes import printed
from raising import raises

_BENCHMARK = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks/ptx_shapes.py"))
SHAPES: dict[str, Callable[[int], str]] = _BENCHMARK["SHAPES"]


def operations(text: str) -> int:
    """Count the operations of a kernel and of the functions that it calls."""
    module = parse(text)
    (entry,) = module.entries
    body = prepare(entry, ModuleLayout(module, Refusals()), Refusals())
    return sum(len(each.program.ops) for each in body.bodies)


@pytest.mark.parametrize("shape", ["call tree", "call chain", "calls", "long calls", "functions"])
@pytest.mark.parametrize("count", [100, 1000])
def test_inlining_has_a_limit_of_operations(shape: str, count: int) -> None:
    text = SHAPES[shape](count)
    statements = text.count(";")
    assert operations(text) <= 3 * max(100_000, 2 * statements)


def test_chain_of_calls_deeper_than_the_stack_of_python_runs(device: cujit.Device) -> None:
    functions = "".join(
        f".func (.param .b32 z) f{i}(.param .b32 x) {{ .reg .b32 a; ld.param.b32 a, [x]; add.u32 a, a, 1; "
        + (
            f"{{ .param .b32 u; .param .b32 v; st.param.b32 [u], a; call (v), f{i - 1}, (u); ld.param.b32 a, [v]; }}"
            if i
            else ""
        )
        + " st.param.b32 [z], a; ret; }\n"
        for i in range(500)
    )
    text = f""".version 8.0
.target sm_80
.address_size 64
{functions}.visible .entry k(.param .u64 p) {{
.reg .b64 d; .reg .b32 a;
ld.param.u64 d, [p]; mov.u32 a, %tid.x;
{{ .param .b32 u; .param .b32 v; st.param.b32 [u], a; call (v), f499, (u); ld.param.b32 a, [v]; }}
mad.wide.u32 d, a, 4, d; st.global.u32 [d+-2000], a; ret; }}"""
    out = device.zeros(32, np.uint32)
    cujit.load(text, device)["k"][1, 32](out)
    assert out.numpy().tolist() == [500 + k for k in range(32)]


def test_cyclic_functions_load_in_linear_time() -> None:
    seconds = []
    for count in (500, 2000):
        text = SHAPES["cyclic calls"](count)
        begin = time.process_time()
        cujit.load(text, cujit.cpu())
        seconds.append(time.process_time() - begin)
    assert seconds[1] < 8 * seconds[0]


HUGE = (
    """
import resource
import numpy as np
import cujit

text = """
    + repr(""".version 8.0
.target sm_80
.address_size 64
.global .align 8 .b8 g[4000000000] = {1, 2};
.visible .entry k(.param .u64 p) {
.reg .b64 d, g1; .reg .b32 a, b;
ld.param.u64 d, [p]; mov.u64 g1, g; ld.global.u8 a, [g1+1]; ld.global.u8 b, [g1+3999999999]; add.u32 a, a, b;
st.global.u32 [d], a; st.global.u32 [g1+2000000000], a; ret; }""")
    + """
device = cujit.cpu(1)
out = device.zeros(1, np.uint32)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
cujit.load(text, device)["k"][1, 1](out)
print(out.numpy()[0], (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""
)


def test_huge_variable_takes_memory_only_where_written() -> None:
    value, megabytes = map(int, printed(HUGE).split())
    assert value == 2
    assert megabytes < 300


def test_variables_larger_than_memory_are_an_error() -> None:
    text = (
        ".version 8.0\n.target sm_80\n.address_size 64\n.global .b8 g[1099511627776000];\n.visible .entry k() { ret; }"
    )
    with raises(CujitError, "load", "1,099,511,627,776,000 bytes"):
        cujit.load(text, cujit.cpu())


PRODUCT = """
import resource, sys, time
import cujit
sys.path.insert(0, sys.argv[1])
from ptx_shapes import SHAPES

text = SHAPES["mma"](256)
device = cujit.cpu()
kernel = cujit.load("".join(SHAPES["mma"](4)), device)["k"]
kernel.compile(64)
before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
cujit.load(text, device)["k"].compile(64)
print(time.process_time() - begin, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def test_product_of_256_mma_compiles_in_seconds() -> None:
    benchmarks = Path(__file__).parents[3] / "benchmarks"
    seconds, megabytes = map(float, printed(PRODUCT, benchmarks, environment={"CUJIT_CACHE": "0"}).split())
    assert seconds < 15  # 4 on a machine that does nothing else
    assert megabytes < 300


def test_code_without_passes_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_CACHE", "0")
    shapes = ("diamonds", "straight", "calls", "barriers", "mma")
    found = _results(shapes)
    monkeypatch.setattr(nodes, "_HUGE", 0)
    assert (_results(shapes) == found).all()


@pytest.mark.parametrize(("shape", "budget"), [("early ends", "_MOST_LIVE"), ("uniform jumps to all", "_MOST_WAYS")])
def test_code_of_quadratic_llvm_cost_is_compiled_without_passes(
    shape: str, budget: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "cujit-huge" not in _ir(shape, 9)
    monkeypatch.setattr(builder, budget, 20)
    assert '"cujit-huge"="yes"' in _ir(shape, 9)


def test_hot_memory_is_hidden_from_llvm_with_equal_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_CACHE", "0")
    shapes = ("divisions", "roundings", "exchanges", "mma")
    found = _results(shapes)
    monkeypatch.setattr(nodes, "_MOST_USES", 2)
    assert "%matrix.frame = call ptr asm" in _ir("mma", 4)
    assert (_results(shapes) == found).all()


@pytest.mark.parametrize("shape", ["chain", "calls"])
def test_lane_of_a_long_chain_is_read_through_memory(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_CACHE", "0")
    found = _results([shape])
    monkeypatch.setattr(nodes, "_LEAST", 0)
    monkeypatch.setattr(nodes, "_MOST_CHAINED", 0)
    assert "%chained.32.i32 = call ptr asm" in _ir(shape, 12)
    assert (_results([shape]) == found).all()


def test_long_chain_takes_linear_llvm_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_CACHE", "0")
    kernels = [cujit.load(SHAPES["chain"](count), cujit.cpu(1))["k"] for count in (1_000, 8_000)]
    begin = time.process_time()
    kernels[0].compile(64)
    between = time.process_time()
    kernels[1].compile(64)
    assert time.process_time() - between < 24 * (between - begin)  # 8 where it is linear


def test_many_loops_of_a_function_are_compiled_without_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "MOST_LOOPS", 9)
    assert "cujit-huge" not in _ir("loops that store", 9)
    assert '"cujit-huge"="yes"' in _ir("loops that store", 10)


@pytest.mark.parametrize(
    ("limit", "shape", "most", "too_many"),
    [
        ("_LONGEST_CHAIN", "chain", 19, 21),
        ("_LONGEST_CHAIN", "selections", 39, 41),
        ("_MOST_RELOADS", "parameters by address", 41, 42),
    ],
    ids=["arithmetic", "choices", "reads of a vector between calls"],
)
def test_chain_too_long_for_llvm_is_compiled_without_passes(
    monkeypatch: pytest.MonkeyPatch, limit: str, shape: str, most: int, too_many: int
) -> None:
    monkeypatch.setattr(nodes, "_LEAST", 0)
    monkeypatch.setattr(nodes, limit, 40)
    assert "cujit-huge" not in _ir(shape, most)
    assert '"cujit-huge"="yes"' in _ir(shape, too_many)


def test_each_cut_of_a_long_block_has_two_successors() -> None:
    """LLVM sinks values into a block that one way leads to."""
    ir = _ir("stores", 1000)
    cuts = re.findall(r"label %(aside\$\d+), label %(aside\.end\$\d+)", ir)
    assert len(cuts) > 2
    for aside, behind in cuts:
        assert f'{aside}:\n  call void asm sideeffect "", ""()\n  br label %{behind}' in ir


@pytest.mark.parametrize("guard", ["", "@p ", "@!p "])
def test_jumps_by_one_table_are_joined_with_the_same_targets(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_CACHE", "0")
    blocks = [
        f"L{k}: add.u32 r4, r4, 1; setp.gt.u32 p, r4, 9; @p bra END; mad.lo.u32 r1, r1, 1664525, {k};"
        f" add.u32 r3, r3, r1; and.b32 r3, r3, 3; setp.lt.s32 p, r1, 0; {guard}brx.idx r3, T;"
        for k in range(4)
    ]
    begin = "T: .branchtargets L0, L1, L2, L3; mov.u32 r4, 0; mov.u32 r5, %tid.x;"
    text = _BENCHMARK["_kernel"]([begin, *blocks, "bra L0;", "END: mad.wide.u32 d1, r5, 4, d1;"])
    found = []
    for most in (10_000, 0):
        monkeypatch.setattr(flatten, "_MOST_WAYS", most)
        module = parse(text)
        program = prepare(module.entries[0], ModuleLayout(module, Refusals()), Refusals()).program
        assert sum(op.opcode == "brx" for op in program.ops) == (4 if most else 2)
        out = (device := cujit.cpu(1)).zeros(64, np.uint32)
        cujit.load(text, device)["k"][1, 64](out)
        found.append(out.numpy())
    assert (found[0] == found[1]).all()
    assert len(set(found[0].tolist())) > 1


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_half_pairs_take_about_the_instructions_of_one_half(name: str) -> None:
    def lines(type_: str, bits: int, move: str) -> int:
        body = [f"{move} mov.b{bits} h3, h2;", f"fma.rn.{type_} h1, h2, h3, h1;" * 50, f"st.global.b{bits} [d1], h1;"]
        module = parse(_BENCHMARK["_kernel"](body, "", f".reg .b{bits} h<4>;"))
        prepared = prepare(module.entries[0], ModuleLayout(module, Refusals()), Refusals())
        return ir_of(prepared, Dim3(64)).count("\n")

    pair = lines(f"{name}x2", 32, "mov.b32 h1, r1; mov.b32 h2, r1;")
    assert pair < 1.3 * lines(name, 16, "mov.b32 {h1, h2}, r1;")


BRANCHING = {"loop nest": 60, "nested ifs": 60, "irreducible": 60, "exits": 60, "loop heads": 60, "nested loops": 40}
"""Shapes of control flow, and counts from which on their code grows in proportion to them."""


@pytest.mark.parametrize("shape", BRANCHING)
def test_ir_is_linear_in_the_text_for_all_control_flow(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssa, "_MOST_WAYS", 4000)  # which small kernels come to, too
    monkeypatch.setattr(ssa, "_MOST_WAYS_EACH", 1)
    lengths = [len(_ir(shape, count)) for count in (BRANCHING[shape], 4 * BRANCHING[shape])]
    assert lengths[1] < 6 * lengths[0]


GROWING = {"diamonds": 150, "registers": 300, "wide switch": 150, "exchanges": 100, "jumps to all": 80, "copies": 500}
"""Shapes, and counts from which on the stages of a first launch take time in proportion."""


@pytest.mark.parametrize("shape", GROWING)
def test_ir_is_written_in_linear_time(shape: str) -> None:
    least = min(_seconds_of_ir(shape, GROWING[shape]) for _ in range(3))
    found = (_seconds_of_ir(shape, 4 * GROWING[shape]) for _ in range(3))  # of several for what slows one by chance
    assert any(seconds < 12 * least for seconds in found)  # 4 where it is linear, 16 where it is the square


def test_divergence_is_found_in_linear_time() -> None:
    def seconds(body: Body) -> float:
        begin = time.thread_time()
        uniformity.analyse(body.program, body.graph, Dim3(64))
        return time.thread_time() - begin

    short, long = (_body("shuffles of some", count) for count in (500, 2000))
    least = min(seconds(short) for _ in range(3))
    assert any(seconds(long) < 9 * least for _ in range(3))  # 4 where it is linear, 16 where it is the square


def test_branches_with_many_targets_count_in_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    starts, reach = [], dataflow.reach

    def counted(start: int, stop: int, successors: Sequence[Sequence[int]]) -> int:
        starts.append(start)
        return reach(start, stop, successors)

    monkeypatch.setattr(uniformity, "_MOST_SIDES", 8)
    monkeypatch.setattr(uniformity, "_MOST_STEPS", 20_000)
    monkeypatch.setattr(uniformity, "reach", counted)
    body = _body("shared tables", 70)
    uniformity.analyse(body.program, body.graph, Dim3(64))
    assert 0 < len(starts) < 30


def _body(shape: str, count: int) -> Body:
    module = parse(SHAPES[shape](count))
    return prepare(module.entries[0], ModuleLayout(module, Refusals()), Refusals())


def _ir(shape: str, count: int) -> str:
    return ir_of(_body(shape, count), Dim3(64))


def _seconds_of_ir(shape: str, count: int) -> float:
    body = _body(shape, count)
    gc.collect()
    gc.disable()
    try:
        begin = time.thread_time()
        ir_of(body, Dim3(64))
        return time.thread_time() - begin
    finally:
        gc.enable()


def _results(shapes: Sequence[str]) -> npt.NDArray[np.uint32]:
    data = (device := cujit.cpu(1)).array(np.arange(1 << 14, dtype=np.uint32))
    for shape in shapes:
        cujit.load(SHAPES[shape](12), device)["k"][2, 64](data)
    return data.numpy()


@pytest.mark.parametrize("budget", ["_MOST_SIDES", "_MOST_STEPS"])
def test_past_the_divergence_budget_results_are_equal(budget: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_CACHE", "0")
    shapes = ("diamonds", "nested ifs", "exits", "wide switch", "irreducible", "barriers", "loop nest")
    found = _results(shapes)
    monkeypatch.setattr(uniformity, budget, -1)
    assert (_results(shapes) == found).all()


def test_variables_of_a_long_switch_become_values() -> None:
    assert "%kept.at" not in _ir("wide switch", 1500)


@pytest.mark.parametrize("budget", ["_MOST_WAYS", "_MOST_BITS", "_MOST_PASSES"])
def test_variables_in_memory_have_equal_values(budget: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_CACHE", "0")
    shapes = ("exits", "irreducible", "loop nest")
    found = _results(shapes)
    monkeypatch.setattr(ssa, budget, 0)
    monkeypatch.setattr(ssa, "_MOST_WAYS_EACH", 0)
    assert "%kept.at = call ptr asm" in _ir("loop nest", 2)
    assert (_results(shapes) == found).all()


def test_kernel_too_large_for_llvm_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_CACHE", "0")
    monkeypatch.setattr(nodes, "_MOST_NODES", 5000)
    device = cujit.cpu(1)
    with raises(UnsupportedError, "unsupported", "k", "CPU", "cujit.gpu(0)"):
        cujit.load(SHAPES["irreducible"](60), device)["k"].compile(64)
    cujit.load(SHAPES["irreducible"](2), device)["k"].compile(64)


def test_indirect_calls_with_too_many_targets_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (flatten, inlining):
        monkeypatch.setattr(module, "MOST_CALLED", 1000)
    text = SHAPES["functions by address"](60)
    with raises(UnsupportedError, "unsupported", "more than 1,000 functions"):
        cujit.load(text, cujit.cpu(1))
    cujit.load(SHAPES["functions by address"](30), cujit.cpu(1))


@pytest.mark.parametrize("shape", ["kernels that call", "kernels that call by address"])
def test_kernels_with_too_many_functions_are_refused(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "_MOST_OPS", 10)
    text = SHAPES[shape](200)
    module = cujit.load(text, cujit.cpu(1))
    module["e0"][1, 32]()
    with raises(UnsupportedError, "unsupported", "too many kernels", "e199"):
        module["e199"][1, 32]()


def test_llvm_thread_takes_little_of_a_memory_limit() -> None:
    def data() -> int:
        found = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text())
        assert found is not None
        return int(found[1]) << 10

    assert jit.aside(data) - data() < 128 << 20


def test_64_lane_code_counts_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []
    monkeypatch.setattr(nodes.IrModule, "grow", lambda _, nodes=0: counted.append(nodes))
    lines = _ir("functions of halves", 40).count("\n")
    assert sum(counted) > 1.5 * lines
    counted.clear()
    lines = _ir("sines", 40).count("\n")
    assert sum(counted) < 1.2 * lines


def test_too_deeply_nested_loops_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cfg, "_MOST_STEPS", 100)
    monkeypatch.setattr(cfg, "_MOST_STEPS_EACH", 2)
    with raises(UnsupportedError, "unsupported", "k", "loops"):
        cujit.load(SHAPES["nested loops"](60), cujit.cpu(1))
    cujit.load(SHAPES["nested loops"](6), cujit.cpu(1))


def test_every_shape_of_text_loads_or_is_refused() -> None:
    """``make fuzz-ptx`` does this with a megabyte of each, under limits of time and memory."""
    for name in SHAPES:
        with contextlib.suppress(CujitError):
            cujit.load(_BENCHMARK["sized"](name, 2000), cujit.cpu(1))


def test_only_the_last_of_several_large_texts_stays_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    recent: collections.deque[preparation._Parsed] = collections.deque(maxlen=8)
    monkeypatch.setattr(preparation, "_RECENT", recent)
    texts = [SHAPES["straight"](8000 + k) for k in range(3)]
    texts += ["".join(SHAPES["straight"](k)) for k in (1, 2)]
    for text in texts:
        cujit.load(text, cujit.cpu(1))
        assert sum(each.length for each in [*recent][:-1]) <= 500_000
        assert recent[-1].length == len(text)
    assert [each.length for each in recent] == [len(text) for text in texts[-3:]]


def test_directives_are_read_in_linear_time() -> None:
    seconds = []
    for count in (2000, 16000):
        begin = time.thread_time()
        parse(SHAPES["directives"](count))
        seconds.append(time.thread_time() - begin)
    assert seconds[1] < 24 * seconds[0]  # 8 where it is linear

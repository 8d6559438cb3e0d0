"""Traces: what one thread executed, and with which values."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest

from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.devices.cpu.ir.decoding import TracedValue
from cujit.devices.cpu.observe.trace import Step, Trace
from cujit.devices.cpu.pipeline import ir_of
from cujit.devices.cpu.preparation import Preparation
from cujit.devices.cpu.run.source_map import Lines
from cujit.devices.device import Device
from cujit.devices.shapes import Dim3
from cujit.errors import KernelFaultError, OptionError
from cujit.loading import Module, jit, load
from cujit.machine import cpu
from raising import raises

pytestmark = pytest.mark.verbatim

PTX = """
.version 8.4
.target sm_90
.address_size 64
{rest}
.visible .entry k(.param .u64 p)
{{
    .reg .pred %p<4>;
    .reg .b16 %h<4>;
    .reg .b32 %r<9>;
    .reg .f32 %f<9>;
    .reg .b64 %rd<9>;
    .reg .f64 %d<9>;
    .reg .b128 %q<2>;
    .shared .align 4 .b32 tile[64];
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
{body}
    ret;
}}
"""


def traced(body: str, trace: Trace, *, rest: str = "", grid: int = 1, block: int = 64) -> Trace:
    """Run a body on a zeroed array, of which %rd3 is the thread's word."""
    text = PTX.format(body=body, rest=rest)
    device = cpu(trace=trace)
    module = load(Artifact(ImageKind.PTX, text.encode(), Arch.parse("compute_90")), device)
    module["k"][grid, block](device.array(np.zeros(1024, np.uint32)))
    return trace


def steps_of(body: str, thread: int = 5, **more: object) -> list[Step]:
    """Give the steps of a body in block 0 without those before and after it."""
    return list(traced(body, Trace(0, thread), **more).steps[4:-1])  # type: ignore[arg-type]


def values(step: Step) -> tuple[list[str], list[str]]:
    return list(map(str, step.reads)), list(map(str, step.writes))


@pytest.mark.parametrize(
    ("op", "reads", "writes"),
    [
        ("add.s32 %r2, %r1, -9;", ["%r1 = 5"], ["%r2 = -4 (0xfffffffc)"]),
        ("add.u32 %r2, %r1, -9;", ["%r1 = 5"], ["%r2 = 4294967292 (0xfffffffc)"]),
        ("setp.lt.s32 %p1, %r1, 6;", ["%r1 = 5"], ["%p1 = true"]),
        ("cvt.rn.f32.u32 %f1, %r1;", ["%r1 = 5"], ["%f1 = 5.0 (0x40a00000)"]),
        ("cvt.rn.f64.s32 %d1, %r1;", ["%r1 = 5"], ["%d1 = 5.0 (0x4014000000000000)"]),
        ("mov.f64 %d1, 0d3FB999999999999A;", [], ["%d1 = 0.1 (0x3fb999999999999a)"]),
        ("mov.f32 %f1, 0f7F800000;", [], ["%f1 = inf (0x7f800000)"]),
        ("cvt.rn.f16.u32 %h1, %r1;", ["%r1 = 5"], ["%h1 = 5.0 (0x4500)"]),
        (
            "fma.rn.bf16x2 %r2, %r3, %r3, %r3;",
            ["%r3 = {0.0, 0.0} (0x00000000)"],
            ["%r2 = {0.0, 0.0} (0x00000000)"],
        ),
        ("mov.b128 %q1, {%rd2, %rd2};", ["%rd2 = 20 (0x14)"], [f"%q1 = {20 << 64 | 20:#x}"]),
        ("mul.wide.s32 %rd4, %r1, -4;", ["%r1 = 5"], ["%rd4 = -20 (0xffffffffffffffec)"]),
        ("st.shared.u32 [tile+8], %r1;", ["%r1 = 5"], []),
    ],
    ids=lambda value: value.split()[0] if isinstance(value, str) else "",
)
def test_values_are_read_by_their_types(op: str, reads: list[str], writes: list[str]) -> None:
    (step,) = steps_of(op)
    assert values(step) == (reads, writes)
    assert step.text == op.rstrip(";")


def test_addresses_are_shown_whole() -> None:
    _, load_, store = steps_of("add.s64 %rd3, %rd3, 4;\n ld.global.u32 %r2, [%rd3+16];\n st.global.u32 [%rd3+-4], %r2;")
    (at,), (to, _) = load_.reads, store.reads
    assert (at.name, to.name, at.type) == ("[%rd3+16]", "[%rd3-4]", "address")
    assert at.bits - to.bits == 20
    assert values(load_)[1] == ["%r2 = 0"]


def test_untyped_registers_are_read_by_their_other_uses() -> None:
    body = "ld.global.b32 %r2, [%rd3];\n add.rn.f32 %r3, %r2, 0f3F800000;\n st.global.b32 [%rd3], %r3;"
    _, _, store = steps_of(body)
    assert values(store)[0][1] == "%r3 = 1.0 (0x3f800000)"


def test_false_predicate_holds_an_instruction_back() -> None:
    body = "setp.eq.u32 %p1, %r1, 5;\n @!%p1 mov.u32 %r2, 7;\n @%p1 mov.u32 %r2, 8;"
    _, no, yes = steps_of(body)
    assert (no.ran, yes.ran) == (False, True)
    assert str(no).endswith("%p1 = true -> not done")
    assert values(yes)[1] == ["%r2 = 8"]


def test_trace_has_only_the_threads_side_of_a_branch() -> None:
    body = """
    setp.lt.u32 %p1, %r1, 40;
    @%p1 bra LOW;
    mov.u32 %r2, 100;
    bra.uni END;
LOW:
    mov.u32 %r2, 200;
END:
    st.global.u32 [%rd3], %r2;"""
    low, high = ([step.text for step in steps_of(body, thread)] for thread in (39, 40))
    assert low == ["setp.lt.u32 %p1, %r1, 40", "@%p1 bra LOW", "mov.u32 %r2, 200", "st.global.u32 [%rd3], %r2"]
    assert high[1:4] == ["@%p1 bra LOW", "mov.u32 %r2, 100", "bra.uni END"]
    assert "not taken" in str(steps_of(body, 40)[1])
    assert "not taken" not in str(steps_of(body, 39)[1])


def test_trace_has_every_iteration_of_a_loop() -> None:
    body = """
    mov.u32 %r2, 0;
L:
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, %r1;
    @%p1 bra L;"""
    steps = steps_of(body, 33)
    assert [step.writes[0].value for step in steps if step.text.startswith("add")] == list(range(1, 34))


def test_trace_has_barriers_and_warp_wide_operations() -> None:
    body = """
    bar.sync 0;
    setp.lt.u32 %p1, %r1, 3;
    barrier.red.popc.u32 %r2, 0, %p1;
    shfl.sync.bfly.b32 %r3|%p2, %r1, 1, 31, -1;
    @%p1 bra L;
    barrier.sync 1;
    bra M;
L:
    barrier.sync 1;
M:
    mov.u32 %r4, 1;"""
    for thread in (1, 2, 40):
        steps = steps_of(body, thread)
        assert [step.text.split()[0] for step in steps][:4] == [
            "bar.sync", "setp.lt.u32", "barrier.red.popc.u32", "shfl.sync.bfly.b32"
        ]  # fmt: skip
        assert values(steps[2])[1] == ["%r2 = 3"]
        assert steps[3].writes[0].value == thread ^ 1
        assert sum(step.text == "barrier.sync 1" for step in steps) == 1
        assert steps[-1].text == "mov.u32 %r4, 1"


_RECURSION = """
.func (.param .b32 out) sum(.param .b32 n)
{
    .reg .pred %p;
    .reg .b32 %r<5>;
    ld.param.u32 %r1, [n];
    mov.u32 %r3, 0;
    setp.eq.u32 %p, %r1, 0;
    @%p bra DONE;
    sub.u32 %r2, %r1, 1;
    { .param .b32 a; .param .b32 b;
      st.param.b32 [a], %r2;
      call (b), sum, (a);
      ld.param.b32 %r3, [b]; }
    add.u32 %r3, %r3, %r1;
DONE:
    st.param.b32 [out], %r3;
    ret;
}
"""


def test_called_functions_are_traced() -> None:
    body = """
    { .param .b32 a; .param .b32 b;
      st.param.b32 [a], 3;
      call (b), sum, (a);
      ld.param.b32 %r2, [b]; }
    st.global.u32 [%rd3], %r2;"""
    steps = steps_of(body, rest=_RECURSION)
    assert [step.writes[0].value for step in steps if step.text.startswith("add.u32 %r3")] == [1, 3, 6]
    assert str(steps[-1].reads[1]) == "%r2 = 6"


@pytest.mark.parametrize(
    ("block", "thread", "index"),
    [(3, 7, ((1, 1, 0), (3, 1, 0))), ((1, 1), (3, 1), ((1, 1, 0), (3, 1, 0))), ((0, 0, 1), 0, ((0, 0, 1), (0, 0, 0)))],
    ids=["linear", "indices", "mixed"],
)
def test_block_and_thread_are_linear_or_indices(
    block: int | tuple[int, ...], thread: int | tuple[int, ...], index: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    code = 'extern "C" __global__ void k(unsigned* p) { *p = blockIdx.x + 10 * blockIdx.y + 100 * threadIdx.y; }'
    trace = Trace(block, thread)
    device = cpu(trace=trace)
    jit(code, device=device)["k"][(2, 2, 2), (4, 4)](device.array(np.zeros(1, np.uint32)))
    (launch,) = trace.launches
    assert (launch.block, launch.thread) == index
    (x, y, _), (_, row, _) = index
    stored = next(step for step in launch.steps if step.text.startswith("st.global"))
    assert stored.reads[-1].value == x + 10 * y + 100 * row


@pytest.mark.parametrize(
    ("trace", "words"),
    [
        (Trace(4, 0), "there is no block 4: there are 1 (1x1x1)"),
        (Trace(0, 64), "there is no thread 64: there are 64 (64x1x1)"),
        (Trace(0, (0, 1)), "there is no thread 0:1: there are 64x1x1"),
    ],
    ids=["block", "thread", "index"],
)
def test_missing_thread_is_reported(trace: Trace, words: str) -> None:
    (launch,) = traced("", trace).launches
    assert launch.steps == ()
    assert launch.missing == words
    assert words in str(trace)


@pytest.mark.parametrize("bad", [-1, "0", 1.5, True, (1, 2, 3, 4), ()], ids=repr)
def test_invalid_index_is_refused(bad: object) -> None:
    with raises(OptionError, "option", "trace"):
        Trace(bad)  # type: ignore[arg-type]
    with raises(OptionError, "option", "trace"):
        Trace(0, bad)  # type: ignore[arg-type]


def test_instructions_past_the_limit_are_only_counted() -> None:
    trace = traced("mov.u32 %r2, 1;\n mov.u32 %r3, 2;\n mov.u32 %r4, 3;", Trace(limit=5))
    (launch,) = trace.launches
    assert [step.text for step in launch.steps][-1] == "mov.u32 %r2, 1"
    assert launch.steps[-1].writes  # the last that is kept is whole
    assert launch.dropped == 3
    assert str(trace).endswith("… and 3 instructions more, beyond the trace's limit")


def test_limit_covers_all_launches_until_cleared() -> None:
    trace = Trace(limit=8)
    device = cpu(trace=trace)
    kernel = load(Artifact(ImageKind.PTX, PTX.format(body="", rest="").encode(), Arch.parse("compute_90")), device)["k"]
    array = device.array(np.zeros(64, np.uint32))
    for _ in range(2):
        kernel[1, 32](array)
    assert [(len(launch.steps), launch.dropped) for launch in trace.launches] == [(5, 0), (3, 2)]
    trace.clear()
    kernel[1, 32](array)
    assert [(len(launch.steps), launch.dropped) for launch in trace.launches] == [(5, 0)]


def test_long_trace_is_kept_whole() -> None:
    body = "mov.u32 %r2, 0;\nL:\n add.u32 %r2, %r2, 1;\n setp.lt.u32 %p1, %r2, 20000;\n @%p1 bra L;"
    steps = steps_of(body)
    assert len(steps) == 1 + 3 * 20000
    assert steps[-1].reads[0].value is False


_DEADLOCK = "setp.eq.u32 %p1, %r1, 5;\n @%p1 bra L;\n bar.sync 0;\n bra M;\nL:\n bar.sync 1;\nM:"


@pytest.mark.parametrize(
    ("body", "last", "code", "value"),
    [
        ("mov.b64 %rd4, 8; st.global.u32 [%rd4], %r1;", "st.global.u32 [%rd4], %r1", "fault-illegal-address", "0x8"),
        ("trap;", "trap", "fault-trap", "trap"),
        (_DEADLOCK, "bar.sync 1", "fault-deadlock", "bar.sync 0"),
    ],
    ids=["address", "trap", "deadlock"],
)  # fmt: skip
def test_fault_keeps_the_earlier_trace(body: str, last: str, code: str, value: str) -> None:
    trace = Trace(0, 5)
    with raises(KernelFaultError, code, value):
        traced(body, trace)
    (launch,) = trace.launches
    assert launch.steps[-1].text == last
    assert launch.steps[-1].writes == ()
    assert value in launch.fault
    assert value in str(trace)


SOURCE = """\
extern "C" __global__ void k(const float* x, float* y) {
    float v = x[threadIdx.x];
    y[threadIdx.x] = sqrtf(v) + 0.5f;
}
"""


def _module(device: Device, **options: object) -> Module:
    return jit(SOURCE, name="root.cu", device=device, **options)  # type: ignore[arg-type]


def test_source_lines_are_printed_once_when_they_change() -> None:
    trace = Trace(0, 2)
    device = cpu(trace=trace)
    arrays = device.array(np.full(4, 9, np.float32)), device.array(np.zeros(4, np.float32))
    _module(device)["k"][1, 4](*arrays)
    lines = str(trace).splitlines()
    assert lines[0] == "k: block 0:0:0, thread 2:0:0"
    assert "root.cu:2: float v = x[threadIdx.x];" in lines
    assert all(a != b for a, b in itertools.pairwise(lines))
    assert re.search(r"st\.global\.f32 .* = 3\.5 \(0x40600000\)", str(trace))


def test_ptx_lines_replace_missing_line_information() -> None:
    trace = Trace(0, 2)
    device = cpu(trace=trace)
    arrays = device.array(np.full(4, 9, np.float32)), device.array(np.zeros(4, np.float32))
    _module(device, lineinfo=False)["k"][1, 4](*arrays)
    assert "root.cu" not in str(trace)
    assert all(step.ptx_line and step.source is None for step in trace.steps)


def test_results_equal_those_without_a_trace() -> None:
    numbers = np.arange(256, dtype=np.float32)
    results = []
    for device in (cpu(trace=Trace(1, 3)), cpu()):
        y = device.array(np.zeros(256, np.float32))
        _module(device)["k"][4, 64](device.array(numbers), y)
        results.append(y.numpy())
    assert results[0].tobytes() == results[1].tobytes()


def test_launch_of_another_device_is_replayed_with_a_trace() -> None:
    device = cpu()
    x, y = device.array(np.full(4, 4, np.float32)), device.array(np.zeros(4, np.float32))
    trace = Trace(0, 1)
    _, copied = _module(device)["k"][1, 4].replay_on_cpu(x, y, device=cpu(trace=trace))
    assert isinstance(copied, np.ndarray)
    assert copied[1] == 2.5
    assert y.numpy()[1] == 0
    assert trace.steps


@pytest.mark.parametrize(
    ("type_", "bits", "value"),
    [
        ("s32", 0xFFFFFFFF, -1), ("u32", 0xFFFFFFFF, 0xFFFFFFFF), ("f16", 0xC000, -2.0), ("bf16", 0x4049, 3.140625),
        ("f16x2", 0x3C004000, (2.0, 1.0)), ("pred", 1, True), ("s8", 0x80, -128), ("f64", 0x7FF0 << 48, math.inf),
    ],
    ids=["s32", "u32", "f16", "bf16", "f16x2", "pred", "s8", "f64"],
)  # fmt: skip
def test_bits_are_read_by_their_type(type_: str, bits: int, value: object) -> None:
    assert TracedValue("%x", type_, bits).value == value


def test_code_of_other_devices_contains_no_tracing() -> None:
    preparation = Preparation(PTX.format(body="", rest=""), "<ptx>")
    body = preparation.body("k")
    watch = Trace().watch("k", body, Lines(lambda: preparation.ptx(), ""))
    assert "trace" in ir_of(body, Dim3(32), [watch.observer()])
    assert "trace" not in ir_of(body, Dim3(32))

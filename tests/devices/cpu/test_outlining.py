"""Arithmetic that a kernel repeats very often is called, and computes the same."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import cujit
from cujit.devices.cpu.codegen import outlining, warp
from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.frontend.layout import ModuleLayout
from cujit.devices.cpu.ir.refusals import Refusals
from cujit.devices.cpu.pipeline import ir_of, prepare
from cujit.devices.shapes import Dim3
from cujit.formats.ptx.parser import parse

_SHAPES = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks/ptx_shapes.py"))["SHAPES"]

BODY = """
.version 8.6
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 n) {
.reg .b32 r<9>; .reg .b64 d<5>; .reg .f32 f<5>; .reg .pred p, q; .reg .b16 h;
ld.param.u64 d1, [out]; ld.param.u32 r7, [n]; mov.u32 r1, %tid.x; mad.wide.u32 d2, r1, 16, d1;
ld.global.v4.u32 {r2, r3, r4, r5}, [d2]; mov.b32 f1, r2; mov.b32 f2, r3; cvt.rn.f32.u32 f3, r7;
setp.lt.u32 p, r1, 20; setp.lt.u32 q, r7, 9; mov.u32 r6, 0x12345678; mov.u32 r8, 0x87654321;
"""
_ADD, _ROUND = "vadd4.s32.s32.s32", "fma.rm.f32"
REPEATED = {
    "vectors": f"{_ADD} r2, r2, r3, r4; vabsdiff4.u32.u32.u32.add r3, r2, r3, r4;",
    "guarded": f"@p {_ADD} r2, r2, r3, r4; @!p {_ADD} r2, r2, r3, r4; @!q tanh.approx.f16x2 r3, r3;",
    "uniform": f"{_ADD} r7, r7, r6, r7; {_ADD} r2, r2, r7, r7; tanh.approx.f32 f3, f3; tanh.approx.f32 f1, f1;",
    "constants": (
        f"{_ADD} r2, r2, r6, r6; {_ADD} r2, r2, r8, r8; {_ADD} r3, r6, r8, r2; "
        f"{_ROUND} f1, f1, f2, 0f3F800001; {_ROUND} f1, f1, f2, 0f3FA00001; {_ROUND} f2, f2, 0f3FA00001, f1;"
    ),
    "one register": f"{_ADD} r2, r2, r2, r2; {_ADD} r2, r3, r2, r2; tanh.approx.f16x2 r3, r3;",
    "branches": f"setp.lt.u32 p, r2, r3; @p bra A$; {_ADD} r2, r2, r3, r4; A$: {_ADD} r2, r2, r3, r4;",
    "functions": "tanh.approx.f16x2 r3, r3; ex2.approx.f16x2 r4, r4; sin.approx.f32 f1, f1; tanh.approx.f32 f2, f1;",
    "affine": f"{_ADD} r3, r1, r3, r2; add.u32 r1, r1, 4; {_ADD} r2, r1, r3, r4;",
    "roundings": (
        f"{_ROUND} f1, f1, f2, f3; div.rp.f32 f2, f1, f3; sqrt.rz.f32 f2, f2; {_ROUND} f3, f3, f3, f3; "
        "fma.rp.f32 f1, f1, f2, f3;"
    ),
}
_END = "xor.b32 r2, r2, r7; mov.b32 r5, f1; mov.b32 r4, f2; st.global.v4.u32 [d2], {r2, r3, r4, r5}; ret; }"


def _text(name: str) -> str:
    return "\n".join([BODY, *(REPEATED[name].replace("$", str(i)) for i in range(8)), _END])


def _result(text: str) -> npt.NDArray[np.uint32]:
    device = cujit.cpu(1)
    data = device.array(np.random.default_rng(1).integers(0, 1 << 32, 4 * 96, np.uint32))
    cujit.load(text, device)["k"][1, 96](data, 7)
    return data.numpy()


def _ir(text: str) -> str:
    module = parse(text)
    return ir_of(prepare(module.entries[0], ModuleLayout(module, Refusals()), Refusals()), Dim3(96))


@pytest.mark.parametrize("name", REPEATED)
def test_outlined_code_computes_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_CACHE", "0")
    text = _text(name)
    assert '@"often' not in _ir(text)
    found = _result(text)
    monkeypatch.setattr(warp, "LEAST", 2)
    monkeypatch.setattr(outlining, "_MOST", 60)
    called = re.findall(r'call .* @"often', _ir(text))
    assert len(called) > 7
    assert (_result(text) == found).all()


@pytest.mark.parametrize("shape", ["video", "functions of halves", "sines", "small formats"])
def test_outlined_operation_costs_one_call_of_code(shape: str) -> None:
    lengths = [_ir(_SHAPES[shape](count)).count("\n") for count in (500, 1000)]
    assert lengths[1] - lengths[0] < 500 * 20  # 6 operations at most, of up to 150 nodes each


def test_operations_of_one_kind_are_not_emitted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    emitted: list[str] = []
    outline = outlining.Often.outline

    def noted(often: outlining.Often, b: Builder, begin: int, opcode: str, result: Value) -> Value | None:
        emitted.append(opcode)
        return outline(often, b, begin, opcode, result)

    monkeypatch.setattr(outlining.Often, "outline", noted)
    _ir(_SHAPES["functions of halves"](500))
    assert 20 < len(emitted) < 500


def test_all_functions_of_three_bits_are_right() -> None:
    words = np.array([0xF0F0F0F0, 0xCCCCCCCC, 0xAAAAAAAA], np.uint32)
    tables = "\n".join(f"lop3.b32 r5, r2, r3, r4, {t}; st.global.u32 [d1+{4 * t}], r5;" for t in range(256))
    text = BODY.replace("d2, r1, 16, d1", "d2, 0, 16, d1") + tables + "ret; }"
    device = cujit.cpu(1)
    data = device.array(np.concatenate([words, np.zeros(253, np.uint32)]))
    cujit.load(text, device)["k"][1, 1](data, 7)
    assert (data.numpy() == np.arange(256, dtype=np.uint32) * 0x01010101).all()

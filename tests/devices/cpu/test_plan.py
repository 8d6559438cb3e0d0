"""How the blocks of a kernel are run: where lanes part, and where all of them go one way."""

from __future__ import annotations

import ast
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import numpy as np
import pytest

import cujit
from cujit.devices.cpu import stages
from cujit.devices.cpu.analysis.body import Body
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.control.plan import ControlPlan, fenced
from cujit.devices.cpu.frontend.layout import ModuleLayout
from cujit.devices.cpu.ir.refusals import Refusals
from cujit.devices.cpu.pipeline import ir_of, prepare
from cujit.devices.device import Device
from cujit.devices.shapes import Dim3
from cujit.formats.ptx.parser import parse
from devices.cpu.launching import run_ptx

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
LATE = f"""{HEAD}.visible .entry k()
{{
    .shared .align 4 .b32 cells[32]; .reg .b32 c, t, i, a;
    mov.u32 c, cells; mov.u32 t, %tid.x; mul.lo.u32 i, t, t; and.b32 i, i, 124; add.u32 a, c, i;
    red.shared.add.u32 [a], t; add.u32 t, t, 1; red.shared.add.u32 [a], 5;
    ld.shared.u32 i, [c]; ret;
}}
"""


def body_of(text: str) -> Body:
    """Prepare the one kernel of a text."""
    module, refusals = parse(text), Refusals()
    return prepare(module.entries[0], ModuleLayout(module, refusals), refusals)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Give what stages leave from now on, by their names."""
    seen: dict[str, str] = {}
    monkeypatch.setattr(stages, "_LOOKERS", [lambda stage: seen.update({stage.name: stage.text()})])
    return seen


@pytest.mark.parametrize("between", ["", "add.u32 r3, r3, 16;", "mov.u32 r3, 99;", "mov.u32 r4, 99;"])
def test_branch_uses_the_compared_values(device: Device, between: str) -> None:
    body = f"""
    mov.u32 r3, t; mov.u32 r4, 40; mov.u32 r5, 1;
    setp.lt.u32 q1, r3, r4; {between} @q1 bra SAME;
    mov.u32 r5, 2;
    SAME: add.u32 r5, r5, r3; add.u32 r5, r5, r4; st.global.u32 [at], r5;
    """
    (got,) = run_ptx(device, body, np.zeros(64, np.uint32), block=64)
    threads = range(64)
    r3 = {"add.u32 r3, r3, 16;": [t + 16 for t in threads], "mov.u32 r3, 99;": [99] * 64}.get(between, [*threads])
    r4 = 99 if "r4" in between else 40
    np.testing.assert_array_equal(got, [(1 if t < 40 else 2) + r3[t] + r4 for t in threads])


def test_waiting_operations_follow_pure_computations(shown: dict[str, str]) -> None:
    ir_of(body_of(LATE), Dim3(32))
    assert (
        shown["plan"]
        == """function k
lanes never part
block 0, where all lanes are active
    mov.u32 c, cells
    mov.u32 t, %tid.x
    mul.lo.u32 i, t, t
    and.b32 i, i, 124
    add.u32 a, c, i
    atom.put.shared.add.u32 [a], t, 0
    add.u32 t, t, 1
    atom.put.shared.add.u32 [a], 5, 1
    atom.run.shared.add.u32 [a], t, 0
    atom.run.shared.add.u32 [a], 5, 1
    ld.shared.u32 i, [c]
    ret"""
    )


@pytest.mark.parametrize(
    ("access", "is_strong"),
    [("ld.relaxed.gpu", True), ("ld.acquire.gpu", True), ("ld.volatile", True), ("ld", False), ("ld.weak", False)],
)
def test_strong_accesses_are_between_fences(access: str, is_strong: bool) -> None:
    body = body_of(LATE.replace("ld.shared.u32", f"{access}.shared.u32"))
    opcodes = [op.opcode for op in fenced(body.graph).ops]
    around = ["access.begin", "ld", "access.end"] if is_strong else ["ld"]
    assert opcodes[opcodes.index("red", opcodes.index("red") + 1) + 1 : -1] == around
    assert ("fence" in ir_of(body, Dim3(32))) == is_strong


# -- nothing is set for a while -----------------------------------------------------------------------------

SOURCE = Path(cujit.__file__).parent / "devices" / "cpu"
GOES_ON = {
    "_block", "_blocks", "_count", "_cuts", "_debug_length", "_line", "_nodes", "_seen", "_touches", "_variables",
    "body", "is_huge",
}  # fmt: skip
"""What a ``Builder`` and a module of IR have more of with every node."""


def assigned(function: ast.FunctionDef) -> list[str]:
    """List what a function assigns to attributes of itself, of an emitter or of a builder."""
    stores = [n for n in ast.walk(function) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)]
    whose = ("self", "e", "b", "f", "builder", "flow")
    return [store.attr for store in stores if ast.unparse(store.value).rpartition(".")[2] in whose]


@pytest.mark.parametrize("room", ["codegen", "control", "instructions"])
def test_code_emission_has_no_temporary_state(room: str) -> None:
    functions = [
        function
        for file in (SOURCE / room).rglob("*.py")
        for function in ast.walk(ast.parse(file.read_text()))
        if isinstance(function, ast.FunctionDef)
    ]
    assert len(functions) > 50
    kept = {attribute for function in functions if function.name != "__init__" for attribute in assigned(function)}
    assert kept <= GOES_ON
    # What is put back at the end is set before a yield, or in a try.
    assert not [f.name for f in functions if any(isinstance(n, ast.Yield) for n in ast.walk(f)) and assigned(f)]


def test_emitter_and_a_plan_never_change() -> None:
    for frozen in (WarpEmitter, ControlPlan):
        (attribute, *_) = (field.name for field in fields(frozen))
        with pytest.raises(FrozenInstanceError):
            setattr(object.__new__(frozen), attribute, None)

"""What LLVM does with the code of kernels, and that all of them get it."""

from __future__ import annotations

import traceback
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from llvmlite.binding import PassBuilder
from llvmlite.binding.newpassmanagers import FunctionPassManager

import cujit
import cujit.devices.jit as jit
from cujit.devices.cpu.codegen.nodes import IrModule, Node, Value
from cujit.devices.jit import optimise

IR = """
define internal i32 @twice(i32 %x, i32 %unread) noinline { %y = shl i32 %x, 1 ret i32 %y }
define internal i32 @unused(i32 %x) noinline { ret i32 %x }
define void @run(ptr %at) {
  %place = alloca i32
  store i32 0, ptr %place
  %zero = load i32, ptr %place
  %some = icmp ne i32 %zero, 0
  br i1 %some, label %never, label %end
never:
  %same = call i32 @unused(i32 1)
  store i32 %same, ptr %at
  br label %end
end:
  %x = load i32, ptr %at
  %y = call i32 @twice(i32 %x, i32 3)
  store i32 %y, ptr %at
  ret void
}
"""


def test_kernel_keeps_no_unreachable_code() -> None:
    text = str(optimise(IR, kernel=True))
    assert "define void @run" in text
    assert "alloca" not in text
    assert "@unused" not in text


def test_functions_lose_arguments_that_they_do_not_read() -> None:
    assert "@twice(i32 %x)" in str(optimise(IR, kernel=True))


@pytest.mark.parametrize(
    ("said", "level"),
    [
        ('"cujit-long"="no"', 2),
        ('"cujit-long"="yes"', 1),
        ('"cujit-long"="no" "cujit-loops"="yes"', 2),
        ('"cujit-long"="no" "cujit-loops"="no"', 1),
        ('"cujit-long"="yes" "cujit-loops"="no"', 1),
    ],
)
def test_long_or_loop_free_kernel_gets_linear_passes(said: str, level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    builder, levels = jit._pass_builder, []

    def watched(level: int, *, unrolls: bool) -> object:
        levels.append(level)
        return builder(level, unrolls=unrolls)

    monkeypatch.setattr(jit, "_pass_builder", watched)
    optimise(IR.replace("%at) {", f"%at) {said} {{"), kernel=True)
    assert levels == [level]


@pytest.mark.parametrize(
    ("said", "simplified", "generator"),
    [
        ('"cujit-loops"="no"', 0, 2),
        ('"cujit-loops"="yes"', 3, 2),
        ('"cujit-long"="yes"', 3, 1),
        ('"cujit-long"="yes" "cujit-loops"="no"', 0, 1),
    ],
)
def test_loop_free_kernel_gets_few_passes(
    said: str, simplified: int, generator: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler, run, levels, runs = jit._compiler, FunctionPassManager.run, [], []

    def compiler_of(level: int) -> object:
        levels.append(level)
        return compiler(level)

    def watched(*arguments: object) -> None:
        runs.append(arguments)
        run(*arguments)

    monkeypatch.setattr(jit, "_compiler", compiler_of)
    monkeypatch.setattr(FunctionPassManager, "run", watched)
    jit.emit_object(IR.replace("%at) {", f"%at) {said} {{"), kernel=True)
    assert (levels[-1], len(runs)) == (generator, simplified)


@pytest.mark.parametrize(("constants", "said"), [(100, "no"), (200_000, "yes")])
def test_module_reports_whether_it_is_long(constants: int, said: str) -> None:
    module, one = IrModule(), Value("1", "i32")
    module.constant("c", [one] * constants)
    module.define("run", [], [Node("ret")], linkage="")
    assert f'"cujit-long"="{said}"' in module.text("run")


@pytest.mark.parametrize(("steps", "said"), [("x[0] = n;", "no"), ("for (int k = 0; k < n; k++) x[k] += n;", "yes")])
def test_kernel_reports_whether_it_has_loops(steps: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    monkeypatch.setattr(jit, "_LOOKERS", [texts.append])
    kernel = cujit.jit(f'extern "C" __global__ void k(int *x, int n) {{ {steps} }}', device=cujit.cpu())["k"]
    kernel[1, 32].compile()
    assert [f'"cujit-loops"="{said}"' in text for text in texts if "@run(" in text] == [True]


def test_pass_builder_is_replaced_regularly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each module makes the next one of its builder take longer; ``jit`` says how much."""
    made: list[weakref.ref[PassBuilder]] = []
    served: list[int] = []
    passes_of = PassBuilder.getFunctionPassManager

    def watched(builder: PassBuilder) -> object:
        known = [k for k, one in enumerate(made) if one() is builder]
        if not known:
            made.append(weakref.ref(builder))
            served.append(0)
        served[known[0] if known else -1] += 1
        return passes_of(builder)

    monkeypatch.setattr(PassBuilder, "getFunctionPassManager", watched)
    for _ in range(400):
        optimise(IR, kernel=True)
    assert sum(served) == 400
    assert max(served) <= 64
    assert sum(one() is not None for one in made) <= 4


PTX = """.version 8.0
.target sm_90
.address_size 64
.visible .entry add(.param .u64 p0, .param .u32 p1)
{
    .reg .b64 a, o;
    .reg .b32 r, t, n;
    ld.param.u64 a, [p0];
    ld.param.u32 n, [p1];
    mov.u32 t, %tid.x;
    mul.wide.u32 o, t, 4;
    add.s64 a, a, o;
    add.u32 r, t, n;
    st.global.u32 [a], r;
    ret;
}
"""


@pytest.mark.parametrize("check", [None, "memory"])
def test_every_kernel_is_optimised_as_one(check: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[bool] = []

    def watched(text: str | bytes, level: int = 2, *, kernel: bool = False, **more: bool) -> object:
        if isinstance(text, str) and "define void @run" in text:
            seen.append(kernel)
        return optimise(text, level, kernel=kernel, **more)

    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(jit, "optimise", watched)
    device = cujit.cpu(1, check=check)
    out = device.array(np.zeros(64, np.uint32))
    cujit.load(PTX, device)["add"][1, 64](out, np.uint32(5))
    assert np.array_equal(out.numpy(), np.arange(64) + 5)
    assert seen
    assert all(seen)


def refuse(text: str) -> None:
    raise ValueError(text)


@pytest.mark.parametrize("in_a_thread", [False, True])
def test_error_frames_hold_no_module(in_a_thread: bool) -> None:
    """The collector finalizes a module and its context in any order: in the wrong one the process ends."""
    modules: list[weakref.ref[object]] = []

    def work() -> None:
        module = optimise(IR, passes=False)
        modules.append(weakref.ref(module))
        refuse(str(module))

    def hold() -> None:
        with pytest.raises(ValueError, match="twice") as caught:
            jit.aside(work)
        assert [module() for module in modules] == [None], caught

    if in_a_thread:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(hold).result()
    else:
        hold()


def test_partially_optimized_module_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "_LOOKERS", [refuse])
    with pytest.raises(ValueError, match="twice") as caught:
        optimise(IR)
    frames = [frame.f_locals for frame, _ in traceback.walk_tb(caught.tb)]
    assert [held["module"].closed for held in frames if "module" in held] == [True, True]

"""What is promised to LLVM is looked for in every module that the tests compile; and a promise is found."""

from __future__ import annotations

import pytest

import promises
from cujit.devices.cpu.native.library import PARTS, Part, _ir_of
from cujit.devices.jit import optimise, show_modules

MODULE = """
define internal i32 @run(ptr %at, i32 %n, <4 x i32> %v) {
entry:
  %named = load i32, ptr %at, align 4
  LINE
  ret i32 %named
}
define i32 @call(ptr %at) { %x = call i32 @run(ptr %at, i32 1, <4 x i32> zeroinitializer) ret i32 %x }
"""

GOOD = (
    "%a = add i32 %n, 1",
    "%a = and i32 %n, 31\n  %b = shl i32 1, %a",
    "%a = lshr i32 %n, 31",
    "%a = call i32 @llvm.umax.i32(i32 %n, i32 1)\n  %b = udiv i32 7, %a",
    "%a = and i32 %n, 3\n  %b = extractelement <4 x i32> %v, i32 %a",
    "%a = call i32 @llvm.cttz.i32(i32 %n, i1 false)",
    "%a = alloca <32 x i32>\n  %b = load <32 x i32>, ptr %a",
)
BAD = (
    "%a = add nsw i32 %n, 1",
    "%a = add nuw i32 %n, 1",
    "%a = udiv exact i32 %n, 3",
    "%a = getelementptr inbounds i8, ptr %at, i32 %n",
    "%a = getelementptr nusw i8, ptr %at, i32 %n",
    "%a = or disjoint i32 %n, 1",
    "%a = zext nneg i32 %n to i64",
    "%a = icmp samesign ult i32 %n, 1",
    "%a = fadd fast float 1.0, 2.0",
    "%a = fadd nnan float 1.0, 2.0",
    "%a = fmul contract float 1.0, 2.0",
    "%a = shl i32 1, %n",
    "%a = shl i32 1, 32",
    "%a = lshr <4 x i32> %v, %v",
    "%a = udiv i32 7, %n",
    "%a = srem i32 7, -1",
    "%a = sitofp i32 %n to float\n  %b = fptoui float %a to i8",
    "%a = extractelement <4 x i32> %v, i32 %n",
    "%a = call i32 @llvm.cttz.i32(i32 %n, i1 true)",
    "%a = inttoptr i64 64 to ptr\n  %b = load <32 x i32>, ptr %a",
    "%a = load i32, ptr %at, !range !{i32 0, i32 5}",
    "%a = load i32, ptr %at, !noundef !{}",
    "%a = load i32, ptr %at, !invariant.load !{}",
    "%a = load ptr, ptr %at, !nonnull !{}",
    "call void @llvm.assume(i1 true)",
    "unreachable",
    "%a = tail call i32 @call(ptr noalias %at)",
    "%a = call i32 @call(ptr nonnull %at)",
    "%a = call i32 @call(ptr dereferenceable(4) %at)",
    "%a = call i32 @call(ptr %at) memory(none)",
)


@pytest.fixture
def seen() -> list[str]:
    """The modules that are compiled, as LLVM reads them."""
    texts: list[str] = []
    show_modules(texts.append)
    return texts


def module(line: str) -> str:
    """Write a module with a line; what follows an ``unreachable`` is a block of its own."""
    return MODULE.replace("LINE", line + "\nnext:" if line == "unreachable" else line)


@pytest.fixture(autouse=True)
def every_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for those too that depend on the lines around."""
    monkeypatch.setenv("CUJIT_PROMISES", "all")


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.symbols[0])
def test_native_code_promises_what_is_listed(part: Part) -> None:
    optimise(_ir_of(part), passes=False)


def refused(line: str, attributes: str = "") -> str:
    """Compile a module with a line, and tell what was found."""
    text = module(line).replace("%v) {", f"%v) {attributes} {{")
    try:
        optimise(text, passes=False)
    except AssertionError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("line", GOOD)
def test_what_promises_nothing_is_let_pass(line: str) -> None:
    assert refused(line) == ""


@pytest.mark.parametrize("line", BAD)
def test_a_promise_is_found(line: str) -> None:
    assert "promised to LLVM" in refused(line)


@pytest.mark.parametrize("attribute", ["mustprogress", "nosync", "nofree", "norecurse", '"no-nans-fp-math"="true"'])
def test_an_attribute_of_a_function_is_found(attribute: str) -> None:
    assert "promised to LLVM" in refused("%a = add i32 %n, 1", attribute)


def test_all_functions_may_access_address_0(seen: list[str]) -> None:
    optimise(module(GOOD[0]), passes=False)
    assert promises.broken(seen[-1]) == []
    assert "without null_pointer_is_valid" in promises.broken(seen[-1].replace("null_pointer_is_valid", ""))[0]

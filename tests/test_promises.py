"""What is promised to LLVM is looked for in every module that the tests compile; and a promise is found."""

from __future__ import annotations

import pytest

import promises
from cujit.devices.cpu.native.library import PARTS, RuntimePart
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

SPREAD = """%a = call i32 @llvm.umin.i32(i32 %n, i32 {})
  %b = insertelement <4 x i32> poison, i32 %a, i64 0
  %c = shufflevector <4 x i32> %b, <4 x i32> poison, <4 x i32> zeroinitializer"""
GUARDED = """%a = icmp eq i32 %n, {}
  %b = icmp eq i32 %n, -1
  %c = {}
  %d = select i1 %c, i32 1, i32 %n"""
LOOP = """br label %loop
loop:
  %k = phi i32 [ 0, %entry ], [ %next, %loop ]
  %x = extractelement <4 x i32> %v, i32 %k
  %next = add i32 %k, 1
  %more = icmp ult i32 %next, {}
  br i1 %more, label %loop, label %out
out:"""
PLACED = """%a = alloca [512 x i8], align 128
  %b = shl i32 %n, {}
  %c = getelementptr i8, ptr %a, i32 %b"""

GOOD = (
    "%a = add i32 %n, 1",
    "%a = and i32 %n, 31\n  %b = shl i32 1, %a",
    "%a = lshr i32 %n, 31",
    "%a = call i32 @llvm.umax.i32(i32 %n, i32 1)\n  %b = udiv i32 7, %a",
    "%a = and i32 %n, 3\n  %b = extractelement <4 x i32> %v, i32 %a",
    "%a = call i32 @llvm.cttz.i32(i32 %n, i1 false)",
    "%a = alloca <32 x i32>\n  %b = load <32 x i32>, ptr %a",
    "%a = call i32 @llvm.umin.i32(i32 %n, i32 31)\n  %b = shl i32 7, %a",
    "%a = icmp eq i32 %n, 7\n  %b = select i1 %a, i32 16, i32 0\n  %c = lshr i32 7, %b",
    "%a = and i32 %n, 15\n  %b = xor i32 %a, 31\n  %c = lshr i32 7, %b",
    "%a = and i32 %n, 15\n  %b = add i32 %a, 16\n  %c = lshr i32 7, %b",
    f"{SPREAD.format(31)}\n  %d = shl <4 x i32> %v, %c",
    "%a = call <4 x i32> @llvm.umax.v4i32(<4 x i32> %v, <4 x i32> splat (i32 1))\n  %b = urem <4 x i32> %v, %a",
    f"{GUARDED.format(0, 'or i1 %a, %b')}\n  %q = sdiv i32 7, %d",
    f"{GUARDED.format(0, 'or i1 %b, %a')}\n  %q = srem i32 7, %d",
    LOOP.format(4),
    f"{PLACED.format(7)}\n  %d = load <32 x i32>, ptr %c",
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
    "%a = call i32 @llvm.umin.i32(i32 %n, i32 32)\n  %b = shl i32 7, %a",
    "%a = icmp eq i32 %n, 7\n  %b = select i1 %a, i32 16, i32 %n\n  %c = lshr i32 7, %b",
    "%a = and i32 %n, 15\n  %b = xor i32 %a, 32\n  %c = lshr i32 7, %b",
    "%a = and i32 %n, 16\n  %b = add i32 %a, 16\n  %c = lshr i32 7, %b",
    "%a = or i32 %n, 1\n  %b = lshr i32 7, %a",
    f"{SPREAD.format(32)}\n  %d = shl <4 x i32> %v, %c",
    "%a = call <4 x i32> @llvm.umax.v4i32(<4 x i32> %v, <4 x i32> splat (i32 1))\n  %b = sdiv <4 x i32> %v, %a",
    "%a = call i32 @llvm.umax.i32(i32 %n, i32 0)\n  %b = udiv i32 7, %a",
    f"{GUARDED.format(0, 'and i1 %a, %b')}\n  %q = sdiv i32 7, %d",
    f"{GUARDED.format(1, 'or i1 %a, %b')}\n  %q = sdiv i32 7, %d",
    f"{GUARDED.format(0, 'xor i1 %a, true')}\n  %q = udiv i32 7, %d",
    f"{GUARDED.format(0, 'or i1 %a, %b')}\n  %e = add i32 %d, 1\n  %q = sdiv i32 7, %e",
    LOOP.format(5),
    f"{PLACED.format(6)}\n  %d = load <32 x i32>, ptr %c",
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
def test_native_promises_match_the_list(part: RuntimePart) -> None:
    optimise(part.code(), passes=False)


def refused(line: str, attributes: str = "") -> str:
    """Compile a module with a line, and tell what was found."""
    return refused_module(module(line).replace("%v) {", f"%v) {attributes} {{"))


def refused_module(text: str) -> str:
    """Compile a module, and tell what was found."""
    try:
        optimise(text, passes=False)
    except AssertionError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("line", GOOD)
def test_code_without_promises_is_accepted(line: str) -> None:
    assert refused(line) == ""


@pytest.mark.parametrize("line", BAD)
def test_promise_is_found(line: str) -> None:
    assert "promised to LLVM" in refused(line)


@pytest.mark.parametrize("attribute", ["mustprogress", "nosync", "nofree", "norecurse", '"no-nans-fp-math"="true"'])
def test_attribute_of_a_function_is_found(attribute: str) -> None:
    assert "promised to LLVM" in refused("%a = add i32 %n, 1", attribute)


def test_all_functions_may_access_address_0(seen: list[str]) -> None:
    optimise(module(GOOD[0]), passes=False)
    assert promises.broken(seen[-1]) == []
    assert "without null_pointer_is_valid" in promises.broken(seen[-1].replace("null_pointer_is_valid", ""))[0]


CALLED = """
define internal void @puts(ptr %to, i64 %gap) {
  %at = getelementptr i8, ptr %to, i64 %gap
  store <32 x i32> zeroinitializer, ptr %at
  ret void
}
define void @call() {
  %own = alloca [1024 x i8], align 128
  call void @puts(ptr %own, i64 256)
  call void @puts(ptr %own, i64 LAST)
  ret void
}
"""


def test_offset_is_common_to_all_callers() -> None:
    assert refused_module(CALLED.replace("LAST", "128")) == ""
    assert "puts: store <32 x i32>" in refused_module(CALLED.replace("LAST", "64"))


def test_source_lines_hide_nothing(seen: list[str]) -> None:
    optimise(module(GOOD[0]), passes=False)
    good, bad = (seen[-1].replace("add i32 %n, 1", f"shl i32 1, {by}, !dbg !3") for by in ("3", "%n"))
    assert promises.broken(good) == []
    assert len(promises.broken(bad)) == 1

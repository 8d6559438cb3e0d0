"""Variables that nothing mentions leave PTX, and nothing else does."""

from __future__ import annotations

import random
import re

import pytest

import cujit
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.unused import without_unused


def marked(text: str) -> str:
    """Give the names that are one letter the word of what a file keeps for itself."""
    return re.sub(r"(?<![\w.])([$%_]?[a-d]|w|v)(?![\w$])", r"\1_INTERNAL_", text)


FRAME = ".version 8.0\n.target sm_90\n.address_size 64\n{}\n.visible .entry k(.param .u64 p)\n{{\n{}\nret;\n}}\n"

STAYS = [
    (".global .u32 a;", "mov.u64 %rd1, a;"),
    (".global .u32 plain;\n.global .u32 a;", "mov.u64 %rd1, a;"),
    (".global .align 4 .u32 a = 5;", "ld.global.u32 %r1, [a+4];"),
    (".global .align 8 .u64 b = a;\n.global .u32 a;", "ld.global.u64 %rd1, [b];"),
    (".global .u32 a;\n.global .align 8 .u64 b[2] = {0, generic(a)};", "ld.global.u64 %rd1, [b];"),
    (".global .u32 a;\n.global .align 1 .b8 b[8] = {0xFF(a), 0xFF00(a)};", "ld.global.u8 %r1, [b];"),
    (".global .u32 c;\n.global .u64 b = c+4;\n.global .u64 a[1] = {generic(b)};", "mov.u64 %rd1, a;"),
    (".global .u32 a;\n.visible .global .u64 b = a;", ""),
    (".global .u32 a;\n.weak .global .u64 b = generic(a);", ""),
    (".global .u32 a;\n.const .u64 b = a;", "ld.const.u64 %rd1, [b];"),
    (".visible .global .u32 a;\n.weak .global .u32 b;\n.extern .global .u32 c;\n.common .global .u32 d;", ""),
    (".global .texref a;\n.global .samplerref b;\n.global .surfref c;", ""),
    (".global .attribute(.managed) .u32 a;", ""),
    (".global .u32 a, b;", ""),
    (".const .u32 a = 5;\n.shared .u32 b;", ""),
    (".global .u32 a;\n.alias b, a;", ""),
    (".global .u32 a;", "// begin inline asm\n\tmov.u64 %rd1, a;\n// end inline asm"),
    (".global .u32 $a;\n.global .u32 _b;\n.global .u32 %c;", "add.u64 %rd1, $a, _b; mov.u64 %rd2, %c;"),
    (".global .u32 a;\n.section .debug_info {\n.b64 a\n}", ""),
    (".global .u32 a;", "{ .global .u32 b;\n.global .u32 c; mov.u64 %rd1, a; }"),
]


@pytest.mark.parametrize(("variables", "code"), STAYS)
def test_mentioned_visible_and_special_symbols_remain(variables: str, code: str) -> None:
    text = marked(FRAME.format(variables, code))
    assert "_INTERNAL_" in text
    assert without_unused(text) == text


def test_symbols_used_only_by_unused_variables_are_removed() -> None:
    gone = ".global .u32 a;\n.global .u64 b = a;\n.global .u64 c[2] = {generic(d), 1};\n.global .u64 d = c;\n"
    wide = ".global .align 16 .b8 _ZN4_INTERNAL_E[16] = {1, 2, 3};\n.global .v4 .f32 v;\n.global .b128 w = 1;\n"
    text = marked(FRAME.format(f"{gone}{wide}.global .u32 stays;", "mov.u64 %rd1, stays;"))
    assert without_unused(text) == FRAME.format(".global .u32 stays;", "mov.u64 %rd1, stays;")
    assert without_unused(text, ["c_INTERNAL_"]).count(".global .u64") == 2, "c, which was asked for, and its d"


def test_name_is_a_whole_word() -> None:
    text = FRAME.format(".global .u32 _INTERNAL_a;\n.global .u32 _INTERNAL_ab;", "mov.u64 %rd1, _INTERNAL_ab;")
    assert without_unused(text) == text.replace(".global .u32 _INTERNAL_a;\n", "")


def test_random_graphs_lose_exactly_the_unreachable() -> None:
    chance = random.Random(7)
    for _ in range(100):
        count = chance.randint(1, 12)
        points = [[to for to in range(count) if chance.random() < 0.15] for _ in range(count)]
        roots = [n for n in range(count) if chance.random() < 0.2]
        values = [", ".join(f"generic(_INTERNAL_{to})" for to in to_all) or "0" for to_all in points]
        sizes = [len(to_all) or 1 for to_all in points]
        lines = [f".global .align 8 .u64 _INTERNAL_{n}[{sizes[n]}] = {{{values[n]}}};\n" for n in range(count)]
        reached, waiting = set(roots), list(roots)
        while waiting:
            more = set(points[waiting.pop()]) - reached
            reached |= more
            waiting += more
        code = "".join(f"mov.u64 %rd1, _INTERNAL_{n};\n" for n in roots)
        kept = "".join(line for n, line in enumerate(lines) if n in reached)
        assert without_unused(FRAME.format("".join(lines), code)) == FRAME.format(kept, code)


def test_compile_omits_constants_that_no_kernel_uses() -> None:
    many = "".join(f"static const Tag tag_{n};\n" for n in range(300))
    code = f"""struct Tag {{ int n = 1; }};
namespace tags {{ {many} static const int used[4] = {{1, 2, 3, 4}}; static int asked = 6; }}
__device__ int seen = 7;
__global__ void k(int *p) {{ *p = tags::used[*p]; }}"""
    made = cujit.compile(code, default_device=True, names=["&tags::asked", "k"], arch="compute_90")
    variables = {v.name for v in parse(made.text).variables}
    assert {"seen", made.names["&tags::asked"]} < variables
    assert len(variables) == 3
    device = cujit.cpu()
    p = device.array([2], "int32")
    cujit.load(made, device)["k"].over(1)(p)
    assert p.numpy()[0] == 3


_MEMBERS = """
namespace ENDS_WITH_E { __device__ int member; }
template <class T> __device__ int variable;
namespace ns { template <class T> __device__ int of_ns; struct Plain { static constexpr int plain = 5; }; }
template <class T, int N> struct Base { static constexpr int used = N, unused = N + 1; };
namespace ns { template <class T> struct Far : Base<T, 7> { static constexpr T far = 3; }; }
__device__ const int* keep() { return &Base<int, 4>::used; }
template <class T> struct Counts { static int count; };
template <class T> int Counts<T>::count = 2;
__global__ void k(const int** o, int* p) {
    o[0] = keep();
    *p = variable<int> + ns::of_ns<char> + ns::Plain::plain + Base<long, 3>::unused + ns::Far<float>::far
        + Counts<float>::count;
}
"""


def test_template_members_are_removed_and_namespaces_kept() -> None:
    asked = {"names": ["&Base<long, 3>::used"], "default_device": True}
    text = cujit.compile(_MEMBERS, arch="compute_80", **asked).text  # type: ignore[arg-type]
    found = set(re.findall(r"^\.global (?:\.\w+ (?:\d+ )?)+(\w+)", text, re.MULTILINE))
    assert {"_ZN11ENDS_WITH_E6memberE", "_Z8variableIiE", "_ZN2ns5of_nsIcEE", "_ZN4BaseIiLi4EE4usedE"} <= found
    assert "_ZN6CountsIfE5countE" in found
    assert "_ZN4BaseIlLi3EE4usedE" in found, "it was asked for"
    assert not {"_ZN4BaseIlLi3EE6unusedE", "_ZN2ns3FarIfE3farE", "_ZN4BaseIiLi4EE6unusedE"} & found
